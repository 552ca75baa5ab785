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
                       "experts; set --max-rows or --capacity-factor to "
                       "bound them",
                       rows);
}

/* Experts may be asked to take some time, since `began`. */
static void take_time(const struct model *m, const struct expert_rows *r,
                      const struct spent *began)
{
    if (m->row_s > 0)
        clock_sleep_until(began->time + m->row_s * (double)r->at.total);
}

/* The rows of a wave, or of all, through the experts. */
static int compute(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];
    size_t D = m->c.dim, F = m->c.expert_hidden;
    const struct spent began = clock_read();

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
    take_time(m, r, &began);
    return 0;
}

/* The rows of another wave come, once the call under way is over. */
static int begin_wave(struct model *m, struct micro_batch *b, size_t l,
                      int wave)
{
    const struct exchange_ops *x = m->exchange->ops;
    const size_t routing = model_routing(m, b, l);

    return x->wait(m->exchange, routing) ||
                   x->wave(m->exchange, routing, wave, &b->experts[l].at) ||
                   x->dispatch_start(m->exchange, routing, b->rows.act[l].h2)
               ? -1
               : 0;
}

int model_experts_forward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const size_t routing = model_routing(m, b, l);
    struct spent t = clock_read();

    for (int w = 0;; w++) {
        if (x->wait(m->exchange, routing))
            return -1;
        clock_add(&m->times.exchange, &t);
        if (compute(m, b, l))
            return -1;
        clock_add(&m->times.experts, &t);
        if (x->combine_start(m->exchange, routing, b->rows.dtmp))
            return -1;
        if (w + 1 >= b->experts[l].at.waves)
            break;
        if (begin_wave(m, b, l, w + 1))
            return -1;
    }
    clock_add(&m->times.exchange, &t);
    return 0;
}

/* From dout of a wave, which is under way: its part of dh, on its way, and of the
 * experts' gradients. */
static int compute_backward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const struct expert_rows *r = &b->experts[l];
    size_t D = m->c.dim, F = m->c.expert_hidden;
    struct spent t = clock_read();

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

/*
 * The last wave first: its rows, and what the experts made of them, are still there.
 * Those of the others have lost their memory to it, so they come and are computed
 * again.
 */
int model_experts_backward(struct model *m, struct micro_batch *b, size_t l)
{
    const struct exchange_ops *x = m->exchange->ops;
    const size_t routing = model_routing(m, b, l);

    if (!model_has_experts(&m->c, l))
        return 0;
    for (int w = b->experts[l].at.waves - 1;; w--) {
        struct spent t;

        if (compute_backward(m, b, l))
            return -1;
        if (w <= 0)
            return 0;
        t = clock_read();
        if (begin_wave(m, b, l, w - 1) || x->wait(m->exchange, routing))
            return -1;
        clock_add(&m->times.exchange, &t);
        if (compute(m, b, l))
            return -1;
        clock_add(&m->times.experts, &t);
        if (x->combine_backward_start(m->exchange, routing, b->rows.dx,
                                      b->rows.dweight))
            return -1;
        clock_add(&m->times.exchange, &t);
    }
}
