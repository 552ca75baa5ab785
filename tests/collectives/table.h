// SPDX-License-Identifier: Apache-2.0
/*
 * A table of the collectives, for tests that run any of them. For each
 * collective it has the call. It also says which blocks a rank sends and
 * receives, where these blocks lie, and what they must hold.
 */
#ifndef TEST_COLLECTIVES_TABLE_H
#define TEST_COLLECTIVES_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/shunt.h>

enum {
    BARRIER,
    BROADCAST,
    ALLGATHER,
    ALLGATHERV,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    ALLREDUCE,
    ALLTOALL,
    ALLTOALLV,
    COLLECTIVES, /* the number of the collectives above */
};

/* The arguments of a call. A collective uses only the fields that it needs. */
struct collective_call {
    struct shunt_comm *comm;
    const void *send; /* or SHUNT_IN_PLACE */
    void *recv;
    size_t count; /* elements of the block that this rank sends */
    const size_t *send_counts, *send_displs;
    const size_t *recv_counts, *recv_displs;
    enum shunt_dtype dtype;
    enum shunt_op op;
    int root;
};

struct collective {
    const char *name;
    bool to_each;   /* a rank sends a block of its own to each rank, not the
                       same block to all */
    bool from_each; /* a rank receives a block from each rank, not one */
    bool varies;    /* ranks may send or receive different counts */
    bool reduces;   /* each block is the reduction of the blocks of all ranks */
    /* Starts the call if `request` is not NULL; else makes the blocking
     * call. */
    enum shunt_status (*call)(const struct collective_call *c,
                              struct shunt_request **request);
};

extern const struct collective collectives[COLLECTIVES];

#endif
