// SPDX-License-Identifier: Apache-2.0
//
// Multiply-adds, as many at once as hide the time that each takes: two a cycle,
// four or five cycles each, so ten or more; and they must fit the registers.
#include "train/peak.h"

#if defined(__AVX512F__)
typedef float vec __attribute__((vector_size(64)));
#elif defined(__AVX2__)
typedef float vec __attribute__((vector_size(32)));
#else
typedef float vec __attribute__((vector_size(16)));
#endif

enum { LANES = sizeof(vec) / sizeof(float), SUMS = 12 };

double PEAK(size_t rounds, float *sink)
{
    vec sum[SUMS], factor, term;

    // Values that stay where they are: nothing overflows or becomes tiny.
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
