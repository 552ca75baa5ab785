// SPDX-License-Identifier: Apache-2.0
/* See gradients.h. */
#include "train/gradients.h"

/* In one share: rows come in the order of the batch, whatever rank they are from. */
void gradients_add(struct model *m, const struct expert_rows *r, size_t row,
                   size_t N, float *gradient)
{
    const size_t D = m->c.dim, F = m->c.expert_hidden;

    feed_forward_backward_weights(
        m->gemm, N, D, F, r->at.dout + row * D, r->at.rows + row * D,
        r->act + row * F, m->dhidden + row * 2 * F,
        (struct grad){gradient + m->layout.gate_up, 0, 1},
        (struct grad){gradient + m->layout.down, 0, 1});
}

float *gradient_of(const struct model *m, const struct micro_batch *b, size_t l,
                   int32_t id)
{
    return m->expert_grad + model_expert_at(m, b, l, id);
}

void gradients_at_once(struct model *m, const struct micro_batch *b, size_t l)
{
    const struct expert_rows *r = &b->experts[l];

    for (size_t e = 0; e < r->at.experts; e++)
        gradients_add(m, r, r->at.offset[e], r->at.count[e],
                      gradient_of(m, b, l, r->at.expert[e]));
}
