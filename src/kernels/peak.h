// SPDX-License-Identifier: Apache-2.0
/*
 * Multiply-adds of f32 that wait for nothing: what a core can compute at most,
 * to hold the speed of a program against.
 */
#ifndef SHUNTI_PEAK_H
#define SHUNTI_PEAK_H

#include <stddef.h>

#include "src/kernels/cpu.h"

struct shunti_peak_set {
    /* Does `rounds` times some multiply-adds and returns how many operations
     * these were. *sink is about 1 before and after, and keeps the compiler
     * from leaving them out. */
    double (*run)(size_t rounds, float *sink);
};

extern const struct shunti_peak_set shunti_peak_plain;
extern const struct shunti_peak_set shunti_peak_neon;
extern const struct shunti_peak_set shunti_peak_avx2;
extern const struct shunti_peak_set shunti_peak_avx512;

/* By enum shunti_isa; NULL where a set is not this architecture's. */
extern const struct shunti_peak_set *const shunti_peak_sets[SHUNTI_ISA_COUNT];

#endif
