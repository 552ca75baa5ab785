// SPDX-License-Identifier: Apache-2.0
/*
 * Noisy top-k: Shazeer et al., "Outrageously Large Neural Networks" (2017). A
 * token has E logits l and E more, q. With z normal,
 *
 *     H_e = l_e + z_e softplus(q_e);  weights: softmax of the K largest H
 *
 * Outside of training z is 0. The balancing loss is the sum of two squared
 * coefficients of variation over the experts (their appendix A). One is that of
 * the importance, the sum of weights. The other is that of the load, the sum
 * over tokens of
 *
 *     P_e = Phi((l_e - t_e) / softplus(q_e))
 *
 * t_e is the K-th largest H of the other experts. P_e is the probability that
 * the expert is chosen if only its own noise is drawn again. The gradient also
 * goes through t_e. Both matrices begin as zeros.
 */
#include "train/layers/gate.h"

#include "train/workload/random.h"

#include <math.h>

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* The width of the noise, at least 1e-30 so that callers can divide by it. */
static double width_of(double q)
{
    const double width = softplus(q);

    return width < 1e-30 ? 1e-30 : width;
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* Compute H of a row, and its noise z (E). */
static void add_noise(const struct gate_input *in, size_t row, size_t E,
                      const float *logits, float *h, float *noise)
{
    for (size_t e = 0; e < E; e++) {
        const double z =
            in->draw ? random_normal(in->draw->key, gate_token(in, row) * E + e)
                     : 0;

        h[e] = z == 0 ? logits[e]
                      : (float)(logits[e] + z * softplus(logits[E + e]));
        noise[e] = (float)z;
    }
}

/* The experts whose H are the thresholds t_e: [0] for an expert that is not
 * chosen, [1] for a chosen one; -1: none. */
static void thresholds(size_t E, size_t K, const float *h,
                       const int32_t *choice, int32_t at[2])
{
    at[0] = choice[K - 1];
    at[1] = -1;
    for (size_t e = 0; e < E; e++) {
        int taken = 0;
        for (size_t j = 0; j < K; j++)
            taken |= choice[j] == (int32_t)e;
        if (!taken && (at[1] < 0 || h[e] > h[at[1]]))
            at[1] = (int32_t)e;
    }
}

static int is_chosen(size_t K, const int32_t *choice, size_t e)
{
    for (size_t j = 0; j < K; j++)
        if (choice[j] == (int32_t)e)
            return 1;
    return 0;
}

static int forward(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t r = 0; r < in->R; r++) {
        const float *l = to->logits + r * 2 * E;
        float *h = in->scratch + r * E, *p = to->probs + r * E;
        float *weight = to->weight + r * K;
        int32_t *choice = to->choice + r * K, at[2];
        double sum = 0;

        add_noise(in, r, E, l, h, gate_row(c, in));
        gate_best(c, in, h, NULL, choice);
        for (size_t j = 0; j < K; j++)
            sum += exp((double)h[choice[j]] - (double)h[choice[0]]);
        for (size_t j = 0; j < K; j++)
            weight[j] =
                (float)(exp((double)h[choice[j]] - (double)h[choice[0]]) / sum);
        thresholds(E, K, h, choice, at);
        for (size_t e = 0; e < E; e++) {
            const int32_t t = at[is_chosen(K, choice, e)];
            const double z =
                t < 0 ? 0 : ((double)l[e] - (double)h[t]) / width_of(l[E + e]);

            p[e] = t < 0 ? 1 : (float)(0.5 * erfc(-z * M_SQRT1_2));
        }
    }
    return 0;
}

/* Add the gradient that comes from P of a row, to dh and to dlogits (dl,
 * dq). */
static void load_backward(const struct router_config *c, const float *l,
                          const float *h, const int32_t *choice,
                          const float *slope, float balance, float *dh,
                          float *dlogits)
{
    const size_t E = c->experts, K = c->topk;
    int32_t at[2];

    thresholds(E, K, h, choice, at);
    for (size_t e = 0; e < E; e++) {
        const int32_t t = at[is_chosen(K, choice, e)];
        if (t < 0)
            continue;
        const double width = width_of(l[E + e]);
        const double z = ((double)l[e] - (double)h[t]) / width;
        const double dz = balance * slope[e] * exp(-0.5 * z * z) *
                          0.3989422804014327; /* 1 / sqrt(2 pi) */

        dlogits[e] += (float)(dz / width);
        dlogits[E + e] -= (float)(dz * z / width * logistic(l[E + e]));
        dh[t] -= (float)(dz / width);
    }
}

static void backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float balance, float *dlogits)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t r = 0; r < in->R; r++) {
        const float *l = of->logits + r * 2 * E, *weight = of->weight + r * K;
        const int32_t *choice = of->choice + r * K;
        float *h = in->scratch + r * E, *d = dlogits + r * 2 * E, mean = 0;
        float *z = gate_row(c, in);
        float *dh = of->probs + r * E; /* P is no longer needed */

        add_noise(in, r, E, l, h, z);
        for (size_t e = 0; e < 2 * E; e++)
            d[e] = 0;
        for (size_t e = 0; e < E; e++)
            dh[e] = 0;
        load_backward(c, l, h, choice, slope, balance, dh, d);
        for (size_t j = 0; j < K; j++)
            mean += weight[j] * (dweight[r * K + j] +
                                 balance * slope[E + (size_t)choice[j]]);
        for (size_t j = 0; j < K; j++)
            dh[choice[j]] +=
                weight[j] * (dweight[r * K + j] +
                             balance * slope[E + (size_t)choice[j]] - mean);
        for (size_t e = 0; e < E; e++) {
            d[e] += dh[e];
            d[E + e] +=
                (float)((double)dh[e] * (double)z[e] * logistic(l[E + e]));
        }
    }
}

const struct gate gate_noisy = {
    .name = "noisy",
    .forward = forward,
    .backward = backward,
    .columns = 2,
    .keeps_logits = true,
    .counts_weights = true,
    .renormalise = 1,
};
