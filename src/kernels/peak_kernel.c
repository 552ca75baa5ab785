// SPDX-License-Identifier: Apache-2.0
/*
 * Multiply-adds, as many at once as hide the latency of one. Two start in a
 * cycle and each takes four or five, so ten or more are needed. They must also
 * fit in the register file. meson.build compiles this file once for each
 * instruction set. A multiply-add is one instruction here (-ffp-contract=fast),
 * since no result is kept.
 */
#include "src/kernels/peak.h"

#if defined(__AVX512F__)
typedef float vec __attribute__((vector_size(64)));
#elif defined(__AVX2__)
typedef float vec __attribute__((vector_size(32)));
#else
typedef float vec __attribute__((vector_size(16)));
#endif

enum { LANES = sizeof(vec) / sizeof(float), SUMS = 12 };

static double run(size_t rounds, float *sink)
{
    vec sum[SUMS], factor, term;

    /* The values do not change: none overflows or becomes tiny. */
    for (size_t i = 0; i < LANES; i++) {
        factor[i] = 0.5f;
        term[i] = *sink;
    }
    for (size_t i = 0; i < SUMS; i++)
        sum[i] = term * (float)i;
    for (size_t r = 0; r < rounds; r++)
        for (size_t i = 0; i < SUMS; i++)
            sum[i] = sum[i] * factor + term;
    for (size_t i = 1; i < SUMS; i++)
        sum[0] += sum[i];
    *sink = sum[0][0] / (2 * SUMS);
    return 2.0 * LANES * SUMS * (double)rounds;
}

const struct shunti_peak_set KERNEL_TABLE = {
    .run = run,
};
