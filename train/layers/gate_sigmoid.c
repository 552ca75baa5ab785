// SPDX-License-Identifier: Apache-2.0
/*
 * DeepSeek-V3's gate (2412.19437, section 2.1.2). s = sigmoid(logits). A
 * token's experts are the K with the largest s + bias. Their weights are s,
 * usually divided by their sum. The balancing loss (eq. 17 to 20) has P = s /
 * sum(s). It counts the K experts with the largest s, without the bias and
 * without groups.
 */
#include "train/layers/gate.h"

#include "src/kernels/elementwise.h"

#include <string.h>

/* Turn scores s into P, in place. */
static void divide(size_t E, float *s)
{
    const float sum = shunti_elementwise()->sum(E, s);

    for (size_t e = 0; e < E; e++)
        s[e] /= sum;
}

/* Are the chosen experts the ones with the largest s? */
static bool counts_choice(const struct router_config *c,
                          const struct gate_input *in)
{
    return c->gate.choose == CHOOSE_BEST && !in->bias && !in->workload;
}

static int forward(const struct router_config *c, const struct gate_input *in,
                   const struct routed *to)
{
    const size_t E = c->experts, K = c->topk;

    shunti_elementwise()->sigmoid(in->R * E, to->logits, to->probs);
    if (gate_choose(c, in, to->probs, to->choice))
        return -1;
    for (size_t r = 0; r < in->R; r++) {
        float *s = to->probs + r * E;

        gate_weigh(c, s, to->choice + r * K, to->weight + r * K);
        if (counts_choice(c, in))
            memcpy(to->counted + r * K, to->choice + r * K,
                   K * sizeof(*to->counted));
        else
            gate_best(c, in, s, NULL, to->counted + r * K);
        divide(E, s);
    }
    return 0;
}

static void backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float balance, float *dlogits)
{
    const size_t E = c->experts, K = c->topk;

    shunti_elementwise()->sigmoid(in->R * E, of->logits, in->scratch);
    for (size_t r = 0; r < in->R; r++) {
        const float *s = in->scratch + r * E, *p = of->probs + r * E;
        float *d = dlogits + r * E;
        const float sum = shunti_elementwise()->sum(E, s);
        const float mean = balance * shunti_elementwise()->dot(E, slope, p);

        for (size_t e = 0; e < E; e++)
            d[e] = (balance * slope[e] - mean) / sum;
        gate_weigh_backward(c, s, of->choice + r * K, of->weight + r * K,
                            dweight + r * K, d);
        for (size_t e = 0; e < E; e++)
            d[e] *= s[e] * (1.0f - s[e]);
    }
}

const struct gate gate_sigmoid = {
    .name = "sigmoid",
    .forward = forward,
    .backward = backward,
    .columns = 1,
    .keeps_logits = true,
    .counts_apart = true,
    .renormalise = -1,
    .takes_bias = true,
};
