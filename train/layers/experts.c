// SPDX-License-Identifier: Apache-2.0
/* The feed-forward of an expert: SwiGLU (Shazeer, 2020). */
#include "train/layers/layers.h"

#include "src/kernels/elementwise.h"

void feed_forward_hidden(struct shunti_gemm *gemm, size_t N, size_t D, size_t F,
                         const float *x, const float *gate_up, float *hidden,
                         float *act)
{
    linear(gemm, N, D, 2 * F, x, gate_up, SHUNTI_GEMM_SET, hidden);
    shunti_elementwise()->swiglu(N, F, hidden, act);
}

void feed_forward_grouped(struct shunti_gemm *gemm, size_t count, size_t D,
                          size_t F, const struct expert *experts,
                          struct shunti_gemm_item *items)
{
    for (size_t e = 0; e < count; e++) {
        const struct expert *x = &experts[e];

        items[e] = (struct shunti_gemm_item){x->N, x->x, x->gate_up, x->hidden};
    }
    shunti_gemm_grouped_nn(gemm, items, count, 2 * F, D, D, 2 * F,
                           SHUNTI_GEMM_SET, 2 * F);
    for (size_t e = 0; e < count; e++) {
        const struct expert *x = &experts[e];

        shunti_elementwise()->swiglu(x->N, F, x->hidden, x->act);
        items[e] = (struct shunti_gemm_item){x->N, x->act, x->down, x->y};
    }
    shunti_gemm_grouped_nn(gemm, items, count, D, F, F, D, SHUNTI_GEMM_SET, D);
}

void feed_forward_backward_hidden(struct shunti_gemm *gemm, size_t N, size_t D,
                                  size_t F, const float *dy, const float *down,
                                  const float *hidden, float *dact,
                                  float *dhidden)
{
    linear_backward_input(gemm, N, F, D, dy, down, SHUNTI_GEMM_SET, dact);
    shunti_elementwise()->swiglu_backward(N, F, hidden, dact, dhidden);
}

void feed_forward_backward_weights(struct shunti_gemm *gemm, size_t N, size_t D,
                                   size_t F, const float *dy, const float *x,
                                   const float *act, const float *dhidden,
                                   struct grad dgate_up, struct grad ddown)
{
    linear_backward_weight(gemm, N, F, D, dy, act, ddown);
    linear_backward_weight(gemm, N, D, 2 * F, dhidden, x, dgate_up);
}
