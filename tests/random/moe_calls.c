// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges and plans of a random program, and the four calls of a plan.
 * routing_model.c computes their right results.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/random/world.h"

/* --- exchanges --- */

void draw_placement(struct exchange *x, struct chance *c)
{
    struct shunt_moe_config *f = &x->config;
    const int size = x->group->size;

    free(x->placement);
    free(x->replicas);
    free(x->share);
    x->placement = NULL;
    x->replicas = NULL;
    x->share = NULL;
    f->share = NULL;
    f->placement = NULL;
    f->replicas = NULL;
    f->nreplicas = 0;
    if (one_in(c, 2)) {
        x->placement = need((size_t)f->experts * sizeof(*x->placement));
        for (int e = 0; e < f->experts; e++)
            x->placement[e] = below(c, size);
        f->placement = x->placement;
    }
    if (!one_in(c, 3) || size == 1)
        return;
    x->replicas = need((size_t)(f->experts * size) * sizeof(*x->replicas));
    for (int e = 0; e < f->experts; e++)
        for (int r = 0; r < size; r++) {
            int home = x->placement ? x->placement[e]
                                    : (int)((int64_t)e * size / f->experts);

            if (r != home && one_in(c, 4))
                x->replicas[f->nreplicas++] = (struct shunt_moe_replica){e, r};
        }
    f->replicas = f->nreplicas ? x->replicas : NULL;
    if (!f->nreplicas || f->pad_to_capacity || one_in(c, 3))
        return;
    x->share = need(((size_t)f->experts + f->nreplicas) * sizeof(*x->share));
    for (size_t i = 0; i < (size_t)f->experts + f->nreplicas; i++)
        x->share[i] = below(c, 4);
    f->share = x->share;
}

static void draw_tree(struct exchange *x, struct chance *c)
{
    struct shunt_moe_config *f = &x->config;

    f->tree_ranks = x->group->size * (1 + below(c, 3));
    if (one_in(c, 2))
        return;
    do
        f->tree_nodes = 1 + below(c, f->tree_ranks);
    while (f->tree_ranks % f->tree_nodes);
}

static enum shunt_moe_mode draw_mode(const struct group *g, struct chance *c)
{
    switch (below(c, 8)) {
    case 0:
        return SHUNT_MOE_FLAT;
    case 1:
        return g->mapped ? SHUNT_MOE_DIRECT : SHUNT_MOE_FLAT;
    case 2:
        return g->nodes > 1 ? SHUNT_MOE_TWO_LEVEL : SHUNT_MOE_AUTO;
    case 3:
        return g->nodes > 1 ? SHUNT_MOE_ALLGATHER : SHUNT_MOE_AUTO;
    default:
        return SHUNT_MOE_AUTO;
    }
}

static void draw_config(struct exchange *x, struct chance *c)
{
    struct shunt_moe_config *f = &x->config;

    *f = (struct shunt_moe_config)SHUNT_MOE_CONFIG_INIT;
    f->hidden = (size_t)PICK(c, 1, 3, 16, 33, 64, 128, 130, 257);
    f->dtype = one_in(c, 2) ? SHUNT_F32 : SHUNT_BF16;
    f->experts = 1 + below(c, 12);
    f->topk = 1 + below(c, 4);
    f->max_tokens = (size_t)PICK(c, 0, 1, 7, 20, 40);
    f->weights = one_in(c, 3) ? SHUNT_MOE_PLAIN_SUM : SHUNT_MOE_APPLY_WEIGHTS;
    f->wire = one_in(c, 4) ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
    f->row_align = (size_t)PICK(c, 0, 0, 1, 4, 7);
    f->plans_in_flight = PICK(c, 0, 3, 4);
    f->leaf_rows = (size_t)PICK(c, 0, 1, 2, 5);
    f->mode = draw_mode(x->group, c);
    if (one_in(c, 2))
        f->combine_mode = draw_mode(x->group, c);
    draw_placement(x, c);
    if (one_in(c, 3)) {
        f->capacity_factor = PICK(c, 50, 100, 125, 200, 0, -60, -300) / 100.0;
        f->drop =
            one_in(c, 2) ? SHUNT_MOE_DROP_WEIGHT : SHUNT_MOE_DROP_POSITION;
        f->pad_to_capacity = !f->share && one_in(c, 2);
    }
    if (one_in(c, 4))
        draw_tree(x, c);
    if (one_in(c, 2))
        f->order = SHUNT_MOE_ORDER_HOMES;
    x->integers = one_in(c, 3);
}

int make_exchange(struct world *w, struct group *g, uint64_t seed)
{
    struct exchange *x = &g->exchanges[g->nexchanges];
    struct chance c = {seed};

    *x = (struct exchange){.group = g};
    draw_config(x, &c);
    snprintf(w->doing, sizeof(w->doing), "moe_create");
    CHECK_OK(g->comm, shunt_moe_create(g->comm, &x->config, &x->moe));
    g->nexchanges++;
    return 0;
}

/* --- plans --- */

/* Returns a value that the payload type can hold, and that is not zero. */
static float value_of(const struct exchange *x, uint64_t seed, int rank,
                      size_t i)
{
    uint64_t h = hash(seed, (uint64_t)rank, i);
    float v;

    if (x->integers)
        v = (float)(1 + h % 4);
    else
        v = 0.25f + (float)(h % 65536) / 40000;
    return model_round(x->config.dtype, h >> 40 & 1 ? -v : v);
}

static float weight_of(const struct exchange *x, struct chance *c)
{
    if (x->integers)
        /* only three values, so that many are equal */
        return (float)(1 + below(c, 3));
    return 0.05f + (float)below(c, 1000) / 1000;
}

static void draw_routing(struct plan *p, struct chance *c)
{
    const struct exchange *x = p->exchange;
    const int size = x->group->size, experts = x->config.experts;
    const size_t k = (size_t)x->config.topk;
    const int style = below(c, 5), hot = below(c, experts);

    p->tokens = need((size_t)size * sizeof(*p->tokens));
    p->idx = need((size_t)size * sizeof(*p->idx));
    p->weight = need((size_t)size * sizeof(*p->weight));
    for (int r = 0; r < size; r++) {
        size_t n =
            one_in(c, 5) ? 0 : (size_t)below(c, (int)x->config.max_tokens + 1);

        p->tokens[r] = n;
        p->idx[r] = need(n * k * sizeof(**p->idx));
        p->weight[r] = one_in(c, 6) ? NULL : need(n * k * sizeof(**p->weight));
        for (size_t a = 0; a < n * k; a++) {
            p->idx[r][a] = below(c, experts);
            if (style == 0 && !one_in(c, 3))
                p->idx[r][a] = hot;
            if (style == 1 || one_in(c, 9))
                p->idx[r][a] = -1;
            if (p->weight[r])
                p->weight[r][a] = weight_of(x, c);
        }
    }
}

/* For a token, adds to *nodes the number of other nodes that it goes to, and to
 * *assignments the number of its assignments there. */
static void far_of(const struct plan *p, size_t token, size_t *nodes,
                   size_t *assignments)
{
    const struct group *g = p->exchange->group;
    const size_t k = (size_t)p->config.topk;
    bool has[MAX_RANKS] = {false};

    for (size_t j = 0; j < k; j++) {
        const struct model_slot *s = &p->model.of[g->rank][token * k + j];
        const int node = s->kept ? g->node[s->rank] : g->node[g->rank];

        *assignments += node != g->node[g->rank];
        *nodes += node != g->node[g->rank] && !has[node];
        has[node] = true;
    }
}

/* Check the number of rows that combine receives from other nodes. In two
 * levels that is one row for each token and node, or more if the order of the
 * sum needs it. */
static int home_right(struct world *w, const struct plan *p,
                      const struct shunt_moe_rows *in)
{
    const bool rails = in->combine_mode == SHUNT_MOE_TWO_LEVEL ||
                       in->combine_mode == SHUNT_MOE_ALLGATHER;
    size_t nodes = 0, assignments = 0;

    for (size_t t = 0; t < in->tokens; t++)
        far_of(p, t, &nodes, &assignments);
    CHECK(in->network_combine_rows <= assignments &&
              in->network_combine_rows >= (rails ? nodes : assignments),
          "%zu rows come home, of %zu tokens' nodes and %zu assignments",
          in->network_combine_rows, nodes, assignments);
    if (rails && p->config.order == SHUNT_MOE_ORDER_COPIES &&
        !p->config.tree_ranks)
        CHECK(in->network_combine_rows == nodes, "%zu rows come home, not %zu",
              in->network_combine_rows, nodes);
    if (rails)
        w->pieces += in->network_combine_rows - nodes;
    return 0;
}

static int rows_right(struct world *w, const struct plan *p,
                      const struct shunt_moe_plan *plan)
{
    const struct group *g = p->exchange->group;
    const struct model *m = &p->model;
    struct shunt_moe_rows in;
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    const int me = g->rank;
    size_t kept = 0, asked = 0;

    if (in.waves > 1 && m->config->share)
        return 0; /* each wave divides its own rows among the copies */
    CHECK_RUN(home_right(w, p, &in));
    CHECK(in.total == m->total[me], "%zu rows, not %zu", in.total,
          m->total[me]);
    CHECK(in.local_experts == m->local_experts[me], "%d experts, not %d",
          in.local_experts, m->local_experts[me]);
    for (int i = 0; i < in.local_experts; i++) {
        CHECK(in.expert[i] == m->expert[me][i], "expert %d", i);
        CHECK(in.count[i] == m->count[me][i], "expert %d: %zu rows, not %zu", i,
              in.count[i], m->count[me][i]);
        CHECK(in.offset[i] == m->offset[me][i], "expert %d at %zu, not %zu", i,
              in.offset[i], m->offset[me][i]);
    }
    for (size_t a = 0; a < p->tokens[me] * (size_t)m->config->topk; a++) {
        asked += p->idx[me][a] >= 0;
        kept += m->of[me][a].kept;
    }
    CHECK(in.tokens == p->tokens[me], "%zu tokens", in.tokens);
    CHECK(in.kept == kept, "%zu kept, not %zu", in.kept, kept);
    CHECK(in.dropped == asked - kept, "%zu dropped, not %zu", in.dropped,
          asked - kept);
    CHECK(in.mode != SHUNT_MOE_AUTO, "mode %d", (int)in.mode);
    CHECK(in.combine_mode != SHUNT_MOE_AUTO, "combine_mode %d",
          (int)in.combine_mode);
    if (m->config->combine_mode == SHUNT_MOE_FLAT)
        CHECK(in.combine_mode == SHUNT_MOE_FLAT, "combine_mode %d",
              (int)in.combine_mode);
    return 0;
}

void plan_forget(struct plan *p)
{
    const int size = p->exchange->group->size;

    model_finish(&p->model);
    for (int r = 0; r < size; r++) {
        free(p->idx[r]);
        free(p->weight[r]);
    }
    free(p->tokens);
    free(p->idx);
    free(p->weight);
    *p = (struct plan){0};
}

/* Draws a capacity for this plan, and a limit of rows at once. The limit is at
 * least as large as moe_waves.h requires. */
static void draw_options(struct plan *p, struct chance *c,
                         struct shunt_moe_plan_options *o)
{
    const struct shunt_moe_config *f = &p->exchange->config;
    const size_t shares = (size_t)(p->exchange->group->size *
                                   (f->pad_to_capacity ? f->experts : 1));
    const size_t align = f->row_align ? f->row_align : 1;

    *o = (struct shunt_moe_plan_options)SHUNT_MOE_PLAN_OPTIONS_INIT;
    o->parts = p->parts;
    p->config = *f;
    if (one_in(c, 4)) {
        p->config.capacity_factor = PICK(c, 0, 75, 150, -75, -500) / 100.0;
        o->capacity_factor = &p->config.capacity_factor;
    }
    if (one_in(c, 2))
        o->max_rows = shares * (size_t)f->topk +
                      (size_t)f->experts * (align - 1) + (size_t)below(c, 60);
    if (o->max_rows && f->share)
        o->max_rows += (size_t)f->experts * (f->leaf_rows ? f->leaf_rows : 64);
    o->in_order = !f->pad_to_capacity && !f->share && hash(p->seed, 9, 2) % 2;
}

/* From now on uses one wave of the plan in its place, with the wave's rows of
 * each rank. */
static int take_wave(struct world *w, struct plan *p, size_t max_rows)
{
    struct group *g = p->exchange->group;
    const size_t k = (size_t)p->config.topk;
    struct shunt_moe_rows in;
    uint64_t mine[2], all[2 * MAX_RANKS];

    shunt_moe_plan_rows(p->whole, &in, sizeof(in));
    p->plan =
        shunt_moe_plan_wave(p->whole, (int)(p->seed % (uint64_t)in.waves));
    if (p->plan == p->whole) {
        for (int r = 0; r < g->size; r++)
            CHECK(!max_rows || p->model.total[r] <= max_rows,
                  "%zu rows of rank %d, more than %zu", p->model.total[r], r,
                  max_rows);
        return 0;
    }
    shunt_moe_plan_rows(p->plan, &in, sizeof(in));
    CHECK(in.total <= max_rows, "%zu rows of %zu", in.total, max_rows);
    w->shared_waves += p->config.share != NULL;
    mine[0] = in.first_token;
    mine[1] = in.tokens;
    CHECK_OK(g->comm, shunt_allgather(g->comm, mine, all, 2, SHUNT_U64));
    for (int r = 0; r < g->size; r++) {
        const size_t from = (size_t)all[2 * r] * k;
        const size_t n = (size_t)all[2 * r + 1] * k;

        CHECK(from + n <= p->tokens[r] * k, "tokens of rank %d", r);
        for (size_t a = 0; a < n; a++) {
            p->idx[r][a] =
                p->model.of[r][from + a].kept ? p->idx[r][from + a] : -1;
            if (p->weight[r])
                p->weight[r][a] = p->weight[r][from + a];
        }
    }
    model_finish(&p->model);
    for (int r = 0; r < g->size; r++)
        p->tokens[r] = (size_t)all[2 * r + 1];
    /* rows above the capacity have already been dropped */
    p->config.capacity_factor = 0;
    model_init(&p->model, &p->config, g->size, g->node, p->tokens,
               (const int32_t **)p->idx, (const float **)p->weight);
    return rows_right(w, p, p->plan);
}

int make_plan(struct world *w, struct exchange *x, struct plan *p,
              uint64_t seed)
{
    struct shunt_moe_plan_options options;
    struct group *g = x->group;
    struct chance c = {seed};
    const int32_t *idx;
    const float *weight;

    *p = (struct plan){.exchange = x, .seed = seed, .parts = 1};
    if (hash(seed, 9, 0) % 2)
        p->parts = 2 + (int)(hash(seed, 9, 1) % (MAX_PARTS - 1));
    draw_routing(p, &c);
    idx = p->idx[g->rank];
    weight = p->weight[g->rank];
    draw_options(p, &c, &options);
    snprintf(w->doing, sizeof(w->doing), "plan_create");
    CHECK_OK(g->comm,
             shunt_moe_plan_create_with(x->moe, idx, weight, p->tokens[g->rank],
                                        &options, &p->whole));
    model_init(&p->model, &p->config, g->size, g->node, p->tokens,
               (const int32_t **)p->idx, (const float **)p->weight);
    CHECK_RUN(rows_right(w, p, p->whole));
    return take_wave(w, p, options.max_rows);
}

/* --- the calls of a plan --- */

static size_t element(const struct plan *p)
{
    return shunt_dtype_size(p->exchange->config.dtype);
}

static void store(const struct plan *p, void *at, size_t i, float v)
{
    put_number(at, i, p->exchange->config.dtype, (double)v, 0);
}

/* Returns one of the plan's own buffers, by any name, that no call has used
 * since the last drain; -1 if there is none. */
static int free_buffer(struct world *w, const struct plan *p)
{
    int names[4], n = 0;

    for (int i = 0; i < 4; i++)
        if (!p->used[i])
            names[n++] = i;
    return n ? names[below(&w->local, n)] : -1;
}

/* Returns a buffer of rows for the argument `which`: the plan's own, in a
 * window, or from malloc(). Only one request at a time may use each of them. */
static struct buffer *take_rows(struct world *w, struct op *op, struct plan *p,
                                enum shunt_moe_buffer which, size_t more)
{
    const size_t row = p->exchange->config.hidden * element(p);
    const size_t bytes = p->model.total[p->exchange->group->rank] * row;
    const int kind = below(&w->local, 3), own = free_buffer(w, p);
    struct group *g = p->exchange->group;

    if (kind == 1 && bytes && own >= 0) {
        struct buffer *b = &op->buffers[op->nbuffers++];

        p->used[own] = true;
        *b = (struct buffer){.bytes = bytes};
        b->at = shunt_moe_buffer(p->plan, (enum shunt_moe_buffer)own);
        if (!b->at)
            abort();
        memset(b->at, 0xa5, bytes);
        return b;
    }
    if (kind == 2 && !p->staged[which]) {
        p->staged[which] = true;
        g = NULL;
    }
    return take(w, op, bytes + more * row, element(p), g);
}

/* Returns a buffer (tokens, hidden) for this rank's tokens. With `fill`,
 * element i is value i of `seed`. */
static struct buffer *take_tokens(struct world *w, struct op *op,
                                  struct plan *p, uint64_t seed, bool fill)
{
    const int me = p->exchange->group->rank;
    const size_t n = p->tokens[me] * p->exchange->config.hidden;
    struct buffer *b = take_any(w, op, n * element(p), element(p));

    for (size_t i = 0; i < n && fill; i++)
        store(p, b->at, i, value_of(p->exchange, seed, me, i));
    return b;
}

/* Fills a buffer with this rank's rows. The value depends on the rank and the
 * element. Rows that no call may read are NaN. */
static void fill_rows(struct plan *p, struct buffer *b, uint64_t seed)
{
    const int me = p->exchange->group->rank;
    const size_t hidden = p->exchange->config.hidden;

    for (size_t r = 0; r < p->model.total[me]; r++)
        for (size_t h = 0; h < hidden; h++)
            store(p, b->at, r * hidden + h,
                  p->model.row[me][r].source < 0
                      ? NAN
                      : value_of(p->exchange, seed, me, r * hidden + h));
}

/* --- calls in parts --- */

/* The arguments of one of the four calls. */
struct arguments {
    void *tokens, *rows, *out, *bias;
    float *dweight;
    size_t room;
};

static enum shunt_status start_part(struct plan *p, int kind, int part,
                                    const struct arguments *a,
                                    struct shunt_request **request)
{
    switch (kind) {
    case DISPATCH:
        return shunt_moe_dispatch_part_start(p->plan, part, a->tokens, a->rows,
                                             a->room, request);
    case COMBINE:
        return shunt_moe_combine_part_start(p->plan, part, a->rows, a->bias,
                                            a->tokens, request);
    case COMBINE_BACKWARD:
        return shunt_moe_combine_backward_part_start(p->plan, part, a->tokens,
                                                     a->out, a->rows, a->room,
                                                     a->dweight, request);
    default:
        return shunt_moe_dispatch_backward_part_start(p->plan, part, a->rows,
                                                      a->tokens, request);
    }
}

/* Calls all parts in an order that the event decides. All are in progress at
 * once, unless the event is blocking. */
static enum shunt_status call_parts(struct plan *p, struct op *op,
                                    const struct event *e,
                                    const struct arguments *a)
{
    const int first = (int)(hash(e->seed, 8, 0) % (uint64_t)p->parts);
    const int step = hash(e->seed, 8, 1) % 2 ? 1 : p->parts - 1;
    enum shunt_status st = SHUNT_OK;

    for (int i = 0; i < p->parts && !st; i++) {
        struct shunt_request **request =
            i < p->parts - 1 ? &op->more[op->nmore++] : &op->request;

        st = start_part(p, e->kind, (first + i * step) % p->parts, a, request);
        if (!st && !e->start)
            st = shunt_wait(request);
    }
    return st;
}

static bool in_parts(const struct plan *p, const struct event *e)
{
    return p->parts > 1 && hash(e->seed, 8, 2) % 4;
}

static int do_dispatch(struct world *w, struct plan *p, const struct event *e)
{
    struct group *g = p->exchange->group;
    const size_t hidden = p->exchange->config.hidden;
    const size_t more = (size_t)below(&w->local, 3);
    struct op *op = new_op(w, g, "dispatch of plan %d, hidden %zu, dtype %d",
                           e->plan, hidden, (int)p->exchange->config.dtype);
    struct buffer *x = take_tokens(w, op, p, e->seed, true);
    struct buffer *rows = take_rows(w, op, p, SHUNT_MOE_ROWS, more);
    const size_t room = rows->bytes / (hidden * element(p));
    unsigned char *want = expects(rows, rows->bytes);
    float row[512];

    keeps(x);
    memset(want, 0xa5, rows->bytes);
    for (size_t r = 0; r < p->model.total[g->rank]; r++) {
        const struct model_row *from = &p->model.row[g->rank][r];

        for (size_t h = 0; h < hidden; h++)
            row[h] = from->source < 0
                         ? 0
                         : value_of(p->exchange, e->seed, from->source,
                                    from->token * hidden + h);
        if (from->source >= 0)
            model_wire(&p->model, row, row);
        for (size_t h = 0; h < hidden; h++)
            store(p, want, r * hidden + h, row[h]);
    }
    if (in_parts(p, e))
        return begun(w, op,
                     call_parts(p, op, e,
                                &(struct arguments){.tokens = x->at,
                                                    .rows = rows->at,
                                                    .room = room}));
    return begun(w, op,
                 e->start ? shunt_moe_dispatch_start(p->plan, x->at, rows->at,
                                                     room, &op->request)
                          : shunt_moe_dispatch(p->plan, x->at, rows->at, room));
}

/* The arguments of a function that returns one term of a token's sum. */
struct adding {
    const struct plan *plan;
    uint64_t seed;
    size_t token, h;
    bool weighted;
};

static float term(const void *arg, int slot)
{
    const struct adding *a = arg;
    const struct model *m = &a->plan->model;
    const int me = a->plan->exchange->group->rank;
    const struct model_slot *s =
        &m->of[me][a->token * (size_t)m->config->topk + (size_t)slot];
    float v = value_of(a->plan->exchange, a->seed, s->rank,
                       s->row * m->config->hidden + a->h);

    return a->weighted ? model_weight(m, me, a->token, slot) * v : v;
}

static void expect_sums(struct plan *p, struct buffer *y, uint64_t seed,
                        const struct buffer *bias, uint64_t bias_seed,
                        bool weighted)
{
    const int me = p->exchange->group->rank;
    const size_t hidden = p->exchange->config.hidden;
    unsigned char *want = expects(y, y->bytes);

    for (size_t t = 0; t < p->tokens[me]; t++) {
        for (size_t h = 0; h < hidden; h++) {
            struct adding a = {p, seed, t, h, weighted};
            float start = value_of(p->exchange, bias_seed, me, t * hidden + h);

            store(p, want, t * hidden + h,
                  model_sum(&p->model, me, t, bias ? &start : NULL, term, &a));
        }
    }
}

static int do_combine(struct world *w, struct plan *p, const struct event *e)
{
    struct group *g = p->exchange->group;
    const bool weighted =
        p->exchange->config.weights == SHUNT_MOE_APPLY_WEIGHTS;
    struct op *op =
        new_op(w, g, "combine of plan %d, hidden %zu, dtype %d", e->plan,
               p->exchange->config.hidden, (int)p->exchange->config.dtype);
    struct buffer *out = take_rows(w, op, p, SHUNT_MOE_OUT, 0), *y;
    struct buffer *bias = NULL;
    const uint64_t bias_seed = hash(e->seed, 5, 0);
    const int residual = below(&w->local, 3);

    fill_rows(p, out, e->seed);
    keeps(out);
    if (residual)
        bias = take_tokens(w, op, p, bias_seed, true);
    if (residual == 1)
        y = bias;
    else
        y = take_tokens(w, op, p, 0, false);
    if (residual == 2)
        keeps(bias);
    expect_sums(p, y, e->seed, bias, bias_seed, weighted);
    if (in_parts(p, e))
        return begun(
            w, op,
            call_parts(p, op, e,
                       &(struct arguments){.tokens = y->at,
                                           .rows = out->at,
                                           .bias = bias ? bias->at : NULL}));
    return begun(w, op,
                 e->start ? shunt_moe_combine_start(p->plan, out->at,
                                                    bias ? bias->at : NULL,
                                                    y->at, &op->request)
                          : shunt_moe_combine(p->plan, out->at,
                                              bias ? bias->at : NULL, y->at));
}

/* The expected <dy, out> of each assignment. With integers it is exact in any
 * order of the sum. */
static void expect_gradients(struct plan *p, struct op *op, struct buffer *b,
                             uint64_t seed, uint64_t out_seed)
{
    const int me = p->exchange->group->rank;
    const size_t hidden = p->exchange->config.hidden;
    const size_t k = (size_t)p->exchange->config.topk, n = p->tokens[me] * k;
    float *want = need(n * sizeof(*want)), *size = need(n * sizeof(*size));

    for (size_t a = 0; a < n; a++) {
        const struct model_slot *s = &p->model.of[me][a];
        double sum = 0, all = 0;

        for (size_t h = 0; h < hidden && s->kept; h++) {
            double v =
                (double)value_of(p->exchange, seed, me, a / k * hidden + h) *
                (double)value_of(p->exchange, out_seed, s->rank,
                                 s->row * hidden + h);

            sum += v;
            all += fabs(v);
        }
        want[a] = (float)sum;
        size[a] = (float)all;
    }
    if (p->exchange->integers && n)
        memcpy(expects(b, n * sizeof(*want)), want, n * sizeof(*want));
    op->near_got = (const float *)(const void *)b->at;
    op->near_want = want;
    op->near_size = size;
    op->near_count = n;
}

static int do_combine_backward(struct world *w, struct plan *p,
                               const struct event *e)
{
    struct group *g = p->exchange->group;
    const size_t hidden = p->exchange->config.hidden;
    const bool weighted =
        p->exchange->config.weights == SHUNT_MOE_APPLY_WEIGHTS;
    const bool gradients = e->seed % 4 != 0;
    const uint64_t out_seed = hash(e->seed, 6, 0);
    const size_t more = (size_t)below(&w->local, 3);
    struct op *op =
        new_op(w, g, "combine_backward of plan %d, hidden %zu, dtype %d",
               e->plan, hidden, (int)p->exchange->config.dtype);
    struct buffer *dy = take_tokens(w, op, p, e->seed, true);
    struct buffer *dout = take_rows(w, op, p, SHUNT_MOE_DOUT, more);
    struct buffer *out = NULL, *dweight = NULL;
    const size_t room = dout->bytes / (hidden * element(p));
    unsigned char *want = expects(dout, dout->bytes);

    keeps(dy);
    if (gradients) {
        out = dout;
        if (!one_in(&w->local, 4) ||
            (dout->owned && p->staged[SHUNT_MOE_OUT])) {
            out = take_rows(w, op, p, SHUNT_MOE_OUT, 0);
            fill_rows(p, out, out_seed);
            keeps(out);
        } else {
            fill_rows(p, out, out_seed);
            p->staged[SHUNT_MOE_OUT] |= dout->owned;
        }
        dweight = take_any(w, op,
                           p->tokens[g->rank] *
                               (size_t)p->exchange->config.topk * sizeof(float),
                           sizeof(float));
        expect_gradients(p, op, dweight, e->seed, out_seed);
    }
    memset(want, 0xa5, dout->bytes);
    for (size_t r = 0; r < p->model.total[g->rank]; r++) {
        const struct model_row *from = &p->model.row[g->rank][r];

        for (size_t h = 0; h < hidden; h++) {
            float v = 0;

            if (from->source >= 0) {
                v = value_of(p->exchange, e->seed, from->source,
                             from->token * hidden + h);
                if (weighted)
                    v *= model_weight(&p->model, from->source, from->token,
                                      from->slot);
            }
            store(p, want, r * hidden + h, v);
        }
    }
    if (in_parts(p, e))
        return begun(
            w, op,
            call_parts(
                p, op, e,
                &(struct arguments){
                    .tokens = dy->at,
                    .rows = dout->at,
                    .out = out ? out->at : NULL,
                    .room = room,
                    .dweight = dweight ? (float *)(void *)dweight->at : NULL}));
    return begun(
        w, op,
        e->start
            ? shunt_moe_combine_backward_start(
                  p->plan, dy->at, out ? out->at : NULL, dout->at, room,
                  dweight ? (float *)(void *)dweight->at : NULL, &op->request)
            : shunt_moe_combine_backward(
                  p->plan, dy->at, out ? out->at : NULL, dout->at, room,
                  dweight ? (float *)(void *)dweight->at : NULL));
}

static int do_dispatch_backward(struct world *w, struct plan *p,
                                const struct event *e)
{
    struct group *g = p->exchange->group;
    struct op *op = new_op(
        w, g, "dispatch_backward of plan %d, hidden %zu, dtype %d", e->plan,
        p->exchange->config.hidden, (int)p->exchange->config.dtype);
    struct buffer *drows = take_rows(w, op, p, SHUNT_MOE_DROWS, 0);
    struct buffer *dx = take_tokens(w, op, p, 0, false);

    fill_rows(p, drows, e->seed);
    keeps(drows);
    expect_sums(p, dx, e->seed, NULL, 0, false);
    if (in_parts(p, e))
        return begun(w, op,
                     call_parts(p, op, e,
                                &(struct arguments){.tokens = dx->at,
                                                    .rows = drows->at}));
    return begun(w, op,
                 e->start
                     ? shunt_moe_dispatch_backward_start(p->plan, drows->at,
                                                         dx->at, &op->request)
                     : shunt_moe_dispatch_backward(p->plan, drows->at, dx->at));
}

int do_moe(struct world *w, struct plan *p, const struct event *e)
{
    switch (e->kind) {
    case DISPATCH:
        return do_dispatch(w, p, e);
    case COMBINE:
        return do_combine(w, p, e);
    case COMBINE_BACKWARD:
        return do_combine_backward(w, p, e);
    default:
        return do_dispatch_backward(w, p, e);
    }
}
