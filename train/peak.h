// SPDX-License-Identifier: Apache-2.0
/* What this machine could compute at most, to hold the speed of a run
 * against. */
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include "train/team.h"

/* Floating-point operations a second of the cores that the ranks have: measured
 * by all ranks at once, with multiply-adds of f32 that wait for nothing, or, if
 * there is a `tile`, with the tile's own instruction for bf16. Ranks beyond the
 * cores of their host add nothing. Collective. 0, or -1 with
 * train_error_text(). */
struct shunti_bf16_tile;
int peak_measure(struct team *team, const struct shunti_bf16_tile *tile,
                 double *flops);

#endif
