// SPDX-License-Identifier: Apache-2.0
/*
 * What --comm mpi asks of MPI, as a table of functions. They are in a module,
 * shunt-train-mpi.so (mpi_module.c), so that shunt-train itself needs no MPI.
 *
 * All calls are collective over MPI_COMM_WORLD or a group of it. They have no
 * status: MPI ends all ranks when one of its calls fails. Counts and places are
 * int, as MPI's are, and count elements of `bytes` bytes each.
 */
#ifndef TRAIN_MPI_CALLS_H
#define TRAIN_MPI_CALLS_H

#include <stddef.h>

struct shunt_comm;

enum { MPI_CALLS_ABI = 1 };

/* Who takes part: all ranks, those of a node, or those that have the same place
 * on each node. In rank order. */
enum mpi_group { MPI_ALL, MPI_NODE, MPI_RAIL, MPI_GROUPS };

struct mpi_calls {
    int abi; /* MPI_CALLS_ABI */

    /* MPI_Init(), and a communicator of all its ranks, for what is done before
     * and after the steps. NULL, or what is wrong. */
    const char *(*begin)(struct shunt_comm **comm);
    /* Makes MPI_NODE and MPI_RAIL: ranks of equal `node`, and of equal `rail`. */
    void (*split)(int node, int rail);
    void (*end)(void);
    void (*abort)(int status);
    const char *version;

    /* `count` ints to each rank, and from each. */
    void (*alltoall)(const int *send, int *recv, int count);
    void (*alltoallv)(enum mpi_group group, size_t bytes, const void *send,
                      const int *send_counts, const int *send_at, void *recv,
                      const int *recv_counts, const int *recv_at);
    /* own NULL: it is in its place in `all`. */
    void (*allgatherv)(size_t bytes, const void *own, void *all,
                       const int *counts, const int *at);
};

/* The module's table. NULL: train_error_text(). */
const struct mpi_calls *mpi_load(void);

#endif
