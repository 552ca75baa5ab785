// SPDX-License-Identifier: Apache-2.0
/* The k largest numbers, with the instruction set in use. */
#include "src/kernels/best.h"

const struct shunti_best_set *const shunti_best_sets[SHUNTI_ISA_COUNT] = {
    [SHUNTI_ISA_PLAIN] = &shunti_best_plain,
#if defined(__x86_64__)
    [SHUNTI_ISA_AVX2] = &shunti_best_avx2,
    [SHUNTI_ISA_AVX512] = &shunti_best_avx512,
#elif defined(__aarch64__)
    [SHUNTI_ISA_NEON] = &shunti_best_neon,
#endif
};
