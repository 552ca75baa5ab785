// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions of arrays: dst[i] = srcs[0][i] op srcs[1][i] op ... in this order.
 *
 * All n sources are added in one pass, so that each is read once and dst
 * written once. f16 and bf16 are widened to f32, and rounded after the last
 * source has been added. Integers wrap around. min and max of a NaN and a
 * number give the NaN. For equal values (as -0 and +0) they give that of the
 * earlier source.
 *
 * All instruction sets give the same bits, except that the CPU chooses which of
 * several NaNs is the result.
 */
#ifndef SHUNTI_REDUCE_H
#define SHUNTI_REDUCE_H

#include <stddef.h>

#include <shunt/coll.h>

#include "src/kernels/cpu.h"

/* As shunti_reduce(), with one instruction set. */
struct shunti_reduce_set {
    void (*run)(void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op, int divisor);
};

/*
 * dst      (count); may be one of srcs, must not overlap them otherwise.
 * srcs     (n) arrays of count elements, n >= 1; they need no alignment.
 * divisor  of SHUNT_AVG: n. Not used otherwise.
 *
 * dtype must not be SHUNT_FP8_E4M3.
 */
void shunti_reduce(void *dst, const void *const *srcs, int n, size_t count,
                   enum shunt_dtype dtype, enum shunt_op op, int divisor);

extern const struct shunti_reduce_set shunti_reduce_plain;
extern const struct shunti_reduce_set shunti_reduce_neon;
extern const struct shunti_reduce_set shunti_reduce_avx2;
extern const struct shunti_reduce_set shunti_reduce_avx512;

/* Indexed by enum shunti_isa; NULL for sets of another architecture. */
extern const struct shunti_reduce_set
    *const shunti_reduce_sets[SHUNTI_ISA_COUNT];

#endif
