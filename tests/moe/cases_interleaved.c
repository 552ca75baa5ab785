// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of several plans and exchanges that are under way at once. Every rank
 * makes the same calls in the same order, and waits for them in an order of its
 * own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* --- two calls that use the same memory between nodes --------------------- */

/*
 * dispatch_backward and combine of one plan write sums to the same memory of
 * the plan; dispatch and combine_backward write rows. Ranks are ready for them
 * in different order. All ranks must serve the earlier call first.
 */
static int one_plan_overlaps(const struct rank *self)
{
    struct shunt_moe_config c = config_of(1024, SHUNT_F32, 8, 4);
    struct shunt_moe *moe;
    struct world w;
    struct run run, other;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 3, 30, 60, 5);
    CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_X);
    run_fill_rows(&run, run.buffer[1], KIND_OUT);
    run_fill_rows(&run, run.buffer[3], KIND_DROWS);
    other = run;
    other.y = filled(run.rows.tokens * run.bytes);
    for (int round = 0; round < 100; round++) {
        struct shunt_request *q[2] = {NULL, NULL};

        memset(other.y, POISON, run.rows.tokens * run.bytes);
        memset(run.y, POISON, run.rows.tokens * run.bytes);
        CHECK_OK(self->comm, shunt_moe_dispatch_backward_start(
                                 run.plan, run.buffer[3], other.y, &q[0]));
        CHECK_OK(self->comm,
                 shunt_moe_dispatch_start(run.plan, run.x, run.buffer[0],
                                          run.rows.total, &q[1]));
        CHECK_OK(self->comm,
                 shunt_moe_combine(run.plan, run.buffer[1], NULL, run.y));
        CHECK_OK(self->comm, shunt_wait_all(q, 2));
        if (round % 50)
            continue;
        CHECK_RUN(run_check_rows(&run));
        CHECK_RUN(run_check_tokens(&run, KIND_OUT, true, false));
        CHECK_RUN(run_check_tokens(&other, KIND_DROWS, false, false));
    }
    free(other.y);
    CHECK_RUN(run_end(&run));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* Rank 0 starts a call in which all others wait already. It has everything that
 * it needs at once, and must not wait until its own data have been sent.
 * (test_moe.c has the setting in which sending takes long.) */
static int start_does_not_wait(const struct rank *self)
{
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 8, 2);
    struct shunt_comm_stats before, after;
    struct shunt_moe *moe;
    struct world w;
    struct run run;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 3, 4, 8, 5);
    CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_X);
    if (self->rank == 0) {
        const struct timespec late = {1, 0};
        struct shunt_request *q;

        nanosleep(&late, NULL);
        CHECK_OK(self->comm,
                 shunt_comm_get_stats(self->comm, &before, sizeof(before)));
        CHECK_OK(self->comm,
                 shunt_moe_dispatch_start(run.plan, run.x, run.buffer[0],
                                          run.rows.total, &q));
        CHECK_OK(self->comm,
                 shunt_comm_get_stats(self->comm, &after, sizeof(after)));
        CHECK(after.sleeps == before.sleeps, "it slept %llu times",
              (unsigned long long)(after.sleeps - before.sleeps));
        CHECK_OK(self->comm, shunt_wait(&q));
        CHECK_RUN(run_check_rows(&run));
    } else {
        CHECK_RUN(run_dispatch(&run));
    }
    CHECK_RUN(run_end(&run));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* --- other calls, or in another order ------------------------------------- */

enum { FIRST, SECOND };

/*
 * One rank makes the calls of two layers in another order. The calls differ
 * only in the exchange. Every rank must get an error. With an equal `hidden`
 * the rows of one layer would fit the other; with a larger one they would not.
 */
static int swap_exchanges(const struct rank *self, size_t hidden)
{
    struct shunt_moe_config c = config_of(24, SHUNT_F32, 8, 3);
    const bool swaps = self->rank == self->size - 1;
    struct shunt_moe *moe[2];
    struct world w[2];
    struct run run[2];

    for (int i = FIRST; i <= SECOND; i++) {
        c.hidden = i == FIRST ? 24 : hidden;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[i]));
        world_init(&w[i], &c, self->size, world_nodes(self), REALS, 4, 8, 20,
                   5);
        CHECK_RUN(run_begin(&run[i], self, moe[i], &w[i], WINDOW));
        run_fill_tokens(&run[i], run[i].x, KIND_X);
        run_fill_rows(&run[i], run[i].buffer[1], KIND_OUT);
        run_fill_rows(&run[i], run[i].buffer[3], KIND_DROWS);
    }
    for (int kind = 0; kind < 4; kind++)
        for (int i = FIRST; i <= SECOND; i++) {
            enum shunt_status st = run_call(&run[swaps ? !i : i], kind);

            CHECK(st == SHUNT_ERR_MISMATCH, "call %d: %s", kind,
                  rank_why(self->comm, st));
            CHECK(strstr(shunt_last_error(self->comm), "exchange"), "%s",
                  shunt_last_error(self->comm));
        }
    for (int i = FIRST; i <= SECOND; i++) {
        CHECK_RUN(run_dispatch(&run[i]));
        CHECK_RUN(run_combine(&run[i], false));
        CHECK_RUN(run_backward(&run[i], true));
    }
    for (int i = FIRST; i <= SECOND; i++) {
        CHECK_RUN(run_end(&run[i]));
        world_finish(&w[i]);
        shunt_moe_destroy(moe[i]);
    }
    return 0;
}

static int exchanges_swapped(const struct rank *self)
{
    CHECK_RUN(swap_exchanges(self, 24));
    return swap_exchanges(self, 3000);
}

/* --- calls behind one that a rank refused --------------------------------- */

/* wrong: pass NULL for the tokens. */
static enum shunt_status start_of(struct run *run, int kind, bool wrong,
                                  struct shunt_request **q)
{
    unsigned char *x = wrong ? NULL : run->x, *y = wrong ? NULL : run->y;

    switch (kind) {
    case 0:
        return shunt_moe_dispatch_start(run->plan, x, run->buffer[0],
                                        run->rows.total, q);
    case 1:
        return shunt_moe_combine_start(run->plan, run->buffer[1], NULL, y, q);
    case 2:
        return shunt_moe_combine_backward_start(run->plan, x, run->buffer[1],
                                                run->buffer[2], run->rows.total,
                                                run->dweight, q);
    default:
        return shunt_moe_dispatch_backward_start(run->plan, run->buffer[3], y,
                                                 q);
    }
}

/* A call that one rank refuses, and two calls right behind it. `spare` has
 * results of its own. */
static int refuse_and_go_on(struct run *run, struct run *spare, int kind,
                            bool refuses, int last)
{
    struct shunt_comm *comm = run->self->comm;
    struct shunt_request *q[3];

    memset(run->y, POISON, run->rows.tokens * run->bytes);
    CHECK_STATUS(comm, start_of(spare, kind, refuses, &q[0]),
                 refuses ? SHUNT_ERR_INVALID : SHUNT_OK);
    CHECK_OK(comm, start_of(run, 0, false, &q[1]));
    CHECK_OK(comm, start_of(run, 1, false, &q[2]));
    for (int i = 0; i < 3; i++) {
        const int n = (i + last) % 3;

        CHECK_STATUS(comm, shunt_wait(&q[n]),
                     n || refuses ? SHUNT_OK : SHUNT_ERR_REMOTE);
    }
    CHECK_RUN(run_check_rows(run));
    return run_check_tokens(run, KIND_OUT, true, false);
}

/*
 * The local peers of a rank that refuses a call end that call at once. They
 * make the next calls, in the same memory between nodes, while ranks of other
 * nodes are still in the first call.
 */
static int refused_and_on(const struct rank *self)
{
    struct shunt_moe_config c = config_of(64, SHUNT_F32, 8, 3);
    struct shunt_moe *moe;
    struct world w;
    struct run run, spare;
    void *window[2];

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 5, 20, 40, 5);
    CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_X);
    run_fill_rows(&run, run.buffer[1], KIND_OUT);
    run_fill_rows(&run, run.buffer[3], KIND_DROWS);
    spare = run;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, (run.rows.total + 1) * run.bytes,
                                 &window[i]));
        spare.buffer[2 * i] = window[i];
    }
    spare.y = filled(run.rows.tokens * run.bytes);
    for (uint64_t round = 0; round < 60; round++) {
        const uint64_t seed = mix(round, 65, 0, 0);

        CHECK_RUN(
            refuse_and_go_on(&run, &spare, (int)(round % 4),
                             (int)(seed % (uint64_t)self->size) == self->rank,
                             (int)(seed >> 40) % 3));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window[i]));
    free(spare.y);
    CHECK_RUN(run_end(&run));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* --- any calls in any order ----------------------------------------------- */

enum {
    EXCHANGES = 2,
    ROUTES = 3,    /* plans of each exchange at a time */
    SAMPLES = 2,   /* inputs of each plan */
    SLOTS = 3,     /* results of each plan in windows */
    UNDERWAY = 20, /* calls under way; more than there are slots for notes */
    LAST_CALLS = 20
};

enum kind { DISPATCH, COMBINE, COMBINE_BACKWARD, DISPATCH_BACKWARD, KINDS };

/* Input, and the expected results. */
struct sample {
    unsigned char *x, *bias, *dy;
    unsigned char *out, *drows; /* in the window */
    unsigned char *rows, *y, *y_bias, *dout, *dx;
    float *dweight;
};

struct route {
    struct world world;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    size_t bytes;          /* bytes of a row */
    unsigned char *window; /* 2 * SAMPLES + SLOTS buffers of experts' rows */
    size_t stride;         /* bytes of each of these */
    bool taken[SLOTS];     /* slots that calls use */
    /* a call passes memory that is no window instead of this buffer of the
     * plan */
    bool borrowed[4];
    struct sample sample[SAMPLES];
};

struct call {
    struct route *route; /* NULL: not in use */
    enum kind kind;
    const struct sample *sample;
    bool bias, dweight;
    struct shunt_request *request;
    int slot;            /* slot of the result in a window; -1: on the heap */
    unsigned char *rows; /* (total, hidden) */
    unsigned char *tokens;
    float *products;
    unsigned char *heap; /* a copy of the input on the heap; NULL: the input is
                            in the window */
    bool borrows[4];
};

struct mixture {
    const struct rank *self;
    struct shunt_moe *moe[EXCHANGES];
    struct route routes[EXCHANGES * ROUTES];
    struct call calls[UNDERWAY];
    uint64_t common, own; /* seeds: common to all ranks; of this rank */
    uint64_t rolled, own_rolled;
    /* expected and counted bytes to other nodes since the last check */
    uint64_t want_remote, had_remote;
    bool uncounted;
    uint64_t remote; /* bytes over all checks */
};

/* A random number that is the same on every rank; and one for this rank
 * alone. */
static unsigned dice(struct mixture *m, unsigned n)
{
    return (unsigned)(mix(m->common, m->rolled++, 60, 0) % n);
}

static unsigned own_dice(struct mixture *m, unsigned n)
{
    return (unsigned)(mix(m->own, m->own_rolled++, 61, 0) % n);
}

static size_t rows_bytes(const struct route *route)
{
    return route->rows.total * route->bytes;
}

static size_t tokens_bytes(const struct route *route)
{
    return route->rows.tokens * route->bytes;
}

/* --- expected results ----------------------------------------------------- */

static unsigned char *tokens_of(const struct world *w, int rank, size_t bytes,
                                int kind)
{
    unsigned char *to = filled(w->tokens[rank] * bytes);
    float values[ROW_MOST];

    for (size_t t = 0; t < w->tokens[rank]; t++) {
        world_values(w, kind, rank, t, values);
        row_set(w, to + t * bytes, values);
    }
    return to;
}

static unsigned char *sums_of(const struct world *w, int rank, size_t bytes,
                              int kind, bool bias)
{
    const bool weighted =
        kind == KIND_OUT && w->config.weights == SHUNT_MOE_APPLY_WEIGHTS;
    unsigned char *to = filled(w->tokens[rank] * bytes);
    float sums[ROW_MOST];

    for (size_t t = 0; t < w->tokens[rank]; t++) {
        world_combined(w, rank, t, kind, weighted, bias, sums);
        row_set(w, to + t * bytes, sums);
    }
    return to;
}

static void sample_init(struct sample *s, const struct route *route, int index,
                        uint64_t seed, int rank)
{
    struct world w = route->world;
    const struct rows *in = &w.rows[rank];
    const size_t bytes = route->bytes, k = (size_t)w.config.topk;
    const bool weighted = w.config.weights == SHUNT_MOE_APPLY_WEIGHTS;
    float values[ROW_MOST];

    w.seed = seed;
    s->x = tokens_of(&w, rank, bytes, KIND_X);
    s->bias = tokens_of(&w, rank, bytes, KIND_BIAS);
    s->dy = tokens_of(&w, rank, bytes, KIND_DY);
    s->y = sums_of(&w, rank, bytes, KIND_OUT, false);
    s->y_bias = sums_of(&w, rank, bytes, KIND_OUT, true);
    s->dx = sums_of(&w, rank, bytes, KIND_DROWS, false);
    s->out = route->window + (size_t)(2 * index) * route->stride;
    s->drows = s->out + route->stride;
    s->rows = filled(in->total * bytes);
    s->dout = filled(in->total * bytes);
    memset(s->out, POISON, 2 * route->stride);
    for (size_t r = 0; r < in->total; r++) {
        const struct origin *o = &in->origin[r];

        if (o->source < 0) {
            memset(s->rows + r * bytes, 0, bytes);
            memset(s->dout + r * bytes, 0, bytes);
            continue;
        }
        world_dispatched(&w, o->source, o->token, values);
        row_set(&w, s->rows + r * bytes, values);
        world_gradient(&w, o, weighted, values);
        row_set(&w, s->dout + r * bytes, values);
        world_values(&w, KIND_OUT, rank, r, values);
        row_set(&w, s->out + r * bytes, values);
        world_values(&w, KIND_DROWS, rank, r, values);
        row_set(&w, s->drows + r * bytes, values);
    }
    s->dweight = filled(w.tokens[rank] * k * sizeof(float));
    for (size_t t = 0; t < w.tokens[rank]; t++)
        for (size_t j = 0; j < k; j++)
            s->dweight[t * k + j] = world_dweight(&w, rank, t, (int)j);
}

static void sample_finish(struct sample *s)
{
    free(s->x);
    free(s->bias);
    free(s->dy);
    free(s->y);
    free(s->y_bias);
    free(s->dx);
    free(s->rows);
    free(s->dout);
    free(s->dweight);
}

/* --- plans ---------------------------------------------------------------- */

static int route_begin(struct mixture *m, struct route *route,
                       const struct shunt_moe_config *config)
{
    const struct rank *self = m->self;
    const int rank = self->rank;
    const uint64_t seed = mix(m->common, m->rolled++, 62, 0);
    const struct world *w = &route->world;

    world_init(&route->world, config, self->size, world_nodes(self), REALS,
               seed, 0, 10, 10);
    route->bytes = config->hidden * shunt_dtype_size(config->dtype);
    CHECK_OK(self->comm,
             shunt_moe_plan_create(route->moe, w->expert[rank], w->weight[rank],
                                   w->tokens[rank], &route->plan));
    shunt_moe_plan_rows(route->plan, &route->rows, sizeof(route->rows));
    CHECK(route->rows.total == w->rows[rank].total, "%zu rows, not %zu",
          route->rows.total, w->rows[rank].total);
    CHECK(rows_bytes(route) <= route->stride, "%zu rows", route->rows.total);
    for (int i = 0; i < SAMPLES; i++)
        sample_init(&route->sample[i], route, i, mix(seed, (uint64_t)i, 63, 0),
                    rank);
    m->uncounted = true;
    return 0;
}

static void route_end(struct route *route)
{
    shunt_moe_plan_destroy(route->plan);
    for (int i = 0; i < SAMPLES; i++)
        sample_finish(&route->sample[i]);
    world_finish(&route->world);
}

/* --- calls ---------------------------------------------------------------- */

/* True if this call uses memory that is no window, instead of a buffer of the
 * plan. Only one call at a time may do so for each buffer. */
static bool borrow(struct mixture *m, struct call *call, int buffer)
{
    struct route *route = call->route;

    if (route->borrowed[buffer] || own_dice(m, 3))
        return false;
    route->borrowed[buffer] = call->borrows[buffer] = true;
    return true;
}

static const unsigned char *input(struct mixture *m, struct call *call,
                                  const unsigned char *window, int buffer)
{
    if (!borrow(m, call, buffer))
        return window;
    call->heap = filled(rows_bytes(call->route));
    memcpy(call->heap, window, rows_bytes(call->route));
    return call->heap;
}

/* Finds memory for experts' rows. */
static void find_rows(struct mixture *m, struct call *call, int buffer)
{
    struct route *route = call->route;

    call->slot = -1;
    for (int i = 0; i < SLOTS; i++)
        if (!route->taken[i])
            call->slot = i;
    if (call->slot < 0 || borrow(m, call, buffer)) {
        call->slot = -1;
        call->rows = filled(rows_bytes(route));
        return;
    }
    route->taken[call->slot] = true;
    call->rows =
        route->window + (size_t)(2 * SAMPLES + call->slot) * route->stride;
    memset(call->rows, POISON, route->stride);
}

/* This rank's share of the bytes that all ranks together send between nodes in
 * a call, if rows are sent between rail peers. */
static uint64_t remote_bytes(const struct route *route, enum kind kind,
                             bool dweight)
{
    const struct shunt_moe_rows *in = &route->rows;

    switch (kind) {
    case DISPATCH:
        return in->network_dispatch_bytes;
    case COMBINE_BACKWARD: /* a product returns for each assignment */
        return in->network_rows * route->bytes +
               (dweight ? in->network_rows_plain * sizeof(float) : 0);
    default:
        return in->network_combine_bytes;
    }
}

static enum shunt_status start(struct mixture *m, struct call *call)
{
    struct route *route = call->route;
    const struct sample *s = call->sample;
    const size_t slots =
        route->rows.tokens * (size_t)route->world.config.topk * sizeof(float);
    const unsigned char *in;

    switch (call->kind) {
    case DISPATCH:
        find_rows(m, call, SHUNT_MOE_ROWS);
        return shunt_moe_dispatch_start(route->plan, s->x, call->rows,
                                        route->rows.total, &call->request);
    case COMBINE:
        in = input(m, call, s->out, SHUNT_MOE_OUT);
        call->tokens = filled(tokens_bytes(route));
        return shunt_moe_combine_start(route->plan, in,
                                       call->bias ? s->bias : NULL,
                                       call->tokens, &call->request);
    case COMBINE_BACKWARD:
        find_rows(m, call, SHUNT_MOE_DOUT);
        in = call->dweight ? input(m, call, s->out, SHUNT_MOE_OUT) : NULL;
        call->products = call->dweight ? filled(slots) : NULL;
        return shunt_moe_combine_backward_start(route->plan, s->dy, in,
                                                call->rows, route->rows.total,
                                                call->products, &call->request);
    default:
        in = input(m, call, s->drows, SHUNT_MOE_DROWS);
        call->tokens = filled(tokens_bytes(route));
        return shunt_moe_dispatch_backward_start(route->plan, in, call->tokens,
                                                 &call->request);
    }
}

static const char *const kind_names[] = {
    "dispatch", "combine", "combine_backward", "dispatch_backward"};

static int compare(const struct call *call, const char *what, const void *got,
                   const void *want, size_t bytes)
{
    const unsigned char *a = got, *b = want;
    size_t i = 0;

    while (i < bytes && a[i] == b[i])
        i++;
    CHECK(i == bytes, "%s of %s differs from byte %zu of %zu on", what,
          kind_names[call->kind], i, bytes);
    return 0;
}

static int check(const struct call *call)
{
    const struct route *route = call->route;
    const struct sample *s = call->sample;
    const size_t rows = rows_bytes(route), tokens = tokens_bytes(route);

    switch (call->kind) {
    case DISPATCH:
        return compare(call, "rows", call->rows, s->rows, rows);
    case COMBINE:
        return compare(call, "y", call->tokens, call->bias ? s->y_bias : s->y,
                       tokens);
    case COMBINE_BACKWARD:
        CHECK_RUN(compare(call, "dout", call->rows, s->dout, rows));
        return call->dweight
                   ? compare(call, "dweight", call->products, s->dweight,
                             route->rows.tokens *
                                 (size_t)route->world.config.topk *
                                 sizeof(float))
                   : 0;
    default:
        return compare(call, "dx", call->tokens, s->dx, tokens);
    }
}

/* The call is complete: checks it, and releases its memory. */
static int collect(struct call *call)
{
    struct route *route = call->route;

    CHECK_RUN(check(call));
    for (int b = 0; b < 4; b++)
        if (call->borrows[b])
            route->borrowed[b] = false;
    if (call->slot >= 0)
        route->taken[call->slot] = false;
    else
        free(call->rows);
    free(call->tokens);
    free(call->products);
    free(call->heap);
    memset(call, 0, sizeof(*call));
    return 0;
}

static int finish(struct mixture *m, struct call *call)
{
    CHECK_OK(m->self->comm, shunt_wait(&call->request));
    return collect(call);
}

/* A random call under way, or one of `route`; NULL: none. */
static struct call *pick(struct mixture *m, const struct route *route)
{
    struct call *found = NULL;
    unsigned n = 0;

    for (int i = 0; i < UNDERWAY; i++)
        if (m->calls[i].route && (!route || m->calls[i].route == route) &&
            own_dice(m, ++n) == 0)
            found = &m->calls[i];
    return found;
}

static int finish_all(struct mixture *m, const struct route *route)
{
    struct call *call;

    while ((call = pick(m, route)) != NULL)
        CHECK_RUN(finish(m, call));
    return 0;
}

/* Ends a few calls in random ways. */
static int finish_some(struct mixture *m)
{
    const struct timespec nap = {0, 1000 * (long)own_dice(m, 500)};
    struct call *call;
    enum shunt_status st;

    if (own_dice(m, 40) == 0) /* late for the next call */
        nanosleep(&nap, NULL);
    while (own_dice(m, 2) && (call = pick(m, NULL)) != NULL) {
        if (own_dice(m, 2)) {
            CHECK_RUN(finish(m, call));
            continue;
        }
        for (unsigned i = own_dice(m, 20); i && call->route; i--) {
            st = shunt_test(&call->request);
            CHECK(st == SHUNT_OK || st == SHUNT_IN_PROGRESS, "%s",
                  rank_why(m->self->comm, st));
            if (st == SHUNT_OK)
                CHECK_RUN(collect(call));
        }
    }
    return 0;
}

static struct call *free_call(struct mixture *m)
{
    for (int i = 0; i < UNDERWAY; i++)
        if (!m->calls[i].route)
            return &m->calls[i];
    return NULL;
}

static bool has_room(const struct route *route, enum kind kind)
{
    if (kind != DISPATCH && kind != COMBINE_BACKWARD)
        return true;
    for (int i = 0; i < SLOTS; i++)
        if (!route->taken[i])
            return true;
    return false;
}

static int next_call(struct mixture *m)
{
    struct route *route = &m->routes[dice(m, EXCHANGES * ROUTES)];
    const enum kind kind = (enum kind)dice(m, KINDS);
    const struct sample *sample = &route->sample[dice(m, SAMPLES)];
    const bool dweight = dice(m, 2);
    struct call *call;
    enum shunt_status st;

    while (!has_room(route, kind))
        CHECK_RUN(finish(m, pick(m, route)));
    while (!(call = free_call(m)))
        CHECK_RUN(finish(m, pick(m, NULL)));
    *call = (struct call){.route = route,
                          .kind = kind,
                          .sample = sample,
                          .bias = own_dice(m, 2),
                          .dweight = dweight,
                          .slot = -1};
    m->want_remote += remote_bytes(route, kind, dweight);
    st = start(m, call);
    CHECK(st == SHUNT_OK, "%s: %s", kind_names[kind],
          rank_why(m->self->comm, st));
    if (own_dice(m, 4) == 0) /* as the blocking call does */
        return finish(m, call);
    return finish_some(m);
}

/* --- bytes sent between nodes --------------------------------------------- */

static uint64_t sent(const struct mixture *m)
{
    struct shunt_comm_stats stats = {0};

    if (shunt_comm_get_stats(m->self->comm, &stats, sizeof(stats)))
        return UINT64_MAX;
    return stats.bytes_remote;
}

/* When nothing is under way: as many bytes must have been sent to other nodes
 * as the plans say. */
static int count_remote(struct mixture *m)
{
    const struct shunt_moe_rows *rows = &m->routes[0].rows;
    const bool rails = by_rails(rows->mode) && by_rails(rows->combine_mode);
    uint64_t bytes[2];

    CHECK_RUN(finish_all(m, NULL));
    bytes[0] = sent(m) - m->had_remote;
    bytes[1] = m->want_remote;
    CHECK_OK(m->self->comm, shunt_allreduce(m->self->comm, bytes, bytes, 2,
                                            SHUNT_U64, SHUNT_SUM));
    if (rails && !m->uncounted) {
        CHECK(bytes[0] == bytes[1],
              "%llu bytes went to other nodes, expected %llu",
              (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
        m->remote += bytes[0];
    }
    m->uncounted = false;
    m->want_remote = 0;
    m->had_remote = sent(m);
    return 0;
}

/* --- the whole case ------------------------------------------------------- */

static const char *mode_name(enum shunt_moe_mode mode)
{
    static const char *const names[] = {"auto", "direct", "flat", "two-level",
                                        "allgather"};

    return names[mode];
}

static int begin(struct mixture *m)
{
    const struct rank *self = m->self;

    for (int e = 0; e < EXCHANGES; e++) {
        struct shunt_moe_config c = config_of(
            e ? 150 : 37, e ? SHUNT_BF16 : SHUNT_F32, e ? 16 : 7, e ? 5 : 3);

        c.row_align = e ? 4 : 1;
        c.wire = e ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
        c.weights = e ? SHUNT_MOE_APPLY_WEIGHTS : SHUNT_MOE_PLAIN_SUM;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &m->moe[e]));
        for (int i = 0; i < ROUTES; i++) {
            struct route *route = &m->routes[e * ROUTES + i];
            void *window;

            route->moe = m->moe[e];
            route->stride = ((size_t)self->size * 10 * (size_t)c.topk +
                             (size_t)c.experts * 4) *
                            c.hidden * 4;
            CHECK_OK(self->comm,
                     shunt_mem_alloc(self->comm,
                                     (2 * SAMPLES + SLOTS) * route->stride,
                                     &window));
            route->window = window;
            CHECK_RUN(route_begin(m, route, &c));
        }
    }
    return 0;
}

static int end(struct mixture *m)
{
    for (int i = 0; i < EXCHANGES * ROUTES; i++) {
        route_end(&m->routes[i]);
        CHECK_OK(m->self->comm,
                 shunt_mem_free(m->self->comm, m->routes[i].window));
    }
    for (int e = 0; e < EXCHANGES; e++)
        shunt_moe_destroy(m->moe[e]);
    return 0;
}

static int mingle(struct mixture *m, long rounds)
{
    CHECK_RUN(begin(m));
    CHECK_RUN(count_remote(m));
    for (long round = 0; round < rounds; round++) {
        unsigned turn = dice(m, 100);

        if (turn == 0) { /* another plan, while others are used */
            struct route *route = &m->routes[dice(m, EXCHANGES * ROUTES)];
            const struct shunt_moe_config c = route->world.config;

            CHECK_RUN(finish_all(m, route));
            route_end(route);
            CHECK_RUN(route_begin(m, route, &c));
        } else if (turn < 4) {
            CHECK_RUN(count_remote(m));
        }
        CHECK_RUN(next_call(m));
    }
    /* By chance a plan may have been made between any two checks so far, and
     * the bytes for making a plan are not counted. Between these two checks no
     * plan is made. */
    CHECK_RUN(count_remote(m));
    for (int i = 0; i < LAST_CALLS; i++)
        CHECK_RUN(next_call(m));
    return count_remote(m);
}

static unsigned long long from_environment(const char *name,
                                           unsigned long long otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 0) : otherwise;
}

/*
 * SHUNT_TEST_ROUNDS calls in an order that SHUNT_TEST_SEED decides. Which of
 * them are waited for, when, and which memory they use, differs between ranks.
 */
static int interleavings(const struct rank *self)
{
    struct mixture *m = calloc(1, sizeof(*m));
    uint64_t seed;
    long rounds;
    int failed;

    if (!m)
        abort();
    CHECK_RUN(test_seed(self, &seed));
    rounds = (long)from_environment("SHUNT_TEST_ROUNDS", 200);
    m->self = self;
    m->common = seed;
    m->own = mix(seed, (uint64_t)self->rank, 64, 0);
    failed = mingle(m, rounds);
    if (failed)
        return rank_fail(__FILE__, __LINE__, "interleavings",
                         "SHUNT_TEST_SEED=%llu SHUNT_TEST_ROUNDS=%ld shows it "
                         "again",
                         (unsigned long long)seed, rounds);
    if (self->rank == 0) {
        rank_say("# mode %s", mode_name(m->routes[0].rows.mode));
        rank_say("# combine %s", mode_name(m->routes[0].rows.combine_mode));
        rank_say("# %ld calls, %llu bytes between nodes counted, "
                 "SHUNT_TEST_SEED=%llu",
                 rounds, (unsigned long long)m->remote,
                 (unsigned long long)seed);
    }
    CHECK(m->remote || shunt_comm_nodes(self->comm) == 1 ||
              m->routes[0].rows.mode == SHUNT_MOE_FLAT ||
              m->routes[0].rows.combine_mode == SHUNT_MOE_FLAT,
          "nothing was counted between nodes");
    CHECK_RUN(end(m));
    free(m);
    return 0;
}

const struct rank_case interleaved_cases[] = {
    {.name = "one_plan_overlaps", .run = one_plan_overlaps},
    {"exchanges_swapped", exchanges_swapped, .min_ranks = 2},
    {"refused_and_on", refused_and_on, .min_ranks = 2},
    {"start_does_not_wait", start_does_not_wait, .min_ranks = 2},
    {.name = "interleavings", .run = interleavings},
    {.name = NULL},
};
