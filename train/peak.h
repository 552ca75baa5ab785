// SPDX-License-Identifier: Apache-2.0
//
// What this machine could compute at most, to hold the speed of a run against.
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include <stddef.h>

#include "train/team.h"

// Floating-point operations a second of the cores that the ranks have: measured
// by all ranks at once, with multiply-adds of f32 that wait for nothing, or, if
// there is a `tile`, with the tile's own instruction for bf16. Ranks beyond the
// cores of their host add nothing. Collective. 0, or -1 with train_error_text().
struct bf16_tile;
int peak_measure(struct team *team, const struct bf16_tile *tile,
                 double *flops);

// `rounds` times some multiply-adds; returns how many operations these were, and
// in *sink what keeps a compiler from leaving them out. One function for each
// instruction set, from one source.
double peak_baseline(size_t rounds, float *sink);
double peak_avx2(size_t rounds, float *sink);
double peak_avx512(size_t rounds, float *sink);

#endif
