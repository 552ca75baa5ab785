// SPDX-License-Identifier: Apache-2.0
/* The feed-forward of an expert: SwiGLU (Shazeer, 2020). */
#include "train/layers.h"

#include "kernels/elementwise.h"

void feed_forward(struct shunti_gemm *gemm, size_t N, size_t D, size_t F,
                  const float *x, const float *gate_up, const float *down,
                  float *hidden, float *act, enum shunti_gemm_beta beta,
                  float *y)
{
    linear(gemm, N, D, 2 * F, x, gate_up, SHUNTI_GEMM_SET, hidden);
    shunti_elementwise()->swiglu(N, F, hidden, act);
    linear(gemm, N, F, D, act, down, beta, y);
}

void feed_forward_backward(struct shunti_gemm *gemm, size_t N, size_t D,
                           size_t F, const float *dy, const float *x,
                           const float *gate_up, const float *down,
                           const float *hidden, const float *act, float *dact,
                           float *dhidden, enum shunti_gemm_beta beta,
                           float *dx, struct grad dgate_up, struct grad ddown)
{
    linear_backward(gemm, N, F, D, dy, act, down, SHUNTI_GEMM_SET, dact, ddown);
    shunti_elementwise()->swiglu_backward(N, F, hidden, dact, dhidden);
    linear_backward(gemm, N, D, 2 * F, dhidden, x, gate_up, beta, dx, dgate_up);
}
