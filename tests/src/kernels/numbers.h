// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers for tests of kernels: roughly normally distributed, and the same for
 * the same seed.
 */
#ifndef TESTS_NUMBERS_H
#define TESTS_NUMBERS_H

#include "tests/collectives/random.h"

/* Makes n numbers of mean 0 and deviation `scale`, as sums of twelve uniform
 * numbers. */
static inline void numbers_fill(uint64_t seed, size_t n, double scale, float *x)
{
    struct random r = {seed * 0x9e3779b97f4a7c15};

    for (size_t i = 0; i < n; i++) {
        double sum = 0;

        for (int k = 0; k < 12; k++)
            sum += (double)(random_next(&r) >> 11) * 0x1p-53;
        x[i] = (float)((sum - 6) * scale);
    }
}

#endif
