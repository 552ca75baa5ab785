// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions of arrays: dst[i] = srcs[0][i] op srcs[1][i] op ... in this order.
 *
 * All n sources are added in one pass, so that each is read once and dst
 * written once. f16 and bf16 are widened to f32, and rounded when the last
 * source has been added. Integers wrap around. min and max of a NaN and a
 * number give the NaN; of equal values (as -0 and +0) the earlier source's.
 *
 * All instruction sets give the same bits, except that which of several NaNs
 * comes out is the CPU's choice.
 */
#ifndef SHUNTI_REDUCE_H
#define SHUNTI_REDUCE_H

#include <stddef.h>

#include <shunt/coll.h>

#include "src/kernels/cpu.h"

/* As shunti_reduce(), by one instruction set. */
struct shunti_reduce_set {
    void (*run)(void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op, int divisor);
};

/*
 * dst      (count); may be one of srcs, must not overlap them otherwise.
 * srcs     (n) arrays of count elements, n >= 1; unaligned is fine.
 * divisor  of SHUNT_AVG: n. Not used otherwise.
 *
 * dtype is not SHUNT_FP8_E4M3.
 */
void shunti_reduce(void *dst, const void *const *srcs, int n, size_t count,
                   enum shunt_dtype dtype, enum shunt_op op, int divisor);

extern const struct shunti_reduce_set shunti_reduce_plain;
extern const struct shunti_reduce_set shunti_reduce_neon;
extern const struct shunti_reduce_set shunti_reduce_avx2;
extern const struct shunti_reduce_set shunti_reduce_avx512;

/* By enum shunti_isa; NULL where a set is not this architecture's. */
extern const struct shunti_reduce_set
    *const shunti_reduce_sets[SHUNTI_ISA_COUNT];

#endif
