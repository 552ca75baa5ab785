// SPDX-License-Identifier: Apache-2.0
/*
 * One shunt_moe for all routings, or one for each layer's; one plan for each
 * active one.
 *
 * With f32 rows the experts compute in the library's own buffers. With bf16
 * rows these buffers have the rows that are sent, and the model computes in f32
 * copies of them.
 */
#include "train/exchange_shunt.h"

#include "kernels/elementwise.h"
#include "train/clock.h"
#include "train/error.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 4 }; /* rows, out, dout, drows: enum shunt_moe_buffer */

struct routing {
    struct shunt_moe_plan *plan, *wave; /* which the calls are about */
    struct shunt_request *request;      /* of the call under way */
    enum exchange_call call;            /* what it does */
    enum shunt_moe_buffer arrives; /* bf16: in this buffer, unless in `to` */
    float *to;                     /* of tokens; NULL: in a buffer of rows */
    uint16_t *tokens; /* bf16: (tokens, D), what tokens send or get */
    struct shunt_moe_rows rows;
    float *f32[BUFFERS]; /* bf16: the copies, with room for `room` rows */
    size_t room;
    bool out_there; /* bf16: the library's buffer has what the experts wrote */
};

struct shunt_exchange {
    struct exchange base;
    struct team *team;
    struct shunt_moe **moe;
    size_t moes; /* the i-th routing is of the (i % moes)-th */
    size_t D, K, routings;
    size_t max_rows;
    int bf16;
    bool overlap;
    struct routing *routing;
    struct exchange_hooks hooks;
};

/* For errors. */
static const char *const names[EXCHANGES] = {
    [EXCHANGE_DISPATCH] = "dispatch",
    [EXCHANGE_COMBINE] = "combine",
    [EXCHANGE_COMBINE_BACKWARD] = "combine backward",
    [EXCHANGE_DISPATCH_BACKWARD] = "dispatch backward",
};

static struct shunt_exchange *self(struct exchange *x)
{
    return (struct shunt_exchange *)x;
}

static void set_overlap(struct exchange *x, bool overlap)
{
    self(x)->overlap = overlap;
}

static float *memory(struct exchange *x, size_t floats)
{
    void *p = NULL;

    if (team_memory(self(x)->team, floats * sizeof(float), &p))
        return NULL;
    return p;
}

static void *buffer(const struct routing *r, int which)
{
    return shunt_moe_buffer(r->wave, (enum shunt_moe_buffer)which);
}

static int reserve(struct shunt_exchange *s, struct routing *r)
{
    if (r->rows.total <= r->room)
        return 0;
    r->room = r->rows.total + r->rows.total / 4;
    for (int i = 0; i < BUFFERS; i++) {
        free(r->f32[i]);
        r->f32[i] = malloc(r->room * s->D * sizeof(float));
        if (!r->f32[i])
            r->room = 0;
    }
    return r->room ? 0
                   : train_error("out of memory for %zu rows", r->rows.total);
}

static int wave(struct exchange *x, size_t routing, int number,
                struct exchange_rows *rows)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    struct shunt_moe_rows whole;

    r->wave = shunt_moe_plan_wave(r->plan, number);
    r->out_there = false;
    shunt_moe_plan_rows(r->plan, &whole, sizeof(whole));
    shunt_moe_plan_rows(r->wave, &r->rows, sizeof(r->rows));
    if (s->bf16 && reserve(s, r))
        return -1;
    float *at[BUFFERS];
    for (int i = 0; i < BUFFERS; i++)
        at[i] = s->bf16 ? r->f32[i] : buffer(r, i);
    *rows = (struct exchange_rows){
        (size_t)r->rows.local_experts,
        r->rows.expert,
        r->rows.count,
        r->rows.offset,
        r->rows.total,
        at[SHUNT_MOE_ROWS],
        at[SHUNT_MOE_OUT],
        at[SHUNT_MOE_DOUT],
        at[SHUNT_MOE_DROWS],
        whole.waves,
    };
    return 0;
}

static int plan(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, struct exchange_rows *rows)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    struct shunt_moe_rows whole;

    options.max_rows = s->max_rows;
    if (s->hooks.planning &&
        s->hooks.planning(s->hooks.arg, routing, choice, tokens))
        return -1;
    if (team_check(s->team,
                   shunt_moe_plan_create_with(s->moe[routing % s->moes], choice,
                                              weight, tokens, &options,
                                              &r->plan),
                   "planning the exchange"))
        return -1;
    if (s->hooks.planned && s->hooks.planned(s->hooks.arg, routing, r->plan))
        return -1;
    shunt_moe_plan_rows(r->plan, &whole, sizeof(whole));
    s->base.traffic.dropped += whole.dropped;
    return wave(x, routing, 0, rows);
}

/* Of an array of `width` numbers for each token: those of the wave's tokens. */
static size_t first(const struct routing *r, size_t width)
{
    return r->rows.first_token * width;
}

/* The tokens' rows for the library: the same, or as bf16. */
static const void *tokens_out(struct shunt_exchange *s, const struct routing *r,
                              const float *rows)
{
    if (!s->bf16)
        return rows + first(r, s->D);
    shunti_elementwise()->to_bf16(r->rows.tokens * s->D, rows + first(r, s->D),
                                  r->tokens);
    return r->tokens;
}

/* Between the library's bf16 buffer and our f32 copy of it. */
static void rows_out(struct shunt_exchange *s, struct routing *r, int which)
{
    if (s->bf16 && r->rows.total)
        shunti_elementwise()->to_bf16(r->rows.total * s->D, r->f32[which],
                                      buffer(r, which));
}

static void rows_in(struct shunt_exchange *s, struct routing *r, int which)
{
    if (s->bf16 && r->rows.total)
        shunti_elementwise()->from_bf16(r->rows.total * s->D, buffer(r, which),
                                        r->f32[which]);
}

/* A call was started at the time `began`: remember where its result arrives. */
static int started(struct shunt_exchange *s, struct routing *r, double began,
                   enum shunt_status status, enum exchange_call call,
                   enum shunt_moe_buffer arrives, float *to)
{
    r->call = call;
    r->arrives = arrives;
    r->to = to;
    if (!status && !s->overlap)
        status = shunt_wait(&r->request);
    s->base.traffic.seconds[call] += clock_now() - began;
    return team_check(s->team, status, names[call]);
}

static int dispatch_start(struct exchange *x, size_t routing, const float *from)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const void *tokens = tokens_out(s, r, from);
    const double began = clock_now();

    s->base.traffic.rows += r->rows.network_rows;
    s->base.traffic.plain += r->rows.network_rows_plain;
    return started(s, r, began,
                   shunt_moe_dispatch_start(r->wave, tokens,
                                            buffer(r, SHUNT_MOE_ROWS),
                                            r->rows.total, &r->request),
                   EXCHANGE_DISPATCH, SHUNT_MOE_ROWS, NULL);
}

static int combine_start(struct exchange *x, size_t routing, float *y)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    float *to = y + first(r, s->D);
    double began;

    rows_out(s, r, SHUNT_MOE_OUT);
    r->out_there = true;
    began = clock_now();
    return started(
        s, r, began,
        shunt_moe_combine_start(r->wave, buffer(r, SHUNT_MOE_OUT), NULL,
                                s->bf16 ? (void *)r->tokens : to, &r->request),
        EXCHANGE_COMBINE, SHUNT_MOE_OUT, to);
}

static int combine_backward_start(struct exchange *x, size_t routing,
                                  const float *dy, float *dweight)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const void *tokens = tokens_out(s, r, dy);
    double began;

    /* There was no combine of a wave, or a plan, that was made again. */
    if (!r->out_there)
        rows_out(s, r, SHUNT_MOE_OUT);
    began = clock_now();
    return started(s, r, began,
                   shunt_moe_combine_backward_start(
                       r->wave, tokens, buffer(r, SHUNT_MOE_OUT),
                       buffer(r, SHUNT_MOE_DOUT), r->rows.total,
                       dweight + first(r, s->K), &r->request),
                   EXCHANGE_COMBINE_BACKWARD, SHUNT_MOE_DOUT, NULL);
}

static int dispatch_backward_start(struct exchange *x, size_t routing,
                                   float *dx)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    float *to = dx + first(r, s->D);
    double began;

    rows_out(s, r, SHUNT_MOE_DROWS);
    began = clock_now();
    return started(s, r, began,
                   shunt_moe_dispatch_backward_start(
                       r->wave, buffer(r, SHUNT_MOE_DROWS),
                       s->bf16 ? (void *)r->tokens : to, &r->request),
                   EXCHANGE_DISPATCH_BACKWARD, SHUNT_MOE_DROWS, to);
}

static int wait_for(struct exchange *x, size_t routing)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();

    if (r->request &&
        team_check(s->team, shunt_wait(&r->request), names[r->call]))
        return -1;
    s->base.traffic.seconds[r->call] += clock_now() - began;
    if (s->hooks.arrived && s->hooks.arrived(s->hooks.arg, routing, r->call))
        return -1;
    if (!r->to)
        rows_in(s, r, (int)r->arrives);
    else if (s->bf16)
        shunti_elementwise()->from_bf16(r->rows.tokens * s->D, r->tokens,
                                        r->to);
    return 0;
}

static void release(struct exchange *x, size_t routing)
{
    struct routing *r = &self(x)->routing[routing];

    shunt_moe_plan_destroy(r->plan);
    r->plan = NULL;
}

static void destroy(struct exchange *x)
{
    struct shunt_exchange *s = self(x);

    for (size_t i = 0; s->routing && i < s->routings; i++) {
        shunt_moe_plan_destroy(s->routing[i].plan);
        for (int which = 0; which < BUFFERS; which++)
            free(s->routing[i].f32[which]);
    }
    free(s->routing);
    for (size_t i = 0; s->moe && i < s->moes; i++)
        shunt_moe_destroy(s->moe[i]);
    free(s->moe);
    free(s);
}

struct exchange_hooks exchange_shunt_hook(struct exchange *exchange,
                                          const struct exchange_hooks *hooks)
{
    const struct exchange_hooks before = self(exchange)->hooks;

    self(exchange)->hooks = *hooks;
    return before;
}

struct shunt_moe *exchange_shunt_moe(const struct exchange *exchange, size_t l)
{
    const struct shunt_exchange *s = (const struct shunt_exchange *)exchange;

    return s->moe[l % s->moes];
}

struct shunt_moe_plan *exchange_shunt_plan(const struct exchange *exchange,
                                           size_t routing)
{
    const struct shunt_exchange *s = (const struct shunt_exchange *)exchange;

    return s->routing[routing].plan;
}

static const struct exchange_ops ops = {
    .memory = memory,
    .plan = plan,
    .wave = wave,
    .dispatch_start = dispatch_start,
    .combine_start = combine_start,
    .combine_backward_start = combine_backward_start,
    .dispatch_backward_start = dispatch_backward_start,
    .wait = wait_for,
    .release = release,
    .set_overlap = set_overlap,
    .destroy = destroy,
};

/* A call of each micro-batch may be under way, and a lone one has all tokens. */
static void share_tokens(struct shunt_exchange *s,
                         const struct exchange_config *config, size_t layers,
                         uint16_t *tokens)
{
    const size_t each = config->max_tokens / config->micro_batches * s->D;

    for (size_t i = 0; tokens && i < s->routings; i++)
        s->routing[i].tokens = tokens + i / layers * each;
}

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
    s->K = model->topk;
    s->max_rows = config->max_rows;
    s->routings = model_moe_layers(model) * config->micro_batches;
    s->moes = config->apart ? model_moe_layers(model) : 1;
    s->bf16 = config->bf16;
    s->overlap = config->overlap;
    s->routing = calloc(s->routings, sizeof(*s->routing));
    s->moe = calloc(s->moes, sizeof(*s->moe));
    if (!s->routing || !s->moe) {
        destroy(&s->base);
        return train_error("out of memory");
    }

    c.hidden = model->dim;
    c.dtype = config->bf16 ? SHUNT_BF16 : SHUNT_F32;
    c.experts = (int)model->experts;
    c.topk = (int)model->topk;
    c.max_tokens = config->max_tokens;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    c.wire = config->fp8 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
    c.plans_in_flight =
        s->routings / s->moes > 2 ? (int)(s->routings / s->moes) : 2;
    c.capacity_factor = config->capacity_factor;
    c.drop = config->drop_by_weight ? SHUNT_MOE_DROP_WEIGHT
                                    : SHUNT_MOE_DROP_POSITION;
    c.tree_ranks = config->tree_ranks;
    c.tree_nodes = config->tree_nodes;
    c.leaf_rows = config->leaf_rows;
    void *tokens = NULL;
    int st = 0;
    for (size_t i = 0; !st && i < s->moes; i++)
        st = team_check(team, shunt_moe_create(team->comm, &c, &s->moe[i]),
                        "setting up the exchange");
    if (st || (s->bf16 &&
               team_memory(team, config->max_tokens * s->D * 2, &tokens))) {
        destroy(&s->base);
        return -1;
    }
    share_tokens(s, config, model_moe_layers(model), tokens);
    *exchange = &s->base;
    return 0;
}
