// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange by libshunt. All routings use one shunt_moe, unless layers have
 * placements of their own; then each layer has one. Layers that take turns
 * nevertheless share one shunt_moe, and change its placement from plan to plan.
 * The reason is that a shunt_moe keeps the memory of a released plan for its
 * next plan. Each active routing has one plan.
 *
 * With f32 rows the experts compute in the library's own buffers. With bf16
 * rows these buffers hold the rows that are sent, and the model computes in f32
 * copies of them.
 */
#include "train/exchange/exchange_shunt.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 4 }; /* rows, out, dout, drows, as enum shunt_moe_buffer */

/* A wave of a routing, and where its rows are. plays[i] is the library's buffer
 * that serves as buffer i. In a plan of one wave the rows' gradients
 * (SHUNT_MOE_DROWS) later overwrite the experts' output (SHUNT_MOE_OUT). With
 * several waves the two have separate buffers, because rows of another wave may
 * arrive in the output's buffer. */
struct wave {
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    int number;
    enum shunt_moe_buffer plays[BUFFERS];
};

/* A call under way. */
struct under_way {
    struct shunt_request *request;
    enum exchange_call call;
    struct wave wave;
    /* the buffer that receives the result, if `to` is NULL */
    enum shunt_moe_buffer arrives;
    float *to; /* array of tokens that receives the result; NULL: the buffer
                  `arrives` */
};

/* f32 copies of bf16 rows, for up to `rows` rows. */
struct copies {
    float *f32[BUFFERS];
    size_t rows;
};

struct routing {
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct wave wave;             /* the current wave */
    struct under_way call, ahead; /* a call under way, and an ahead() beside
                                     that call */
    uint16_t *tokens;      /* bf16: (tokens, D) the tokens' rows, as sent or
                              received */
    struct copies *copies; /* shared by routings that take turns */
    bool out_there;        /* bf16: the library's buffer has the experts' output
                              already */
};

struct shunt_exchange {
    struct exchange base;
    struct team *team;
    struct shunt_moe **moe; /* (moes) */
    size_t moes;
    size_t D, K, routings;
    size_t max_rows;
    bool in_order; /* waves are in order (exchange.h) */
    int bf16;
    bool overlap;
    struct routing *routing;
    struct copies *copies; /* (routings), some of which may be unused */
    struct exchange_hooks hooks;
};

/* Names for error texts. */
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

/* The library's buffer that serves as buffer `which` of a wave. */
static void *buffer(const struct wave *w, enum shunt_moe_buffer which)
{
    return shunt_moe_buffer(w->plan, w->plays[which]);
}

static int reserve(struct shunt_exchange *s, struct routing *r, size_t rows)
{
    struct copies *c = r->copies;

    if (rows <= c->rows)
        return 0;
    c->rows = rows + rows / 4;
    for (int i = 0; i < BUFFERS; i++) {
        free(c->f32[i]);
        c->f32[i] = malloc(c->rows * s->D * sizeof(float));
        if (!c->f32[i])
            c->rows = 0;
    }
    return c->rows ? 0 : train_error("out of memory for %zu rows", rows);
}

static struct wave wave_of(const struct routing *r, int number)
{
    struct wave w = {
        .plan = shunt_moe_plan_wave(r->plan, number),
        .number = number,
        .plays = {SHUNT_MOE_ROWS, SHUNT_MOE_OUT, SHUNT_MOE_DOUT, SHUNT_MOE_OUT},
    };

    shunt_moe_plan_rows(w.plan, &w.rows, sizeof(w.rows));
    if (shunt_moe_plan_wave(r->plan, 1)) /* there are several waves */
        w.plays[SHUNT_MOE_DROWS] = SHUNT_MOE_DROWS;
    return w;
}

/* Make `w` the current wave. */
static void enter(struct shunt_exchange *s, struct routing *r,
                  const struct wave *w, struct exchange_rows *rows)
{
    float *at[BUFFERS];

    for (int i = 0; i < BUFFERS; i++)
        at[i] = s->bf16 ? r->copies->f32[w->plays[i]]
                        : buffer(w, (enum shunt_moe_buffer)i);
    r->wave = *w;
    r->out_there = false;
    rows->count = w->rows.count;
    rows->offset = w->rows.offset;
    rows->total = w->rows.total;
    rows->rows = at[SHUNT_MOE_ROWS];
    rows->out = at[SHUNT_MOE_OUT];
    rows->dout = at[SHUNT_MOE_DOUT];
    rows->drows = at[SHUNT_MOE_DROWS];
    rows->wave = w->number;
}

static int plan(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, bool again,
                struct exchange_rows *rows)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    struct shunt_moe_rows whole;

    options.max_rows = s->max_rows;
    options.in_order = s->in_order;
    if (s->hooks.planning &&
        s->hooks.planning(s->hooks.arg, routing, choice, tokens, again))
        return -1;
    if (team_check(s->team,
                   shunt_moe_plan_create_with(r->moe, choice, weight, tokens,
                                              &options, &r->plan),
                   "planning the exchange"))
        return -1;
    if (!again && s->hooks.planned &&
        s->hooks.planned(s->hooks.arg, routing, r->plan))
        return -1;
    shunt_moe_plan_rows(r->plan, &whole, sizeof(whole));
    s->base.traffic.dropped += whole.dropped;
    s->base.traffic.waves += (size_t)whole.waves - 1;
    *rows = (struct exchange_rows){
        .experts = (size_t)whole.local_experts,
        .expert = whole.expert,
        .waves = whole.waves,
    };
    for (int i = 0; i < whole.waves; i++) {
        const size_t total = wave_of(r, i).rows.total;

        rows->most = total > rows->most ? total : rows->most;
    }
    if (s->bf16 && reserve(s, r, rows->most))
        return -1;
    const struct wave begin = wave_of(r, again ? 0 : whole.waves - 1);
    r->call.wave = begin;
    enter(s, r, &begin, rows);
    return 0;
}

/* Offset of the wave's tokens in an array of `width` numbers for each token. */
static size_t first(const struct wave *w, size_t width)
{
    return w->rows.first_token * width;
}

/* The bf16 rows of the wave's tokens. */
static uint16_t *tokens_of(const struct shunt_exchange *s,
                           const struct routing *r, const struct wave *w)
{
    return r->tokens + first(w, s->D);
}

/* The tokens' rows in the library's format: converted to bf16, or as they
 * are. */
static const void *tokens_out(struct shunt_exchange *s, const struct routing *r,
                              const struct wave *w, const float *rows)
{
    if (!s->bf16)
        return rows + first(w, s->D);
    shunti_elementwise()->to_bf16(w->rows.tokens * s->D, rows + first(w, s->D),
                                  tokens_of(s, r, w));
    return tokens_of(s, r, w);
}

/* Convert rows from the f32 copy to the library's bf16 buffer, and back. */
static void rows_out(struct shunt_exchange *s, const struct routing *r,
                     enum shunt_moe_buffer which)
{
    const struct wave *w = &r->wave;

    if (s->bf16 && w->rows.total)
        shunti_elementwise()->to_bf16(w->rows.total * s->D,
                                      r->copies->f32[w->plays[which]],
                                      buffer(w, which));
}

static void rows_in(struct shunt_exchange *s, const struct routing *r,
                    const struct under_way *u)
{
    const struct wave *w = &u->wave;

    if (s->bf16 && w->rows.total)
        shunti_elementwise()->from_bf16(w->rows.total * s->D,
                                        buffer(w, u->arrives),
                                        r->copies->f32[w->plays[u->arrives]]);
}

/* Record a call that was started at time `began`, and where its result will
 * arrive. Without overlap, wait for the call. */
static int started(struct shunt_exchange *s, struct under_way *u,
                   const struct wave *w, double began, enum shunt_status status,
                   enum exchange_call call, enum shunt_moe_buffer arrives,
                   float *to)
{
    u->call = call;
    u->wave = *w;
    u->arrives = arrives;
    u->to = to;
    if (!status && !s->overlap)
        status = shunt_wait(&u->request);
    s->base.traffic.seconds[call] += clock_now() - began;
    return team_check(s->team, status, names[call]);
}

static int dispatch(struct shunt_exchange *s, const struct routing *r,
                    const struct wave *w, const float *from,
                    struct under_way *u)
{
    const void *tokens = tokens_out(s, r, w, from);
    const double began = clock_now();

    s->base.traffic.rows += w->rows.network_rows;
    s->base.traffic.plain += w->rows.network_rows_plain;
    return started(s, u, w, began,
                   shunt_moe_dispatch_start(w->plan, tokens,
                                            buffer(w, SHUNT_MOE_ROWS),
                                            w->rows.total, &u->request),
                   EXCHANGE_DISPATCH, SHUNT_MOE_ROWS, NULL);
}

static int dispatch_start(struct exchange *x, size_t routing, const float *from)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];

    return dispatch(s, r, &r->wave, from, &r->call);
}

static void swap(struct wave *w, enum shunt_moe_buffer a,
                 enum shunt_moe_buffer b)
{
    const enum shunt_moe_buffer was = w->plays[a];

    w->plays[a] = w->plays[b];
    w->plays[b] = was;
}

static int ahead(struct exchange *x, size_t routing, int number,
                 const float *from, enum exchange_spare into)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    struct wave w = wave_of(r, number);

    memcpy(w.plays, r->wave.plays, sizeof(w.plays));
    if (into == EXCHANGE_INTO_DOUT) {
        swap(&w, SHUNT_MOE_ROWS, SHUNT_MOE_DOUT);
        swap(&w, SHUNT_MOE_OUT, SHUNT_MOE_DROWS);
    } else {
        swap(&w, SHUNT_MOE_ROWS, SHUNT_MOE_OUT);
    }
    return dispatch(s, r, &w, from, &r->ahead);
}

static int combine_start(struct exchange *x, size_t routing, float *y)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const struct wave *w = &r->wave;
    float *to = y + first(w, s->D);
    double began;

    rows_out(s, r, SHUNT_MOE_OUT);
    r->out_there = true;
    began = clock_now();
    return started(
        s, &r->call, w, began,
        shunt_moe_combine_start(w->plan, buffer(w, SHUNT_MOE_OUT), NULL,
                                s->bf16 ? (void *)tokens_of(s, r, w) : to,
                                &r->call.request),
        EXCHANGE_COMBINE, SHUNT_MOE_OUT, to);
}

static int combine_backward_start(struct exchange *x, size_t routing,
                                  const float *dy, float *dweight)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const struct wave *w = &r->wave;
    const void *tokens = tokens_out(s, r, w, dy);
    double began;

    /* This wave, or this plan, was made again and had no combine. So the
     * library's buffer does not have the output yet. */
    if (!r->out_there)
        rows_out(s, r, SHUNT_MOE_OUT);
    began = clock_now();
    return started(s, &r->call, w, began,
                   shunt_moe_combine_backward_start(
                       w->plan, tokens, buffer(w, SHUNT_MOE_OUT),
                       buffer(w, SHUNT_MOE_DOUT), w->rows.total,
                       dweight + first(w, s->K), &r->call.request),
                   EXCHANGE_COMBINE_BACKWARD, SHUNT_MOE_DOUT, NULL);
}

static int dispatch_backward_start(struct exchange *x, size_t routing,
                                   float *dx)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const struct wave *w = &r->wave;
    float *to = dx + first(w, s->D);
    double began;

    rows_out(s, r, SHUNT_MOE_DROWS);
    began = clock_now();
    return started(s, &r->call, w, began,
                   shunt_moe_dispatch_backward_start(
                       w->plan, buffer(w, SHUNT_MOE_DROWS),
                       s->bf16 ? (void *)tokens_of(s, r, w) : to,
                       &r->call.request),
                   EXCHANGE_DISPATCH_BACKWARD, SHUNT_MOE_DROWS, to);
}

static int finish(struct shunt_exchange *s, size_t routing, struct under_way *u)
{
    const struct routing *r = &s->routing[routing];
    const double began = clock_now();

    if (u->request &&
        team_check(s->team, shunt_wait(&u->request), names[u->call]))
        return -1;
    s->base.traffic.seconds[u->call] += clock_now() - began;
    if (s->hooks.arrived && s->hooks.arrived(s->hooks.arg, routing, u->call))
        return -1;
    if (!u->to)
        rows_in(s, r, u);
    else if (s->bf16)
        shunti_elementwise()->from_bf16(u->wave.rows.tokens * s->D,
                                        tokens_of(s, r, &u->wave), u->to);
    return 0;
}

static int wait_for(struct exchange *x, size_t routing)
{
    return finish(self(x), routing, &self(x)->routing[routing].call);
}

static int advance(struct exchange *x, size_t routing,
                   struct exchange_rows *rows)
{
    struct shunt_exchange *s = self(x);
    struct routing *r = &s->routing[routing];

    if (finish(s, routing, &r->ahead))
        return -1;
    enter(s, r, &r->ahead.wave, rows);
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
        for (int which = 0; s->copies && which < BUFFERS; which++)
            free(s->copies[i].f32[which]);
    }
    free(s->routing);
    free(s->copies);
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

    return s->routing[l].moe;
}

struct shunt_moe_plan *exchange_shunt_plan(const struct exchange *exchange,
                                           size_t routing)
{
    const struct shunt_exchange *s = (const struct shunt_exchange *)exchange;

    return s->routing[routing].plan;
}

struct shunt_moe_plan *exchange_shunt_wave(const struct exchange *exchange,
                                           size_t routing)
{
    const struct shunt_exchange *s = (const struct shunt_exchange *)exchange;

    return s->routing[routing].wave.plan;
}

static const struct exchange_ops ops = {
    .memory = memory,
    .plan = plan,
    .ahead = ahead,
    .advance = advance,
    .dispatch_start = dispatch_start,
    .combine_start = combine_start,
    .combine_backward_start = combine_backward_start,
    .dispatch_backward_start = dispatch_backward_start,
    .wait = wait_for,
    .release = release,
    .set_overlap = set_overlap,
    .destroy = destroy,
};

/* Each micro-batch may have a call under way, so each has its own part of
 * `tokens`. A single micro-batch uses all of `tokens`. */
static void share_tokens(struct shunt_exchange *s,
                         const struct exchange_config *config, size_t layers,
                         uint16_t *tokens)
{
    const size_t each = config->max_tokens / config->micro_batches * s->D;

    for (size_t i = 0; tokens && i < s->routings; i++)
        s->routing[i].tokens = tokens + i / layers * each;
}

/* The first layer that takes turns with `layer`, or `layer` itself. */
static size_t first_in_turn(const struct exchange_config *config, size_t layer)
{
    size_t first = layer;

    for (size_t l = layer; config->turns && config->turns[layer] && l-- > 0;)
        first = config->turns[l] ? l : first;
    return first;
}

/* Create the shunt_moe's, and set the shunt_moe and the copies of each routing,
 * which routings may share. 0, or -1 with train_error_text(). */
static int set_up(struct shunt_exchange *s,
                  const struct exchange_config *config,
                  struct shunt_moe_config *c, size_t layers)
{
    for (size_t l = 0; l < layers; l++) {
        const size_t first = first_in_turn(config, l);
        const size_t other = config->apart ? first : 0;

        for (size_t i = l; i < s->routings; i += layers)
            s->routing[i].copies = &s->copies[i - l + first];
        if (other == l &&
            team_check(s->team,
                       shunt_moe_create(s->team->comm, c, &s->moe[s->moes]),
                       "setting up the exchange"))
            return -1;
        s->moes += other == l;
        for (size_t i = l; i < s->routings; i += layers)
            s->routing[i].moe =
                other == l ? s->moe[s->moes - 1] : s->routing[other].moe;
    }
    return 0;
}

int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange)
{
    const size_t layers = model_moe_layers(model);
    const size_t plans =
        config->apart ? config->micro_batches : layers * config->micro_batches;
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;
    struct shunt_exchange *s = calloc(1, sizeof(*s));

    if (!s)
        return train_error("out of memory");
    s->base.ops = &ops;
    s->team = team;
    s->D = model->dim;
    s->K = model->topk;
    s->max_rows = config->max_rows;
    s->in_order = config->in_order;
    s->routings = layers * config->micro_batches;
    s->bf16 = config->bf16;
    s->overlap = config->overlap;
    s->routing = calloc(s->routings, sizeof(*s->routing));
    s->copies = calloc(s->routings, sizeof(*s->copies));
    s->moe = calloc(layers, sizeof(*s->moe));
    if (!s->routing || !s->copies || !s->moe) {
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
    c.plans_in_flight = plans > 2 ? (int)plans : 2;
    c.capacity_factor = config->capacity_factor;
    c.drop = config->drop_by_weight ? SHUNT_MOE_DROP_WEIGHT
                                    : SHUNT_MOE_DROP_POSITION;
    c.tree_ranks = config->tree_ranks;
    c.tree_nodes = config->tree_nodes;
    c.leaf_rows = config->leaf_rows;
    void *tokens = NULL;
    if (set_up(s, config, &c, layers) ||
        (s->bf16 &&
         team_memory(team, config->max_tokens * s->D * 2, &tokens))) {
        destroy(&s->base);
        return -1;
    }
    share_tokens(s, config, layers, tokens);
    *exchange = &s->base;
    return 0;
}
