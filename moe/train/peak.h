// SPDX-License-Identifier: Apache-2.0
//
// What this machine could compute at most, to hold the speed of a run against.
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include <stddef.h>

#include "team.h"

// Floating-point operations a second, in f32, of the cores that the ranks have:
// measured by all ranks at once, with multiply-adds that wait for nothing. Ranks
// beyond the cores of their host add nothing. Collective. 0, or -1 with
// train_error_text().
int peak_measure(struct team *team, double *flops);

// `rounds` times some multiply-adds; returns how many operations these were, and
// in *sink what keeps a compiler from leaving them out. One function for each
// instruction set, from one source.
double peak_baseline(size_t rounds, float *sink);
double peak_avx2(size_t rounds, float *sink);
double peak_avx512(size_t rounds, float *sink);

#endif
