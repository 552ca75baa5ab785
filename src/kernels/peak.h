// SPDX-License-Identifier: Apache-2.0
/*
 * Multiply-adds of f32 without dependencies: the most that a core can compute,
 * as a reference for the speed of a program.
 */
#ifndef SHUNTI_PEAK_H
#define SHUNTI_PEAK_H

#include <stddef.h>

#include "src/kernels/cpu.h"

struct shunti_peak_set {
    /* Do `rounds` times some multiply-adds, and return the number of
     * operations. *sink is about 1 before and after; using it keeps the
     * compiler from removing the multiply-adds. */
    double (*run)(size_t rounds, float *sink);
};

extern const struct shunti_peak_set shunti_peak_plain;
extern const struct shunti_peak_set shunti_peak_neon;
extern const struct shunti_peak_set shunti_peak_avx2;
extern const struct shunti_peak_set shunti_peak_avx512;

/* Indexed by enum shunti_isa; NULL for sets of another architecture. */
extern const struct shunti_peak_set *const shunti_peak_sets[SHUNTI_ISA_COUNT];

#endif
