// SPDX-License-Identifier: Apache-2.0
/*
 * Activations held between forward and backward, by the tiers of memory.h.
 *
 * The offloaded fields of a layer are in one of two slots (rows.h). Forward
 * copies the fields out while the next layer computes in the other slot. It
 * waits for the copies before another layer writes to the slot. Backward copies
 * the fields of layer l - 1 back while it computes layer l.
 */
#include "train/base/error.h"
#include "train/model/model_inner.h"

#include <stdlib.h>

/* Indices of expert_rows.stored. */
enum { STORED_HIDDEN, STORED_ACT, STORED_ROWS, STORED_OUT };

bool model_is_kept(const struct model *m, size_t l)
{
    for (int module = 0; module < MEMORY_MODULES; module++)
        if (m->memory.tier[l][module] != MEMORY_KEEP)
            return false;
    return true;
}

/* --- counted memory ------------------------------------------------------------ */

/* Drop hidden rows of some other layer or micro-batch. Returns false if there
 * are none. */
static bool give_way(struct model *m, const struct expert_rows *for_rows)
{
    for (size_t l = 0; l < m->c.layers; l++)
        for (size_t i = 0; i < m->nmicro; i++) {
            struct expert_rows *r = &m->micro[i].experts[l];
            if (r == for_rows || (!r->hidden && !r->act) || r->dropped ||
                r->stored[STORED_HIDDEN].under_way ||
                r->stored[STORED_ACT].under_way)
                continue;
            model_give_experts(m, r);
            r->dropped = true;
            m->activations.dropped++;
            return true;
        }
    return false;
}

int model_take(struct model *m, const struct expert_rows *for_rows,
               size_t bytes)
{
    const size_t budget = m->memory.budget;

    while (budget && m->activations.now + bytes > budget)
        if (!give_way(m, for_rows))
            return train_error(
                "the routing needs %zu bytes of activations, which is more "
                "than --activation-budget %zu: give more, balance the experts "
                "(--balanced), or bound their rows by --capacity-factor",
                m->activations.now + bytes, budget);
    memory_add(&m->activations, bytes);
    return 0;
}

void model_give(struct model *m, size_t bytes)
{
    memory_sub(&m->activations, bytes);
}

int model_take_rows(struct model *m, const struct expert_rows *for_rows,
                    size_t rows, size_t width, float **to)
{
    const size_t bytes = rows * width * sizeof(float);
    struct memory_count *count = &m->activations;

    if (model_take(m, for_rows, bytes))
        return -1;
    *to = malloc(bytes ? bytes : 1);
    if (!*to) {
        model_give(m, bytes);
        return train_error("out of memory: %zu rows were routed to this rank's "
                           "experts; set --capacity-factor to bound them, or "
                           "--recompute-above",
                           rows);
    }
    count->experts += bytes;
    if (count->experts > count->experts_peak)
        count->experts_peak = count->experts;
    return 0;
}

void model_give_rows(struct model *m, float **rows, size_t bytes)
{
    if (!*rows)
        return;
    free(*rows);
    *rows = NULL;
    model_give(m, bytes);
    m->activations.experts -= bytes;
}

void model_give_experts(struct model *m, struct expert_rows *r)
{
    const size_t act = r->held * m->c.expert_hidden * sizeof(float);

    model_give_rows(m, &r->hidden, 2 * act);
    model_give_rows(m, &r->act, act);
}

int model_planned(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];

    /* The buffers are allocated already, but not used until now. */
    const size_t rows = r->at.waves > 1 ? r->at.most : r->at.total;
    const size_t bytes =
        rows * memory_plan_row(m->c.dim, r->at.waves > 1) * sizeof(float);
    if (model_take(m, r, bytes))
        return -1;
    r->planned = bytes;
    return 0;
}

void model_unplan(struct model *m, struct micro_batch *b, size_t l)
{
    m->exchange->ops->release(m->exchange, model_routing(m, b, l));
    model_give(m, b->experts[l].planned);
    b->experts[l].planned = 0;
}

/* --- a layer's fields ------------------------------------------------------------ */

/* The i-th of a layer's fields that are offloaded. */
static struct offloaded *stored(struct micro_batch *b, size_t l, size_t i)
{
    return &b->stored[l * ROWS_FIELDS + i];
}

/* List all fields of a layer that are offloaded. */
static size_t offloaded_parts(const struct model *m, struct micro_batch *b,
                              size_t l, struct rows_part *parts)
{
    size_t n = 0;

    for (int module = 0; module < MEMORY_MODULES; module++)
        if (m->memory.tier[l][module] == MEMORY_OFFLOAD)
            n += rows_parts(&m->c, l, tensor_ranks(&m->tensor),
                            (enum memory_module)module, &b->rows.act[l], b->R,
                            parts + n);
    return n;
}

int model_leave(struct model *m, struct micro_batch *b, size_t l)
{
    struct rows_part parts[ROWS_FIELDS];

    if (m->forward_only || !m->offload)
        return 0;
    const size_t n = offloaded_parts(m, b, l, parts);
    for (size_t i = 0; i < n; i++) {
        if (offload_out(m->offload, parts[i].data, parts[i].bytes,
                        stored(b, l, i)))
            return -1;
        m->activations.offloaded += parts[i].bytes;
    }
    return 0;
}

static int wait_for_layer(struct model *m, struct micro_batch *b, size_t l)
{
    for (size_t i = 0; m->offload && i < ROWS_FIELDS; i++)
        if (offload_wait(m->offload, stored(b, l, i)))
            return -1;
    return 0;
}

int model_before_output(struct model *m, struct micro_batch *b, size_t l)
{
    return l ? wait_for_layer(m, b, l - 1) : 0;
}

int model_fetch(struct model *m, struct micro_batch *b, size_t l)
{
    struct rows_part parts[ROWS_FIELDS];

    if (!m->offload)
        return 0;
    const size_t n = offloaded_parts(m, b, l, parts);
    for (size_t i = 0; i < n; i++)
        if (offload_in(m->offload, parts[i].data, stored(b, l, i)))
            return -1;
    return 0;
}

int model_fetched(struct model *m, struct micro_batch *b, size_t l)
{
    return wait_for_layer(m, b, l);
}

/* --- rows of experts --------------------------------------------------------------- */

/* Start to offload an array of rows. */
static int out(struct model *m, const float *from, size_t floats,
               struct offloaded *to)
{
    const size_t bytes = floats * sizeof(float);

    m->activations.offloaded += bytes;
    return offload_out(m->offload, from, bytes, to);
}

int model_experts_out(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];
    const size_t n = r->at.total, D = m->c.dim, F = m->c.expert_hidden;

    if (m->forward_only || !m->offload)
        return 0;
    if (model_tier(m, l, MEMORY_EXPERT) == MEMORY_OFFLOAD && r->hidden &&
        out(m, r->hidden, n * 2 * F, &r->stored[STORED_HIDDEN]))
        return -1;
    if (model_tier(m, l, MEMORY_ACTIVATION) == MEMORY_OFFLOAD && r->act &&
        out(m, r->act, n * F, &r->stored[STORED_ACT]))
        return -1;
    return model_tier(m, l, MEMORY_ROWS) == MEMORY_OFFLOAD &&
                   (out(m, r->at.rows, n * D, &r->stored[STORED_ROWS]) ||
                    out(m, r->at.out, n * D, &r->stored[STORED_OUT]))
               ? -1
               : 0;
}

int model_experts_left(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];
    const size_t act = r->held * m->c.expert_hidden * sizeof(float);

    for (int i = 0; m->offload && i < EXPERT_STORED; i++)
        if (offload_wait(m->offload, &r->stored[i]))
            return -1;
    if (model_tier(m, l, MEMORY_EXPERT) == MEMORY_OFFLOAD)
        model_give_rows(m, &r->hidden, 2 * act);
    if (model_tier(m, l, MEMORY_ACTIVATION) == MEMORY_OFFLOAD)
        model_give_rows(m, &r->act, act);
    if (m->forward_only || model_tier(m, l, MEMORY_ROWS) != MEMORY_KEEP)
        model_unplan(m, b, l);
    return 0;
}

/* Copy offloaded rows back, and wait for the copy. */
static int in(struct model *m, float *to, struct offloaded *from)
{
    return offload_in(m->offload, to, from) || offload_wait(m->offload, from)
               ? -1
               : 0;
}

int model_hidden_back(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];
    const size_t F = m->c.expert_hidden;

    if (r->dropped)
        return 0;
    if (!r->hidden && model_tier(m, l, MEMORY_EXPERT) == MEMORY_OFFLOAD &&
        (model_take_rows(m, r, r->held, 2 * F, &r->hidden) ||
         in(m, r->hidden, &r->stored[STORED_HIDDEN])))
        return -1;
    return !r->act && model_tier(m, l, MEMORY_ACTIVATION) == MEMORY_OFFLOAD &&
                   (model_take_rows(m, r, r->held, F, &r->act) ||
                    in(m, r->act, &r->stored[STORED_ACT]))
               ? -1
               : 0;
}

int model_rows_back(struct model *m, struct micro_batch *b, size_t l)
{
    struct expert_rows *r = &b->experts[l];

    return in(m, r->at.rows, &r->stored[STORED_ROWS]) ||
                   in(m, r->at.out, &r->stored[STORED_OUT])
               ? -1
               : 0;
}
