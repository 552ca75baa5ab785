// SPDX-License-Identifier: Apache-2.0
/* The experts of a layer; see model_experts.h. */
#include "train/model_experts.h"

#include "train/clock.h"
#include "train/error.h"
#include "train/gradients.h"

#include <stdlib.h>

/* Room for `rows` of two widths; grows by a quarter more than asked for, since
 * routings differ from step to step. */
static int room(size_t rows, size_t *have, size_t wide, float **a,
                size_t narrow, float **b)
{
    if (rows <= *have)
        return 0;
    free(*a);
    free(*b);
    *have = rows + rows / 4;
    *a = malloc(*have * wide * sizeof(float));
    *b = malloc(*have * narrow * sizeof(float));
    if (*a && *b)
        return 0;
    *have = 0;
    return train_error("out of memory: %zu rows were routed to this rank's "
                       "experts; set --capacity-factor to bound them",
                       rows);
}

/* Experts may be asked to take some time, since `began`. */
static void take_time(const struct model *m, const struct expert_rows *r,
                      const struct spent *began)
{
    if (m->row_s > 0)
        clock_sleep_until(began->time + m->row_s * (double)r->at.total);
}

int model_experts_forward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    struct expert_rows *r = &b->experts[l];
    size_t D = m->c.dim, F = m->c.expert_hidden;
    struct spent t = clock_read();

    if (x->wait(m->exchange, model_routing(m, b, l)))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (room(r->at.total, &r->room, 2 * F, &r->hidden, F, &r->act))
        return -1;
    for (size_t e = 0; e < r->at.experts; e++) {
        const float *w = m->expert + model_expert_at(m, b, l, r->at.expert[e]);
        size_t row = r->at.offset[e];
        m->experts[e] = (struct expert){
            .N = r->at.count[e],
            .x = r->at.rows + row * D,
            .gate_up = w + m->layout.gate_up,
            .down = w + m->layout.down,
            .hidden = r->hidden + row * 2 * F,
            .act = r->act + row * F,
            .y = r->at.out + row * D,
        };
    }
    feed_forward_grouped(m->gemm, r->at.experts, D, F, m->experts, m->items);
    take_time(m, r, &t);
    clock_add(&m->times.experts, &t);

    if (x->combine_start(m->exchange, model_routing(m, b, l), b->rows.dtmp))
        return -1;
    clock_add(&m->times.exchange, &t);
    return 0;
}

int model_experts_backward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct expert_rows *r = &b->experts[l];
    size_t D = m->c.dim, F = m->c.expert_hidden;
    struct spent t = clock_read();

    if (!model_has_experts(&m->c, l))
        return 0;
    if (x->wait(m->exchange, model_routing(m, b, l)))
        return -1;
    clock_add(&m->times.exchange, &t);

    if (room(r->at.total, &m->dexpert_rows, 2 * F, &m->dhidden, F, &m->dact))
        return -1;
    for (size_t e = 0; e < r->at.experts; e++) {
        const float *w = m->expert + model_expert_at(m, b, l, r->at.expert[e]);
        size_t row = r->at.offset[e], N = r->at.count[e];
        float *dhidden = m->dhidden + row * 2 * F;

        feed_forward_backward_hidden(
            m->gemm, N, D, F, r->at.dout + row * D, w + m->layout.down,
            r->hidden + row * 2 * F, m->dact + row * F, dhidden);
        linear_backward_input(m->gemm, N, D, 2 * F, dhidden,
                              w + m->layout.gate_up, SHUNTI_GEMM_SET,
                              r->at.drows + row * D);
    }
    take_time(m, r, &t);
    clock_add(&m->times.experts, &t);
    if (x->dispatch_backward_start(m->exchange, model_routing(m, b, l),
                                   b->rows.dh))
        return -1;
    clock_add(&m->times.exchange, &t);
    if (m->gradients && m->gradients(m->gradients_arg, m, b, l))
        return -1;
    if (!m->gradients)
        gradients_at_once(m, b, l);
    take_time(m, r, &t);
    clock_add(&m->times.experts, &t);
    return 0;
}
