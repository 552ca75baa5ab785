// SPDX-License-Identifier: Apache-2.0
/*
 * The algorithms of reduce_scatter and reduce_scatterv, which reduce_scatter.c
 * chooses from.
 */
#ifndef SHUNTI_REDUCE_SCATTER_H
#define SHUNTI_REDUCE_SCATTER_H

#include <shunt/coll.h>

#include "collectives/coll_call.h"

struct shunt_request;

/* Checked arguments. */
struct shunti_reduce_scatter {
    const unsigned char *send; /* or SHUNT_IN_PLACE */
    unsigned char *recv;
    struct shunti_blocks blocks; /* their layout in `send` */
    enum shunt_op op;
};

enum shunt_status shunti_reduce_scatter_two_level(
    const struct shunti_coll *call, uint32_t signature,
    const struct shunti_reduce_scatter *args, struct shunt_request **request);

/* The public functions, as parts of another call. */
enum shunt_status shunti_reduce_scatterv_start(
    struct shunt_comm *comm, const struct shunti_options *options,
    const void *send, void *recv, const size_t *counts, enum shunt_dtype dtype,
    enum shunt_op op, struct shunt_request **request);

#endif
