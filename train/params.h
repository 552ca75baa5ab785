// SPDX-License-Identifier: Apache-2.0
/*
 * A vector of parameters that all ranks of a team have. Each rank adds up the
 * gradient of its shares of the batch, gets its slice of the sum over all of them
 * (reduction.h), and updates that slice; the slices are gathered again. So moments
 * are kept once, not once a rank (Rajbhandari et al.: "ZeRO", 2020, stage 1).
 */
#ifndef TRAIN_PARAMS_H
#define TRAIN_PARAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "train/reduction.h"
#include "train/team.h"

struct params {
    struct team *team;
    size_t length, shares;      /* shares: of the batch, on each rank */
    size_t unit;                /* slices have whole ones of so many elements */
    bool alone;                 /* one rank, one share: slice_grad is grad */
    float *w;                   /* (length) a window, as the next */
    float *grad;                /* (shares, length) */
    size_t *begin;              /* (ranks + 1) slices, in whole chunks */
    float *slice_grad, *m, *v;  /* this rank's slice */
    struct reduction reduction; /* of grad into slice_grad */
};

/* nodes: as reduction.h has it. A team of one rank needs no communicator. Nothing
 * is made for a length of 0, and what follows does nothing then. Collective in the
 * team. 0, or -1 with train_error_text(). */
int params_create(struct params *p, struct team *team, size_t length,
                  size_t shares, size_t nodes, size_t unit);
void params_destroy(struct params *p);
/* Room for so many more elements of w and grad behind the vector, which are no
 * part of it; only where the team is one rank that has one share. 0, or -1 with
 * train_error_text(). */
int params_grow(struct params *p, size_t more);

/* Elements of a rank's slice, and units. */
size_t params_slice(const struct params *p, int rank);
size_t params_units(const struct params *p, int rank);

void params_clear(struct params *p); /* the gradient */
/* Elements [first, last) of the gradient are complete: begin to add them. */
int params_complete(struct params *p, size_t first, size_t last);
/* The slice of the sum, and after its update all slices, on every rank. */
int params_sum(struct params *p);
int params_gather(struct params *p);

/* The sum of squares of each unit of this rank's slice of the gradient; how many
 * there are. */
size_t params_norms(const struct params *p, double *norms);

#endif
