// SPDX-License-Identifier: Apache-2.0
/*
 * The algorithms of alltoall and alltoallv, which alltoall.c chooses from.
 */
#ifndef SHUNTI_ALLTOALL_H
#define SHUNTI_ALLTOALL_H

#include <shunt/coll.h>

#include "collectives/coll_call.h"

struct shunt_request;

/* Checked arguments. */
struct shunti_alltoall {
    const unsigned char *send;
    struct shunti_blocks send_blocks;
    unsigned char *recv;
    struct shunti_blocks recv_blocks;
    void *owned; /* scratch memory, released at the end, also after an error; or
                    NULL */
};

enum shunt_status shunti_alltoall_two_level(const struct shunti_coll *call,
                                            uint32_t signature,
                                            const struct shunti_alltoall *args,
                                            struct shunt_request **request);

/* The public functions, as parts of another call. */
enum shunt_status shunti_alltoallv(struct shunt_comm *comm,
                                   const struct shunti_options *options,
                                   const void *send, const size_t *send_counts,
                                   const size_t *send_displs, void *recv,
                                   const size_t *recv_counts,
                                   const size_t *recv_displs,
                                   enum shunt_dtype dtype);
enum shunt_status shunti_alltoallv_start(
    struct shunt_comm *comm, const struct shunti_options *options,
    const void *send, const size_t *send_counts, const size_t *send_displs,
    void *recv, const size_t *recv_counts, const size_t *recv_displs,
    enum shunt_dtype dtype, struct shunt_request **request);

#endif
