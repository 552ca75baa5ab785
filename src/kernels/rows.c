// SPDX-License-Identifier: Apache-2.0
/* Row kernels with the instruction set in use. */
#include "src/kernels/rows.h"

const struct shunti_rows_set *const shunti_rows_sets[SHUNTI_ISA_COUNT] = {
    [SHUNTI_ISA_PLAIN] = &shunti_rows_plain,
#if defined(__x86_64__)
    [SHUNTI_ISA_AVX2] = &shunti_rows_avx2,
    [SHUNTI_ISA_AVX512] = &shunti_rows_avx512,
#elif defined(__aarch64__)
    [SHUNTI_ISA_NEON] = &shunti_rows_neon,
#endif
};

const struct shunti_rows *shunti_rows(enum shunt_dtype dtype)
{
    const struct shunti_rows_set *set = shunti_rows_sets[shunti_isa()];

    return dtype == SHUNT_F32 ? &set->f32 : &set->bf16;
}
