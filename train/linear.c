// SPDX-License-Identifier: Apache-2.0
//
// Rows times a matrix, and the gradients of both.
#include "train/layers.h"

void linear(struct gemm *gemm, size_t R, size_t n, size_t m, const float *x,
            const float *w, enum gemm_beta beta, float *y)
{
    gemm_nn(gemm, R, m, n, x, n, w, m, beta, y, m);
}

void linear_backward(struct gemm *gemm, size_t R, size_t n, size_t m,
                     const float *dy, const float *x, const float *w,
                     enum gemm_beta beta, float *dx, struct grad dw)
{
    size_t share = R / dw.shares;

    if (dx)
        gemm_nt(gemm, R, n, m, dy, m, w, m, beta, dx, n);
    for (size_t g = 0; g < dw.shares; g++)
        gemm_tn(gemm, n, m, share, x + g * share * n, n, dy + g * share * m, m,
                GEMM_ADD, dw.data + g * dw.stride, m);
}
