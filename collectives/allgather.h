// SPDX-License-Identifier: Apache-2.0
/*
 * The algorithms of allgather and allgatherv, which allgather.c chooses from.
 */
#ifndef SHUNTI_ALLGATHER_H
#define SHUNTI_ALLGATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "collectives/coll_call.h"

struct shunt_comm;
struct shunt_request;
struct shunti_class;

/* Checked arguments. */
struct shunti_allgather {
    const void *send; /* or SHUNT_IN_PLACE */
    size_t send_count;
    unsigned char *recv;
    struct shunti_blocks blocks; /* their layout in `recv` */
};

enum shunt_status
shunti_allgather_two_level(const struct shunti_coll *call, uint32_t signature,
                           const struct shunti_allgather *args,
                           struct shunt_request **request);

/* For small blocks, between many nodes of equal size. */
enum shunt_status shunti_allgather_dissemination(
    const struct shunti_coll *call, uint32_t signature,
    const struct shunti_allgather *args, struct shunt_request **request);

/* The two-level algorithm for large blocks (allgather_in_place.c).
 * shunti_allgather_in_place_suits(): true if it is used for `total` bytes of
 * all blocks. */
bool shunti_allgather_in_place_suits(const struct shunt_comm *comm,
                                     size_t total);
enum shunt_status shunti_allgather_in_place(const struct shunti_coll *call,
                                            uint32_t signature,
                                            const struct shunti_allgather *args,
                                            struct shunt_request **request);

/* The public functions, as parts of another call. */
enum shunt_status shunti_allgather(struct shunt_comm *comm,
                                   const struct shunti_options *options,
                                   const void *send, void *recv, size_t count,
                                   enum shunt_dtype dtype);
enum shunt_status shunti_allgatherv_start(struct shunt_comm *comm,
                                          const struct shunti_options *options,
                                          const void *send, size_t send_count,
                                          void *recv, const size_t *recv_counts,
                                          const size_t *recv_displs,
                                          enum shunt_dtype dtype,
                                          struct shunt_request **request);

#endif
