// SPDX-License-Identifier: Apache-2.0
/*
 * The sum of all shares' gradient vectors over all ranks. Each rank receives
 * its slice of the sum. Parts of the vectors are summed while other parts are
 * still being computed.
 *
 * Shares of a node are added in the order of the batch, and then the nodes, in
 * the order of shunt/coll.h. There are two ways. If each rank has one share, or
 * if each rank counts as a node, a reduce-scatter is used: each rank adds its
 * shares, then the ranks of each node are added, then the nodes. Otherwise the
 * ranks exchange the slices of their i-th shares, for each i. Each rank then
 * adds the shares in the wanted order. So the sum has the same bits however
 * shares are spread over ranks, ranks over hosts, and vectors over parts. With
 * MPI the sum has the same bits, too (reduction_mpi.c).
 */
#ifndef TRAIN_REDUCTION_H
#define TRAIN_REDUCTION_H

#include <stddef.h>

#include "train/base/team.h"

struct reduction {
    struct team *team;
    float *grad;         /* (shares, length) this rank's shares; overwritten */
    size_t shares;       /* shares on each rank */
    size_t length;       /* elements of a vector */
    size_t nodes;        /* nodes that the sum assumes, each with equally many
                            shares; 0: the real nodes */
    const size_t *begin; /* (ranks + 1) where each rank's slice begins */
    float *slice;        /* out: this rank's slice of the sum */

    /* reduction.c sets the following fields. */
    bool by_slices; /* true: ranks exchange slices, and each rank adds its own.
                       Equal on all ranks, also on one with an empty slice */
    float *work;    /* (shares of all ranks, slice) or NULL if not needed */
    size_t *counts; /* (4, ranks) counts and offsets of one part */
    struct shunt_request **request;
    size_t requests, room;
    size_t parts; /* elements of the parts that were started */

    double seconds; /* time in calls of the library since the caller cleared the
                       field */
};

/* The caller sets the fields before `by_slices`, which must stay valid. 0, or
 * -1 with train_error_text(). */
int reduction_create(struct reduction *r);
void reduction_destroy(struct reduction *r);

/* Elements [first, last) of all vectors are complete: start to add them. The
 * caller must not use them until reduction_wait(). Not for MPI. Collective: all
 * ranks start the same parts in the same order. 0, or -1 with
 * train_error_text(). */
int reduction_start(struct reduction *r, size_t first, size_t last);

/* Waits until the slice is complete. All elements must have been started once;
 * if none has been, this call starts them all. Collective. 0, or -1 with
 * train_error_text(). */
int reduction_wait(struct reduction *r);

/* True if a reduce-scatter adds in the wanted order, after each rank has added
 * its own shares. A reduce-scatter adds the ranks of each node, then the
 * nodes. */
bool reduction_is_of_ranks(const struct reduction *r);
/* Sets `sum` to the sum of `count` vectors: the vectors of each node are added
 * in their order, then the nodes, in the order of shunt/coll.h. Overwrites the
 * first vector of each node. */
void reduction_add(float *vectors, size_t count, size_t nodes, size_t length,
                   float *sum);

/* For team->mpi (reduction_mpi.c): reduction_mpi() is the body of
 * reduction_wait(). reduction_mpi_work() returns the number of floats that
 * `work` needs. */
int reduction_mpi(struct reduction *r);
size_t reduction_mpi_work(const struct reduction *r);

#endif
