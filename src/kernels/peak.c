// SPDX-License-Identifier: Apache-2.0
/* The peak of each instruction set; see peak.h. */
#include "src/kernels/peak.h"

const struct shunti_peak_set *const shunti_peak_sets[SHUNTI_ISA_COUNT] = {
    [SHUNTI_ISA_PLAIN] = &shunti_peak_plain,
#if defined(__x86_64__)
    [SHUNTI_ISA_AVX2] = &shunti_peak_avx2,
    [SHUNTI_ISA_AVX512] = &shunti_peak_avx512,
#elif defined(__aarch64__)
    [SHUNTI_ISA_NEON] = &shunti_peak_neon,
#endif
};
