// SPDX-License-Identifier: Apache-2.0
/* Which row kernels this processor runs. */
#include <stdbool.h>

#include "kernels/rows.h"

static bool runs(const struct shunti_rows_set *set)
{
#if defined(__x86_64__)
    if (set == &shunti_rows_avx512)
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (set == &shunti_rows_avx2)
        return __builtin_cpu_supports("avx2");
#endif
    (void)set;
    return true;
}

const struct shunti_rows_set *shunti_rows_set(size_t i)
{
    static const struct shunti_rows_set *const sets[] = {
#if defined(__x86_64__)
        &shunti_rows_avx512,
        &shunti_rows_avx2,
#elif defined(__aarch64__)
        &shunti_rows_neon, /* every one has it */
#endif
        &shunti_rows_plain,
        &shunti_rows_ref,
    };

    for (size_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++)
        if (runs(sets[s]) && i-- == 0)
            return sets[s];
    return NULL;
}

const struct shunti_rows *shunti_rows(enum shunt_dtype dtype)
{
    const struct shunti_rows_set *best = shunti_rows_set(0);

    return dtype == SHUNT_F32 ? &best->f32 : &best->bf16;
}
