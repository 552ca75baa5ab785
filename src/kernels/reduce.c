// SPDX-License-Identifier: Apache-2.0
/* Reductions with the instruction set in use. */
#include "src/kernels/reduce.h"

#include <assert.h>

const struct shunti_reduce_set *const shunti_reduce_sets[SHUNTI_ISA_COUNT] = {
    [SHUNTI_ISA_PLAIN] = &shunti_reduce_plain,
#if defined(__x86_64__)
    [SHUNTI_ISA_AVX2] = &shunti_reduce_avx2,
    [SHUNTI_ISA_AVX512] = &shunti_reduce_avx512,
#elif defined(__aarch64__)
    [SHUNTI_ISA_NEON] = &shunti_reduce_neon,
#endif
};

void shunti_reduce(void *dst, const void *const *srcs, int n, size_t count,
                   enum shunt_dtype dtype, enum shunt_op op, int divisor)
{
    assert(n >= 1 && divisor >= 1 && dtype != SHUNT_FP8_E4M3);
    shunti_reduce_sets[shunti_isa()]->run(dst, srcs, n, count, dtype, op,
                                          divisor);
}
