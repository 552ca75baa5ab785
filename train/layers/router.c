// SPDX-License-Identifier: Apache-2.0
/*
 * The router of a layer: its gate (gate.h), and the z-loss, which all gates
 * have:
 *
 *     zloss * mean(lse^2)    (Zoph et al.: "ST-MoE", 2022)
 *
 * The mean is over all rows of the batch.
 *
 * Rows are handled in blocks. All that follows from a block's logits is
 * computed before the next block. So logits are read from memory once, and only
 * the arrays that backward needs have E columns for all rows.
 */
#include "train/layers/layers.h"

#include "src/kernels/elementwise.h"

#include <string.h>

/* The block that begins at row `first`: at most GATE_ROWS rows. */
static struct gate_input block_of(const struct gate_input *in, size_t first)
{
    struct gate_input block = *in;

    block.R = in->R - first < GATE_ROWS ? in->R - first : GATE_ROWS;
    block.first = in->first + first;
    return block;
}

static struct routed from(const struct router_config *c,
                          const struct routed *all, size_t first)
{
    const size_t E = c->experts, K = c->topk;

    return (struct routed){
        .logits = all->logits + first * gate_width(c),
        .probs = all->probs + first * E,
        .lse = all->lse + first,
        .choice = all->choice + first * K,
        .counted = all->counted + first * K,
        .weight = all->weight + first * K,
    };
}

int router(const struct router_config *c, const struct gate_input *in,
           const struct routed *to)
{
    const size_t W = gate_width(c);

    for (size_t first = 0; first < in->R; first += GATE_ROWS) {
        const struct gate_input block = block_of(in, first);
        const struct routed rows = from(c, to, first);

        for (size_t r = 0; gate_keeps_logits(c) && r < block.R; r++)
            rows.lse[r] = shunti_elementwise()->log_sum_exp(
                c->experts, rows.logits + r * W);
        if (gate_of(c)->forward(c, &block, &rows))
            return -1;
        if (in->routed)
            in->routed(in->routed_arg, block.first, block.R);
    }
    return 0;
}

/* Add the gradient of the z-loss. d(lse)/d(logit) = softmax, which is P if the
 * logits are not kept. */
static void add_zloss(const struct router_config *c,
                      const struct gate_input *in, const struct routed *of,
                      float zloss, float *dlogits)
{
    const size_t E = c->experts, W = gate_width(c);

    for (size_t r = 0; r < in->R; r++) {
        const float *p = of->probs + r * E, slope = zloss * of->lse[r];
        float *d = dlogits + r * W;

        if (gate_keeps_logits(c)) {
            float *row = gate_row(c, in);

            memcpy(row, of->logits + r * W, E * sizeof(*row));
            shunti_elementwise()->softmax(E, 1.0f, row);
            p = row;
        }
        for (size_t e = 0; e < E; e++)
            d[e] += slope * p[e];
    }
}

void router_backward(const struct router_config *c, const struct gate_input *in,
                     const struct routed *of, const float *dweight,
                     const float *slope, float scale, float *dlogits)
{
    const float zloss = c->zloss * 2.0f * scale;

    for (size_t first = 0; first < in->R; first += GATE_ROWS) {
        const struct gate_input block = block_of(in, first);
        const struct routed rows = from(c, of, first);
        float *d = dlogits + first * gate_width(c);

        gate_of(c)->backward(c, &block, &rows, dweight + first * c->topk, slope,
                             c->balance * scale, d);
        if (c->zloss > 0)
            add_zloss(c, &block, &rows, zloss, d);
    }
}
