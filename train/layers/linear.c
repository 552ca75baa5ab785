// SPDX-License-Identifier: Apache-2.0
/* Rows times a matrix, and the gradients of both. */
#include "train/layers/layers.h"

void linear(struct shunti_gemm *gemm, size_t R, size_t n, size_t m,
            const float *x, const float *w, enum shunti_gemm_beta beta,
            float *y)
{
    shunti_gemm_nn(gemm, R, m, n, x, n, w, m, beta, y, m);
}

void linear_backward_input(struct shunti_gemm *gemm, size_t R, size_t n,
                           size_t m, const float *dy, const float *w,
                           enum shunti_gemm_beta beta, float *dx)
{
    shunti_gemm_nt(gemm, R, n, m, dy, m, w, m, beta, dx, n);
}

void linear_backward_weight(struct shunti_gemm *gemm, size_t R, size_t n,
                            size_t m, const float *dy, const float *x,
                            struct grad dw)
{
    size_t share = R / dw.shares;

    for (size_t g = 0; g < dw.shares; g++)
        shunti_gemm_tn(gemm, n, m, share, x + g * share * n, n,
                       dy + g * share * m, m, SHUNTI_GEMM_ADD,
                       dw.data + g * dw.stride, m);
}

void linear_backward(struct shunti_gemm *gemm, size_t R, size_t n, size_t m,
                     const float *dy, const float *x, const float *w,
                     enum shunti_gemm_beta beta, float *dx, struct grad dw)
{
    if (dx)
        linear_backward_input(gemm, R, n, m, dy, w, beta, dx);
    linear_backward_weight(gemm, R, n, m, dy, x, dw);
}
