// SPDX-License-Identifier: Apache-2.0
/*
 * Top 2 with a random second: Lepikhin et al., "GShard" (2020), algorithm 1. P
 * = softmax(logits). The weights of the two largest are divided by their sum.
 * The second, of weight w, is used with the probability min(1, 2 w); without
 * random numbers, as outside of training, always. The weight of the first does
 * not change. The balancing loss counts only first choices.
 */
#include "train/layers/gate.h"

#include "src/kernels/elementwise.h"
#include "train/workload/random.h"

static int forward(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to)
{
    const size_t E = c->experts;

    for (size_t r = 0; r < in->R; r++) {
        const float *p = to->probs + r * E;
        int32_t *choice = to->choice + 2 * r, *counted = to->counted + 2 * r;
        float *weight = to->weight + 2 * r;

        to->lse[r] = shunti_elementwise()->softmax(E, 1.0f, to->probs + r * E);
        gate_best(c, in, p, NULL, choice);
        gate_weigh(c, p, choice, weight);
        counted[0] = choice[0];
        counted[1] = -1;
        if (in->draw && !(2.0 * (double)weight[1] >
                          random_uniform(in->draw->key, gate_token(in, r)))) {
            choice[1] = -1;
            weight[1] = 0;
        }
    }
    return 0;
}

static void backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float balance, float *dlogits)
{
    const size_t E = c->experts;

    for (size_t r = 0; r < in->R; r++) {
        const float *p = of->probs + r * E;
        float *d = dlogits + r * E, weight[2], dw[2];
        int32_t best[2];

        for (size_t e = 0; e < E; e++)
            d[e] = balance * slope[e];
        /* The two weights were divided by their sum before the second expert
         * was dropped at random. So find both experts and weights again. */
        gate_best(c, in, p, NULL, best);
        gate_weigh(c, p, best, weight);
        dw[0] = dweight[2 * r];
        dw[1] = of->choice[2 * r + 1] < 0 ? 0 : dweight[2 * r + 1];
        gate_weigh_backward(c, p, best, weight, dw, d);
        shunti_elementwise()->softmax_backward(E, 1.0f, p, d);
    }
}

const struct gate gate_gshard = {
    .name = "gshard",
    .forward = forward,
    .backward = backward,
    .columns = 1,
    .counts_apart = true,
    .topk = 2,
    .renormalise = 1,
};
