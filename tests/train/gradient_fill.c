// SPDX-License-Identifier: Apache-2.0
/* Test data. This function is not in gradient.c, which needs Criterion. */
#include "tests/train/gradient.h"

#include "train/workload/random.h"

void gradient_fill(uint64_t seed, size_t n, double scale, float *x)
{
    uint64_t key = random_key(seed, "gradient_fill");

    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * random_normal(key, i));
}
