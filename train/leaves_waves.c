// SPDX-License-Identifier: Apache-2.0
/* See leaves_waves.h. */
#include "train/leaves_waves.h"

#include "train/error.h"
#include "train/gradients.h"

#include <shunt/shunt.h>

#include <stdlib.h>
#include <string.h>

void leaves_waves_end(struct leaves_waves *x)
{
    for (size_t e = 0; e < x->experts; e++)
        free(x->open[e].rows);
    free(x->open);
    memset(x, 0, sizeof(*x));
}

/* Room for the rows of a leaf. */
static int make_room(struct leaves_open *o, size_t rows, size_t D, size_t F)
{
    o->rows = malloc(rows * (2 * D + 3 * F) * sizeof(float));
    if (!o->rows)
        return train_error("out of memory for the rows of a leaf: take fewer "
                           "--leaf-rows");
    o->dout = o->rows + rows * D;
    o->act = o->dout + rows * D;
    o->dhidden = o->act + rows * F;
    return 0;
}

int leaves_waves_begin(struct leaves_waves *x, const struct model *m,
                       const struct shunt_moe_rows *plan, float *sums)
{
    const size_t experts = (size_t)plan->local_experts;
    const size_t n = m->layout.expert_size;

    leaves_waves_end(x);
    x->open = calloc(experts ? experts : 1, sizeof(*x->open));
    if (!x->open)
        return train_error("out of memory");
    x->experts = experts;
    for (size_t e = 0; e < experts; e++) {
        const struct shunt_moe_range *range = &plan->range[e];
        struct leaves_open *o = &x->open[e];

        if (!range->count)
            continue;
        if (make_room(o,
                      range->count < plan->leaf_rows ? (size_t)range->count
                                                     : plan->leaf_rows,
                      m->c.dim, m->c.expert_hidden))
            return -1;
        if (shunt_moe_tree_begin(&o->tree, range, plan->leaf_rows, sums, n))
            return train_error("gradients of experts: %s",
                               shunt_last_error(NULL));
        sums += shunt_moe_tree_room(range, plan->leaf_rows) * n;
        o->due = shunt_moe_tree_next(&o->tree, &o->leaf);
    }
    return 0;
}

/* Keep rows of the leaf that is open. */
static void keep(struct leaves_open *o, const struct model *m,
                 const struct expert_rows *r, const struct expert_part *p,
                 const float *act)
{
    const size_t D = m->c.dim, F = m->c.expert_hidden, at = o->held;

    memcpy(o->rows + at * D, r->at.rows + p->row * D, p->N * D * sizeof(float));
    memcpy(o->dout + at * D, r->at.dout + p->row * D, p->N * D * sizeof(float));
    memcpy(o->act + at * F, act + p->at * F, p->N * F * sizeof(float));
    memcpy(o->dhidden + at * 2 * F, m->dhidden + p->at * 2 * F,
           p->N * 2 * F * sizeof(float));
    o->held += p->N;
}

/* The gradient of the leaf, whose rows are those kept. */
static void make_kept(struct leaves_open *o, struct model *m)
{
    float *to = o->leaf.gradient;

    feed_forward_backward_weights(
        m->gemm, o->leaf.rows, m->c.dim, m->c.expert_hidden, o->dout, o->rows,
        o->act, o->dhidden, (struct grad){to + m->layout.gate_up, 0, 1},
        (struct grad){to + m->layout.down, 0, 1});
    o->held = 0;
}

void leaves_waves_add(struct leaves_waves *x, struct model *m,
                      const struct expert_rows *r,
                      const struct shunt_moe_rows *plan,
                      const struct shunt_moe_rows *wave,
                      const struct expert_part *part, const float *act)
{
    const size_t e = part->e;
    struct leaves_open *o = &x->open[e];
    /* Where the part begins and ends, of the expert's rows in all waves. */
    const size_t first = (size_t)(wave->range[e].first - plan->range[e].first) +
                         part->row - r->at.offset[e];
    const size_t end = first + part->N;

    while (o->due && o->leaf.row < end) {
        const size_t leaf_end = o->leaf.row + o->leaf.rows;
        const size_t from = o->leaf.row + o->held - first;
        const size_t to = (leaf_end < end ? leaf_end : end) - first;
        const struct expert_part p = {e, part->row + from, to - from,
                                      part->at + from};

        if (!o->held)
            memset(o->leaf.gradient, 0, o->tree.n * sizeof(float));
        if (p.N == o->leaf.rows) {
            gradients_add(m, r, &p, act, o->leaf.gradient);
        } else {
            keep(o, m, r, &p, act);
            if (o->held < o->leaf.rows)
                return;
            make_kept(o, m);
        }
        o->due = shunt_moe_tree_next(&o->tree, &o->leaf);
    }
}
