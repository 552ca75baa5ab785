// SPDX-License-Identifier: Apache-2.0
/*
 * A table of the collectives, for tests that make any of them. It says which
 * blocks a rank sends and receives, and so where they lie and what they must
 * hold, and it has the call.
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

/* The arguments of a call. A collective uses those that it has. */
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
    bool varies;    /* blocks have counts of their own */
    bool reduces;   /* the block is the reduction of those of all ranks */
    /* With `request`: starts the call. Otherwise the call is blocking. */
    enum shunt_status (*call)(const struct collective_call *c,
                              struct shunt_request **request);
};

extern const struct collective collectives[COLLECTIVES];

#endif
