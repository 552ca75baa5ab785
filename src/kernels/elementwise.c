// SPDX-License-Identifier: Apache-2.0
/* Element-wise kernels with the instruction set in use. */
#include "src/kernels/elementwise.h"

const struct shunti_elementwise
    *const shunti_elementwise_sets[SHUNTI_ISA_COUNT] = {
        [SHUNTI_ISA_PLAIN] = &shunti_elementwise_plain,
#if defined(__x86_64__)
        [SHUNTI_ISA_AVX2] = &shunti_elementwise_avx2,
        [SHUNTI_ISA_AVX512] = &shunti_elementwise_avx512,
#elif defined(__aarch64__)
        [SHUNTI_ISA_NEON] = &shunti_elementwise_neon,
#endif
};

const struct shunti_elementwise *shunti_elementwise(void)
{
    return shunti_elementwise_sets[shunti_isa()];
}
