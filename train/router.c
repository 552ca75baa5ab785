// SPDX-License-Identifier: Apache-2.0
/*
 * Which experts a token goes to: softmax over all experts, then the K largest.
 *
 * Two auxiliary losses, with means over all rows of the batch:
 *     balance * E * sum_e f_e P_e     (Fedus, Zoph, Shazeer: "Switch
 *         Transformers", 2021); f_e: share of the assignments that went to e,
 *         P_e: mean probability of e; f is a constant of the gradient;
 *     zloss * mean(lse^2)             (Zoph et al.: "ST-MoE", 2022).
 * The bias, where used, shifts the choice but never a weight (Wang et al.:
 * "Auxiliary-Loss-Free Load Balancing", 2024).
 */
#include "train/layers.h"

#include "kernels/elementwise.h"

#include <string.h>

/* The K experts of largest p + bias; of equal ones the lower id. */
static void choose(size_t E, size_t K, const float *p, const float *bias,
                   int32_t *choice)
{
    for (size_t j = 0; j < K; j++) {
        int32_t best = -1;
        float top = 0;
        for (size_t e = 0; e < E; e++) {
            int taken = 0;
            for (size_t i = 0; i < j; i++)
                taken |= choice[i] == (int32_t)e;
            float score = bias ? p[e] + bias[e] : p[e];
            if (!taken && (best < 0 || score > top)) {
                best = (int32_t)e;
                top = score;
            }
        }
        choice[j] = best;
    }
}

void router(const struct router_config *c, size_t R, float *logits,
            const float *bias, float *lse, int32_t *choice, float *weight)
{
    size_t E = c->experts, K = c->topk;

    for (size_t r = 0; r < R; r++) {
        float *p = logits + r * E;
        lse[r] = shunti_elementwise()->softmax(E, 1.0f, p);
        choose(E, K, p, bias, choice + r * K);
        float sum = 0;
        for (size_t j = 0; j < K; j++) {
            weight[r * K + j] = p[choice[r * K + j]];
            sum += weight[r * K + j];
        }
        for (size_t j = 0; c->renormalise && j < K; j++)
            weight[r * K + j] /= sum;
    }
}

void router_backward(const struct router_config *c, size_t R,
                     const float *dweight, const float *p, const float *lse,
                     const int32_t *choice, const float *weight,
                     const float *load, float scale, float *dlogits)
{
    size_t E = c->experts, K = c->topk;
    float balance = c->balance * (float)E * scale;
    float zloss = c->zloss * 2.0f * scale;

    for (size_t r = 0; r < R; r++) {
        const float *pr = p + r * E;
        float *d = dlogits + r * E;

        for (size_t e = 0; e < E; e++)
            d[e] = balance * load[e];
        if (c->renormalise) {
            /* w_j = p_j / s:  dp_j = (dw_j - sum_i dw_i w_i) / s */
            float s = 0, mean = 0;
            for (size_t j = 0; j < K; j++) {
                s += pr[choice[r * K + j]];
                mean += dweight[r * K + j] * weight[r * K + j];
            }
            for (size_t j = 0; j < K; j++)
                d[choice[r * K + j]] += (dweight[r * K + j] - mean) / s;
        } else {
            for (size_t j = 0; j < K; j++)
                d[choice[r * K + j]] += dweight[r * K + j];
        }
        shunti_elementwise()->softmax_backward(E, 1.0f, pr, d);
        /* d(lse)/d(logit) = p */
        for (size_t e = 0; e < E; e++)
            d[e] += zloss * lse[r] * pr[e];
    }
}
