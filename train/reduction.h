// SPDX-License-Identifier: Apache-2.0
/*
 * The sum of the shares' gradient vectors over all ranks, of which each rank
 * gets its slice: part by part, while other parts of the vectors are still being
 * computed.
 *
 * Shares are added in the order of the batch, and then of the nodes. One share
 * on each rank, or each rank a node of its own: a reduce-scatter of the sums of
 * the ranks' shares, which adds the ranks of each node in their order, and then
 * the nodes. Otherwise the slices of the i-th share of every rank are exchanged,
 * for all i, and added here in the order asked for. So the sum has the same bits
 * however shares are spread over ranks, ranks over hosts, and the vectors over
 * parts; by MPI, too (reduction_mpi.c).
 */
#ifndef TRAIN_REDUCTION_H
#define TRAIN_REDUCTION_H

#include <stddef.h>

#include "train/team.h"

struct reduction {
    struct team *team;
    float *grad;         /* (shares, length): this rank's shares, used up */
    size_t shares;       /* on each rank */
    size_t length;       /* of a vector */
    size_t nodes;        /* on which the shares are thought to be, as many on
                            each; 0: on those of the ranks */
    const size_t *begin; /* (ranks + 1) slices of a vector */
    float *slice;        /* out: this rank's slice of the sum */

    /* reduction.c's own */
    bool by_slices; /* slices are exchanged and added here. All ranks choose
                       alike, also one whose slice is empty. */
    float *work;    /* (shares of all ranks, slice); NULL: not needed */
    size_t *counts; /* (4, ranks), of a part */
    struct shunt_request **request;
    size_t requests, room;
    size_t parts; /* elements of the parts that were started */

    double seconds; /* in the library's calls, since the caller cleared it */
};

/* What comes before `work` is set by the caller, whose memory it is, and stays
 * as it is. 0, or -1 with train_error_text(). */
int reduction_create(struct reduction *r);
void reduction_destroy(struct reduction *r);

/* Elements [first, last) of all vectors are computed: begin to add them. The
 * caller leaves them alone until reduction_wait(). Not by MPI. Collective: the
 * same parts in the same order. */
int reduction_start(struct reduction *r, size_t first, size_t last);

/* Wait until the slice is complete. All elements were started once, or none,
 * which starts them all. Collective. */
int reduction_wait(struct reduction *r);

/* Is the order asked for that of a reduce-scatter, if each rank first adds up its
 * own shares? That adds the ranks of each node, and then the nodes. */
bool reduction_is_of_ranks(const struct reduction *r);
/* Adds `count` vectors in their order, those of each node first: into `sum`.
 * The first one of each node is used up. */
void reduction_add(float *vectors, size_t count, size_t nodes, size_t length,
                   float *sum);

/* reduction_mpi.c: reduction_wait() where there is team->mpi, and the length of
 * `work` then. */
int reduction_mpi(struct reduction *r);
size_t reduction_mpi_work(const struct reduction *r);

#endif
