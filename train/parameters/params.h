// SPDX-License-Identifier: Apache-2.0
/*
 * A vector of parameters that all ranks of a team have. Each rank adds up the
 * gradient of its shares of the batch. It receives one slice of the sum over
 * all shares (reduction.h), and updates that slice. Then the slices are
 * gathered on all ranks. So moments are kept once and not once per rank
 * (Rajbhandari et al.: "ZeRO", 2020, stage 1).
 */
#ifndef TRAIN_PARAMS_H
#define TRAIN_PARAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "train/base/team.h"
#include "train/parameters/reduction.h"

struct params {
    struct team *team;
    size_t length, shares;      /* elements; shares of the batch on each rank */
    size_t unit;                /* slices are cut at multiples of this many
                                   elements */
    bool alone;                 /* one rank and one share, so slice_grad is
                                   grad */
    float *w;                   /* (length); w and grad are in windows, unless
                                   `alone` */
    float *grad;                /* (shares, length) */
    size_t *begin;              /* (ranks + 1) where each rank's slice begins */
    float *slice_grad, *m, *v;  /* this rank's slice */
    struct reduction reduction; /* sums grad into slice_grad */
};

/* nodes: as in reduction.h. A team of one rank needs no communicator. With
 * length 0 nothing is allocated, and the calls below do nothing. Collective in
 * the team. 0, or -1 with train_error_text(). */
int params_create(struct params *p, struct team *team, size_t length,
                  size_t shares, size_t nodes, size_t unit);
void params_destroy(struct params *p);
/* Adds room for `more` elements of w and grad behind the vector. These elements
 * are not part of the vector. Only for a team of one rank with one share. 0, or
 * -1 with train_error_text(). */
int params_grow(struct params *p, size_t more);

/* The number of elements, and of units, in a rank's slice. */
size_t params_slice(const struct params *p, int rank);
size_t params_units(const struct params *p, int rank);

void params_clear(struct params *p); /* sets the gradient to 0 */
/* Elements [first, last) of the gradient are complete: start to add them. 0, or
 * -1 with train_error_text(). */
int params_complete(struct params *p, size_t first, size_t last);
/* params_sum() completes the sum of this rank's slice. params_gather() sends
 * the updated slices to all ranks. Collective. 0, or -1 with
 * train_error_text(). */
int params_sum(struct params *p);
int params_gather(struct params *p);

/* The sum of squares of each unit in this rank's slice of the gradient. Returns
 * the number of units. */
size_t params_norms(const struct params *p, double *norms);

#endif
