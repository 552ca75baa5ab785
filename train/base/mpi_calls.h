// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of MPI that --comm mpi needs, as a table. They are in a module,
 * shunt-train-mpi.so (mpi_module.c), so that shunt-train itself does not need
 * MPI.
 *
 * All calls are collective over MPI_COMM_WORLD or a group of it. They have no
 * status, since MPI ends all ranks when one of its calls fails. Counts and
 * offsets are int, as in MPI, and count elements of `bytes` bytes.
 */
#ifndef TRAIN_MPI_CALLS_H
#define TRAIN_MPI_CALLS_H

#include <stddef.h>

struct shunt_comm;

enum { MPI_CALLS_ABI = 1 };

/* The ranks of a call: all, those of a node, or those with the same index on
 * each node. In rank order. */
enum mpi_group { MPI_ALL, MPI_NODE, MPI_RAIL, MPI_GROUPS };

struct mpi_calls {
    int abi; /* MPI_CALLS_ABI */

    /* MPI_Init(), and a communicator of all ranks, for use before and after the
     * steps. Returns NULL, or an error text. */
    const char *(*begin)(struct shunt_comm **comm);
    /* Makes MPI_NODE and MPI_RAIL: ranks with equal `node`, and with equal
     * `rail`. */
    void (*split)(int node, int rail);
    void (*end)(void);
    void (*abort)(int status);
    const char *version;

    /* Sends `count` ints to each rank, and receives as many from each. */
    void (*alltoall)(const int *send, int *recv, int count);
    void (*alltoallv)(enum mpi_group group, size_t bytes, const void *send,
                      const int *send_counts, const int *send_at, void *recv,
                      const int *recv_counts, const int *recv_at);
    /* own NULL: this rank's elements are already in `all`. */
    void (*allgatherv)(size_t bytes, const void *own, void *all,
                       const int *counts, const int *at);
};

/* Loads the module and returns its table. Returns NULL on failure, with
 * train_error_text(). */
const struct mpi_calls *mpi_load(void);

#endif
