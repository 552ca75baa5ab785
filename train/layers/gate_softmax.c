// SPDX-License-Identifier: Apache-2.0
/*
 * P = softmax(logits). A token's experts are the K with the largest P + bias;
 * their weights are P. With K = 1 this is the gate of Fedus, Zoph, Shazeer:
 * "Switch Transformers" (2021). A bias, if there is one, shifts the choice but
 * never a weight (Wang et al.: "Auxiliary-Loss-Free Load Balancing", 2024).
 */
#include "train/layers/gate.h"

#include "src/kernels/elementwise.h"

static int forward(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t r = 0; r < in->R; r++)
        to->lse[r] = shunti_elementwise()->softmax(E, 1.0f, to->probs + r * E);
    if (gate_choose(c, in, to->probs, to->choice))
        return -1;
    for (size_t r = 0; r < in->R; r++)
        gate_weigh(c, to->probs + r * E, to->choice + r * K,
                   to->weight + r * K);
    return 0;
}

static void backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float balance, float *dlogits)
{
    const size_t E = c->experts, K = c->topk;

    for (size_t r = 0; r < in->R; r++) {
        const float *p = of->probs + r * E;
        float *d = dlogits + r * E;

        for (size_t e = 0; e < E; e++)
            d[e] = balance * slope[e];
        gate_weigh_backward(c, p, of->choice + r * K, of->weight + r * K,
                            dweight + r * K, d);
        shunti_elementwise()->softmax_backward(E, 1.0f, p, d);
    }
}

const struct gate gate_softmax = {
    .name = "softmax",
    .forward = forward,
    .backward = backward,
    .columns = 1,
    .renormalise = -1,
    .takes_bias = true,
};

const struct gate gate_switch = {
    .name = "switch",
    .forward = forward,
    .backward = backward,
    .columns = 1,
    .topk = 1,
    .renormalise = 0, /* if renormalized, a single weight would be 1 and have no
                         gradient */
};
