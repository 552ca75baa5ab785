// SPDX-License-Identifier: Apache-2.0
/*
 * One shunt_moe for all layers, one plan for each active layer.
 *
 * With f32 rows the experts compute in the library's own buffers. With bf16
 * rows these buffers have the rows that are sent, and the model computes in f32
 * copies of them.
 */
#include "train/exchange_shunt.h"

#include "kernels/elementwise.h"
#include "train/error.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 4 }; /* rows, out, dout, drows: enum shunt_moe_buffer */

struct layer {
    struct shunt_moe_plan *plan;
    struct shunt_request *request; /* of the call under way */
    const char *call;              /* what it does, for errors */
    enum shunt_moe_buffer arrives; /* bf16: in this buffer, unless in `to` */
    float *to;                     /* of tokens; NULL: in a buffer of rows */
    struct shunt_moe_rows rows;
    float *f32[BUFFERS]; /* bf16: the copies, with room for `room` rows */
    size_t room;
};

struct shunt_exchange {
    struct exchange base;
    struct team *team;
    struct shunt_moe *moe;
    size_t D, layers;
    int bf16;
    bool overlap;
    uint16_t *tokens; /* bf16: (max_tokens, D), what tokens send or get */
    struct layer *layer;
    struct exchange_traffic traffic;
};

static struct shunt_exchange *self(struct exchange *x)
{
    return (struct shunt_exchange *)x;
}

void exchange_shunt_experts(size_t experts, int rank, int ranks, size_t *first,
                            size_t *count)
{
    /* Expert e is on rank e * ranks / experts: the library's own placement. */
    size_t n = (size_t)ranks, r = (size_t)rank;
    size_t end = ((r + 1) * experts + n - 1) / n;

    *first = (r * experts + n - 1) / n;
    *count = end - *first;
}

struct exchange_traffic *exchange_shunt_traffic(struct exchange *x)
{
    return &self(x)->traffic;
}

static float *memory(struct exchange *x, size_t floats)
{
    void *p = NULL;

    if (team_memory(self(x)->team, floats * sizeof(float), &p))
        return NULL;
    return p;
}

static void *buffer(const struct layer *l, int which)
{
    return shunt_moe_buffer(l->plan, (enum shunt_moe_buffer)which);
}

static int reserve(struct shunt_exchange *s, struct layer *l)
{
    if (l->rows.total <= l->room)
        return 0;
    l->room = l->rows.total + l->rows.total / 4;
    for (int i = 0; i < BUFFERS; i++) {
        free(l->f32[i]);
        l->f32[i] = malloc(l->room * s->D * sizeof(float));
        if (!l->f32[i])
            l->room = 0;
    }
    return l->room ? 0
                   : train_error("out of memory for %zu rows", l->rows.total);
}

static int plan(struct exchange *x, size_t layer, const int32_t *choice,
                const float *weight, size_t tokens, struct exchange_rows *rows)
{
    struct shunt_exchange *s = self(x);
    struct layer *l = &s->layer[layer];

    if (team_check(
            s->team,
            shunt_moe_plan_create(s->moe, choice, weight, tokens, &l->plan),
            "planning the exchange"))
        return -1;
    shunt_moe_plan_rows(l->plan, &l->rows, sizeof(l->rows));
    s->traffic.rows += l->rows.network_rows;
    s->traffic.plain += l->rows.network_rows_plain;
    s->traffic.dropped += l->rows.dropped;
    if (s->bf16 && reserve(s, l))
        return -1;
    float *at[BUFFERS];
    for (int i = 0; i < BUFFERS; i++)
        at[i] = s->bf16 ? l->f32[i] : buffer(l, i);
    *rows = (struct exchange_rows){
        (size_t)l->rows.local_experts,
        l->rows.expert,
        l->rows.count,
        l->rows.offset,
        l->rows.total,
        at[SHUNT_MOE_ROWS],
        at[SHUNT_MOE_OUT],
        at[SHUNT_MOE_DOUT],
        at[SHUNT_MOE_DROWS],
    };
    return 0;
}

/* The tokens' rows for the library: the same, or as bf16. */
static const void *tokens_out(struct shunt_exchange *s, const struct layer *l,
                              const float *rows)
{
    if (!s->bf16)
        return rows;
    shunti_elementwise()->to_bf16(l->rows.tokens * s->D, rows, s->tokens);
    return s->tokens;
}

/* Between the library's bf16 buffer and our f32 copy of it. */
static void rows_out(struct shunt_exchange *s, struct layer *l, int which)
{
    if (s->bf16 && l->rows.total)
        shunti_elementwise()->to_bf16(l->rows.total * s->D, l->f32[which],
                                      buffer(l, which));
}

static void rows_in(struct shunt_exchange *s, struct layer *l, int which)
{
    if (s->bf16 && l->rows.total)
        shunti_elementwise()->from_bf16(l->rows.total * s->D, buffer(l, which),
                                        l->f32[which]);
}

/* A call was started: remember where its result arrives. */
static int started(struct shunt_exchange *s, struct layer *l,
                   enum shunt_status status, const char *call,
                   enum shunt_moe_buffer arrives, float *to)
{
    l->call = call;
    l->arrives = arrives;
    l->to = to;
    if (team_check(s->team, status, call))
        return -1;
    return s->overlap ? 0 : team_check(s->team, shunt_wait(&l->request), call);
}

static int dispatch_start(struct exchange *x, size_t layer, const float *from)
{
    struct shunt_exchange *s = self(x);
    struct layer *l = &s->layer[layer];

    return started(s, l,
                   shunt_moe_dispatch_start(l->plan, tokens_out(s, l, from),
                                            buffer(l, SHUNT_MOE_ROWS),
                                            l->rows.total, &l->request),
                   "dispatch", SHUNT_MOE_ROWS, NULL);
}

static int combine_start(struct exchange *x, size_t layer, float *y)
{
    struct shunt_exchange *s = self(x);
    struct layer *l = &s->layer[layer];

    rows_out(s, l, SHUNT_MOE_OUT);
    return started(
        s, l,
        shunt_moe_combine_start(l->plan, buffer(l, SHUNT_MOE_OUT), NULL,
                                s->bf16 ? (void *)s->tokens : y, &l->request),
        "combine", SHUNT_MOE_OUT, y);
}

static int combine_backward_start(struct exchange *x, size_t layer,
                                  const float *dy, float *dweight)
{
    struct shunt_exchange *s = self(x);
    struct layer *l = &s->layer[layer];

    return started(s, l,
                   shunt_moe_combine_backward_start(
                       l->plan, tokens_out(s, l, dy), buffer(l, SHUNT_MOE_OUT),
                       buffer(l, SHUNT_MOE_DOUT), l->rows.total, dweight,
                       &l->request),
                   "combine backward", SHUNT_MOE_DOUT, NULL);
}

static int dispatch_backward_start(struct exchange *x, size_t layer, float *dx)
{
    struct shunt_exchange *s = self(x);
    struct layer *l = &s->layer[layer];

    rows_out(s, l, SHUNT_MOE_DROWS);
    return started(s, l,
                   shunt_moe_dispatch_backward_start(
                       l->plan, buffer(l, SHUNT_MOE_DROWS),
                       s->bf16 ? (void *)s->tokens : dx, &l->request),
                   "dispatch backward", SHUNT_MOE_DROWS, dx);
}

static int wait_for(struct exchange *x, size_t layer)
{
    struct shunt_exchange *s = self(x);
    struct layer *l = &s->layer[layer];

    if (l->request && team_check(s->team, shunt_wait(&l->request), l->call))
        return -1;
    if (!l->to)
        rows_in(s, l, (int)l->arrives);
    else if (s->bf16)
        shunti_elementwise()->from_bf16(l->rows.tokens * s->D, s->tokens,
                                        l->to);
    return 0;
}

static void release(struct exchange *x, size_t layer)
{
    struct layer *l = &self(x)->layer[layer];

    shunt_moe_plan_destroy(l->plan);
    l->plan = NULL;
}

static const struct exchange_ops ops = {
    .memory = memory,
    .plan = plan,
    .dispatch_start = dispatch_start,
    .combine_start = combine_start,
    .combine_backward_start = combine_backward_start,
    .dispatch_backward_start = dispatch_backward_start,
    .wait = wait_for,
    .release = release,
};

int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;
    struct shunt_exchange *s = calloc(1, sizeof(*s));

    if (!s)
        return train_error("out of memory");
    s->base.ops = &ops;
    s->team = team;
    s->D = model->dim;
    s->layers = model->layers;
    s->bf16 = config->bf16;
    s->overlap = config->overlap;
    s->layer = calloc(model->layers, sizeof(*s->layer));
    if (!s->layer) {
        exchange_shunt_destroy(&s->base);
        return train_error("out of memory");
    }

    c.hidden = model->dim;
    c.dtype = config->bf16 ? SHUNT_BF16 : SHUNT_F32;
    c.experts = (int)model->experts;
    c.topk = (int)model->topk;
    c.max_tokens = config->max_tokens;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    c.wire = config->fp8 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
    c.plans_in_flight = model->layers > 2 ? (int)model->layers : 2;
    c.capacity_factor = config->capacity_factor;
    c.drop = config->drop_by_weight ? SHUNT_MOE_DROP_WEIGHT
                                    : SHUNT_MOE_DROP_POSITION;
    c.tree_ranks = config->tree_ranks;
    c.tree_nodes = config->tree_nodes;
    void *tokens = NULL;
    if (team_check(team, shunt_moe_create(team->comm, &c, &s->moe),
                   "setting up the exchange") ||
        (s->bf16 &&
         team_memory(team, config->max_tokens * s->D * 2, &tokens))) {
        exchange_shunt_destroy(&s->base);
        return -1;
    }
    s->tokens = tokens;
    *exchange = &s->base;
    return 0;
}

void exchange_shunt_destroy(struct exchange *x)
{
    if (!x)
        return;
    struct shunt_exchange *s = self(x);
    for (size_t l = 0; s->layer && l < s->layers; l++) {
        shunt_moe_plan_destroy(s->layer[l].plan);
        for (int i = 0; i < BUFFERS; i++)
            free(s->layer[l].f32[i]);
    }
    free(s->layer);
    shunt_moe_destroy(s->moe);
    free(s);
}
