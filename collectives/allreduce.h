// SPDX-License-Identifier: Apache-2.0
/*
 * The algorithms of allreduce, which allreduce.c chooses from.
 */
#ifndef SHUNTI_ALLREDUCE_H
#define SHUNTI_ALLREDUCE_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "collectives/select.h"

struct shunt_request;
struct shunti_coll;

/* Checked arguments. */
struct shunti_allreduce {
    const unsigned char *send; /* equal to `recv` if in place */
    unsigned char *recv;
    size_t count, bytes;
    enum shunt_dtype dtype;
    enum shunt_op op;
};

enum shunt_status shunti_allreduce_segments(const struct shunti_coll *call,
                                            uint32_t signature,
                                            const struct shunti_allreduce *args,
                                            struct shunt_request **request);

/* variant: SHUNTI_ALLREDUCE_WHOLE, LANES or SHARDS. */
enum shunt_status
shunti_allreduce_two_level(const struct shunti_coll *call, uint32_t signature,
                           const struct shunti_allreduce *args,
                           enum shunti_algorithm variant,
                           struct shunt_request **request);

/* For small vectors, between many nodes: in rounds, and in rounds between a
 * power of two of nodes. */
enum shunt_status shunti_allreduce_dissemination(
    const struct shunti_coll *call, uint32_t signature,
    const struct shunti_allreduce *args, struct shunt_request **request);
enum shunt_status shunti_allreduce_doubling(const struct shunti_coll *call,
                                            uint32_t signature,
                                            const struct shunti_allreduce *args,
                                            struct shunt_request **request);

#endif
