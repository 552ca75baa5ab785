// SPDX-License-Identifier: Apache-2.0
/*
 * The router of a layer: its gate (gate.h), and the z-loss, which is the same
 * with every gate:
 *
 *     zloss * mean(lse^2)    (Zoph et al.: "ST-MoE", 2022)
 *
 * with means over all rows of the batch.
 */
#include "train/layers.h"

#include <math.h>

static float log_sum_exp(size_t E, const float *l)
{
    double top = l[0], sum = 0;

    for (size_t e = 1; e < E; e++)
        top = l[e] > top ? l[e] : top;
    for (size_t e = 0; e < E; e++)
        sum += exp(l[e] - top);
    return (float)(top + log(sum));
}

int router(const struct router_config *c, const struct gate_input *in,
           const struct routed *to)
{
    const size_t W = gate_width(c);

    for (size_t r = 0; gate_keeps_logits(c) && r < in->R; r++)
        to->lse[r] = log_sum_exp(c->experts, to->logits + r * W);
    return gate_of(c)->forward(c, in, to);
}

void router_backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float scale, float *dlogits)
{
    const size_t E = c->experts, W = gate_width(c);
    const float zloss = c->zloss * 2.0f * scale;

    gate_of(c)->backward(c, in, of, dweight, slope, c->balance * scale,
                         dlogits);
    /* d(lse)/d(logit) = softmax, which is P where the logits are not kept */
    for (size_t r = 0; r < in->R && c->zloss > 0; r++)
        for (size_t e = 0; e < E; e++) {
            const float p = gate_keeps_logits(c)
                                ? (float)exp((double)of->logits[r * W + e] -
                                             (double)of->lse[r])
                                : of->probs[r * E + e];

            dlogits[r * W + e] += zloss * of->lse[r] * p;
        }
}
