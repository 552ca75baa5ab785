// SPDX-License-Identifier: Apache-2.0
/* Normalization by the root mean square (Zhang, Sennrich, 2019). */
#include "train/layers/layers.h"

#include "src/kernels/elementwise.h"

static const float epsilon = 1e-5f;

void rmsnorm(size_t R, size_t D, const float *x, const float *gain, float *y,
             float *inverse)
{
    shunti_elementwise()->rmsnorm(R, D, epsilon, x, gain, y, inverse);
}

void rmsnorm_backward(size_t R, size_t D, const float *dy, const float *x,
                      const float *gain, const float *inverse, float *dx,
                      struct grad dgain)
{
    size_t share = R / dgain.shares;

    for (size_t g = 0; g < dgain.shares; g++) {
        size_t r = g * share;
        shunti_elementwise()->rmsnorm_backward(
            share, D, x + r * D, gain, inverse + r, dy + r * D, dx + r * D,
            dgain.data + g * dgain.stride);
    }
}
