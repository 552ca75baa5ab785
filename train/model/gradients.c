// SPDX-License-Identifier: Apache-2.0
/* See gradients.h. */
#include "train/model/gradients.h"

/* The gradient has a single share, because rows are in the order of the batch,
 * whatever rank they are from. */
void gradients_add(struct model *m, const struct expert_rows *r,
                   const struct expert_part *p, const float *act,
                   float *gradient)
{
    const size_t D = m->c.dim, F = m->c.expert_hidden;

    feed_forward_backward_weights(
        m->gemm, p->N, D, F, r->at.dout + p->row * D, r->at.rows + p->row * D,
        act + p->at * F, m->dhidden + p->at * 2 * F,
        (struct grad){gradient + m->layout.gate_up, 0, 1},
        (struct grad){gradient + m->layout.down, 0, 1});
}

float *gradient_of(const struct model *m, const struct micro_batch *b, size_t l,
                   int32_t id)
{
    return m->expert_grad + model_expert_at(m, b, l, id);
}
