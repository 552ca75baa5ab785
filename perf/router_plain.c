// SPDX-License-Identifier: Apache-2.0
/* The router as plain loops; see router_plain.h. */
#include "perf/router_plain.h"

#include "src/kernels/elementwise.h"
#include "train/workload/random.h"

#include <math.h>

/* --- choices -------------------------------------------------------------- */

static int is_among(size_t n, const int32_t *choice, int32_t e)
{
    for (size_t j = 0; j < n; j++)
        if (choice[j] == e)
            return 1;
    return 0;
}

/* Returns the expert of [first, last) with the highest score that is not yet
 * among the n entries of `choice`; -1 if there is none. */
static int32_t next(const float *s, size_t first, size_t last, size_t n,
                    const int32_t *choice)
{
    int32_t best = -1;

    for (size_t e = first; e < last; e++)
        if (!is_among(n, choice, (int32_t)e) && (best < 0 || s[e] > s[best]))
            best = (int32_t)e;
    return best;
}

static void choose_best(size_t E, size_t K, const float *s, int32_t *choice)
{
    for (size_t j = 0; j < K; j++)
        choice[j] = next(s, 0, E, j, choice);
}

static void choose_grouped(const struct router_config *c, const float *s,
                           int32_t *choice)
{
    const size_t size = c->experts / c->gate.groups;
    const size_t each = c->topk / c->gate.groups;

    for (size_t g = 0; g < c->gate.groups; g++)
        for (size_t j = 0; j < each; j++)
            choice[g * each + j] =
                next(s, g * size, (g + 1) * size, j, choice + g * each);
}

/* Set the scores of experts in groups that are not open to -infinity, in
 * place. */
static void close_groups(const struct router_config *c, float *s)
{
    enum { MOST = 64 };
    const size_t groups = c->gate.groups, size = c->experts / groups;
    float sum[MOST];
    int32_t taken[MOST], open[MOST];

    for (size_t g = 0; g < groups; g++) {
        sum[g] = 0;
        for (size_t i = 0; i < c->gate.best_of; i++) {
            taken[i] = next(s, g * size, (g + 1) * size, i, taken);
            sum[g] += s[taken[i]];
        }
    }
    choose_best(groups, c->gate.open, sum, open);
    for (size_t e = 0; e < c->experts; e++)
        if (!is_among(c->gate.open, open, (int32_t)(e / size)))
            s[e] = -INFINITY;
}

static void choose_all(const struct router_config *c,
                       const struct gate_input *in, const float *scores,
                       int32_t *choice)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t i = 0; i < in->R * E; i++)
        in->scratch[i] = scores[i] + (in->bias ? in->bias[i % E] : 0);
    for (size_t r = 0; r < in->R; r++)
        if (c->gate.choose == CHOOSE_LIMITED)
            close_groups(c, in->scratch + r * E);
    for (size_t r = 0; r < in->R; r++)
        if (c->gate.choose == CHOOSE_GROUPED)
            choose_grouped(c, in->scratch + r * E, choice + r * K);
        else
            choose_best(E, K, in->scratch + r * E, choice + r * K);
}

/* --- gates ---------------------------------------------------------------- */

static void weigh_all(const struct router_config *c, size_t R,
                      const float *scores, const int32_t *choice, float *weight)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t r = 0; r < R; r++) {
        float sum = 0;

        for (size_t j = 0; j < K; j++)
            sum += weight[r * K + j] =
                scores[r * E + (size_t)choice[r * K + j]];
        for (size_t j = 0; j < K; j++)
            weight[r * K + j] = weight[r * K + j] / (c->renormalise ? sum : 1) *
                                (c->gate.scale > 0 ? c->gate.scale : 1);
    }
}

static void softmax_all(const struct router_config *c, size_t R,
                        const struct routed *to)
{
    for (size_t r = 0; r < R; r++)
        to->lse[r] = shunti_elementwise()->softmax(c->experts, 1.0f,
                                                   to->probs + r * c->experts);
}

static void gshard(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to)
{
    softmax_all(c, in->R, to);
    choose_all(c, in, to->probs, to->choice);
    weigh_all(c, in->R, to->probs, to->choice, to->weight);
    for (size_t r = 0; r < in->R; r++) {
        to->counted[2 * r] = to->choice[2 * r];
        to->counted[2 * r + 1] = -1;
        if (in->draw && !(2.0 * (double)to->weight[2 * r + 1] >
                          random_uniform(in->draw->key, gate_token(in, r)))) {
            to->choice[2 * r + 1] = -1;
            to->weight[2 * r + 1] = 0;
        }
    }
}

static float log_sum_exp(size_t E, const float *l)
{
    double top = (double)l[0], sum = 0;

    for (size_t e = 1; e < E; e++)
        top = (double)l[e] > top ? (double)l[e] : top;
    for (size_t e = 0; e < E; e++)
        sum += exp((double)l[e] - top);
    return (float)(top + log(sum));
}

static void sigmoid(const struct router_config *c, const struct gate_input *in,
                    const struct routed *to)
{
    const size_t E = c->experts, K = c->topk;

    shunti_elementwise()->sigmoid(in->R * E, to->logits, to->probs);
    choose_all(c, in, to->probs, to->choice);
    weigh_all(c, in->R, to->probs, to->choice, to->weight);
    for (size_t r = 0; r < in->R; r++)
        choose_best(E, K, to->probs + r * E, to->counted + r * K);
    for (size_t r = 0; r < in->R; r++) {
        double sum = 0;

        for (size_t e = 0; e < E; e++)
            sum += (double)to->probs[r * E + e];
        for (size_t e = 0; e < E; e++)
            to->probs[r * E + e] = (float)((double)to->probs[r * E + e] / sum);
    }
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static void noisy_row(const struct router_config *c, const float *l,
                      const float *h, const int32_t *choice, float *weight,
                      float *p)
{
    const size_t E = c->experts, K = c->topk;
    const int32_t above = next(h, 0, E, K, choice), last = choice[K - 1];
    double sum = 0;

    for (size_t j = 0; j < K; j++)
        sum += exp((double)h[choice[j]] - (double)h[choice[0]]);
    for (size_t j = 0; j < K; j++)
        weight[j] =
            (float)(exp((double)h[choice[j]] - (double)h[choice[0]]) / sum);
    for (size_t e = 0; e < E; e++) {
        const int32_t t = is_among(K, choice, (int32_t)e) ? above : last;
        const double z =
            t < 0 ? INFINITY
                  : ((double)l[e] - (double)h[t]) / softplus((double)l[E + e]);

        p[e] = (float)(0.5 * erfc(-z * M_SQRT1_2));
    }
}

static void noisy(const struct router_config *c, const struct gate_input *in,
                  const struct routed *to)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t i = 0; i < in->R * E; i++) {
        const float *l = to->logits + i / E * 2 * E + i % E;
        const size_t token = in->draw ? gate_token(in, i / E) : 0;

        in->scratch[i] =
            in->draw ? (float)((double)*l +
                               random_normal(in->draw->key, token * E + i % E) *
                                   softplus((double)l[E]))
                     : *l;
    }
    for (size_t r = 0; r < in->R; r++)
        choose_best(E, K, in->scratch + r * E, to->choice + r * K);
    for (size_t r = 0; r < in->R; r++)
        noisy_row(c, to->logits + r * 2 * E, in->scratch + r * E,
                  to->choice + r * K, to->weight + r * K, to->probs + r * E);
}

void plain_router(const struct router_config *c, const struct gate_input *in,
                  const struct routed *to, struct plain_sums *sums)
{
    const size_t E = c->experts, K = c->topk, W = gate_width(c);

    for (size_t r = 0; gate_keeps_logits(c) && r < in->R; r++)
        to->lse[r] = log_sum_exp(E, to->logits + r * W);
    if (c->gate.kind == GATE_GSHARD) {
        gshard(c, in, to);
    } else if (c->gate.kind == GATE_SIGMOID) {
        sigmoid(c, in, to);
    } else if (c->gate.kind == GATE_NOISY) {
        noisy(c, in, to);
    } else {
        softmax_all(c, in->R, to);
        choose_all(c, in, to->probs, to->choice);
        weigh_all(c, in->R, to->probs, to->choice, to->weight);
    }
    for (size_t r = 0; r < in->R; r++) {
        sums->lse += (double)to->lse[r] * (double)to->lse[r];
        for (size_t e = 0; e < E; e++)
            sums->probs[e] += (double)to->probs[r * E + e];
        for (size_t j = 0; j < K; j++)
            if (to->counted[r * K + j] >= 0)
                sums->counted[to->counted[r * K + j]] +=
                    gate_counts_weights(c) ? (double)to->weight[r * K + j] : 1;
    }
}
