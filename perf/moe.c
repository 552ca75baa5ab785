// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges of tokens.
 *
 * A step of dispatch or moe makes a plan, uses it and releases it, as a
 * training step does; each part is timed on its own, with all ranks gathered
 * before it, and sums of parts are taken sample by sample. Releasing counts as
 * planning.
 * combine alone holds on to one plan.
 *
 * Nothing computes between dispatch and combine: the experts' answers are put
 * into a buffer when it is met for the first time, outside of the timing.
 */
#include "moe.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "random.h"
#include "sample.h"
#include "table.h"

/* Row buffers of a side, one for each plan in flight. */
#define MAX_BUFFERS 16

struct bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_routing routing;
    struct perf_rows rows; /* what the data are made from */
    size_t row_bytes;
    size_t total; /* rows that this rank receives */
    void *x, *y;
    void *in, *out; /* the caller's row buffers; NULL: nobody needs them */
    double remote;  /* share of the rows that leave their rank */
};

struct side {
    const struct bench *bench;
    const struct perf_engine *engine;
    void *state;
    const void *filled[MAX_BUFFERS]; /* buffers that have the answers in them */
    int nfilled;
    double wrong;
};

/* -- data ------------------------------------------------------------------ */

static void make_routing(struct bench *b, size_t tokens)
{
    const struct perf_options *o = b->o;
    int nodes = b->g->comm ? shunt_comm_nodes(b->g->comm) : 1;
    struct perf_routing_config config = {
        .ranks = b->g->ranks,
        .experts = o->experts,
        .topk = o->topk,
        .tokens = tokens,
        .skew = o->skew,
        .arg = o->skew_arg,
        .groups = nodes > 1 ? nodes : b->g->ranks,
        .seed = o->seed,
    };
    if (o->skew == PERF_SKEW_NODE_LIMITED && !config.arg)
        config.arg = config.groups > 1 ? (double)(config.groups / 2) : 1;
    const char *wrong = perf_routing_init(&b->routing, &config);
    if (wrong)
        perf_die(PERF_EXIT_USAGE, "%s", wrong);
}

/* The share of rows that leave their rank, and a word on the imbalance. */
static void describe_routing(struct bench *b)
{
    const struct perf_routing *r = &b->routing;
    size_t all = (size_t)r->ranks * r->tokens * (size_t)r->topk, remote = 0,
           most = 0;

    for (int s = 0; s < r->ranks; s++) {
        const int32_t *experts = perf_token_experts(r, s, 0);
        for (size_t i = 0; i < r->tokens * (size_t)r->topk; i++)
            remote += perf_expert_rank(r, experts[i]) != s;
        size_t rows = perf_routing_rows(r, s);
        most = rows > most ? rows : most;
    }
    b->remote = all ? (double)remote / (double)all : 0;
    if (all)
        perf_table_note("%zu tokens a rank: %.1f%% of the rows leave their "
                        "rank; the busiest rank receives %.2f times the mean",
                        r->tokens, 100 * b->remote,
                        (double)most * r->ranks / (double)all);
}

static void *zeroed(size_t bytes)
{
    void *p = perf_alloc(bytes);
    memset(p, 0, bytes);
    return p;
}

static void bench_open(struct bench *b, size_t tokens, bool rows_needed)
{
    make_routing(b, tokens);
    describe_routing(b);
    b->rows = (struct perf_rows){
        .routing = &b->routing,
        .rank = b->g->rank,
        .hidden = b->o->hidden,
        .dtype = b->o->dtype,
    };
    b->row_bytes = b->o->hidden * shunt_dtype_size(b->o->dtype);
    b->total = perf_routing_rows(&b->routing, b->g->rank);
    b->x = zeroed(tokens * b->row_bytes);
    b->y = zeroed(tokens * b->row_bytes);
    b->in = b->out = NULL;
    if (rows_needed) {
        b->in = zeroed(b->total * b->row_bytes);
        b->out = zeroed(b->total * b->row_bytes);
    }
}

static void bench_close(struct bench *b)
{
    perf_routing_finish(&b->routing);
    free(b->x);
    free(b->y);
    free(b->in);
    free(b->out);
}

/* -- sides ----------------------------------------------------------------- */

static void side_open(struct side *side)
{
    const struct bench *b = side->bench;
    bool own =
        side->engine == &perf_engine_shunt && b->o->mem == PERF_MEM_WINDOW;
    struct perf_exchange exchange = {
        .rank = b->g->rank,
        .ranks = b->g->ranks,
        .tokens = b->routing.tokens,
        .hidden = b->o->hidden,
        .dtype = b->o->dtype,
        .topk = b->o->topk,
        .experts = b->o->experts,
        .wire = b->o->wire,
        .index = perf_token_experts(&b->routing, b->g->rank, 0),
        .weight = perf_token_weights(&b->routing, b->g->rank, 0),
        .x = b->x,
        .y = b->y,
        .total = b->total,
        .rows = own ? NULL : b->in,
        .out = own ? NULL : b->out,
    };
    const char *why = side->engine->moe_open(&exchange, &side->state);
    if (why)
        perf_die(PERF_EXIT_USAGE, "--peer %s: %s", side->engine->name, why);
    if (side->engine->moe_note(side->state))
        perf_table_note("%s", side->engine->moe_note(side->state));
}

static void plan(void *state)
{
    struct side *side = state;
    side->engine->moe_plan(side->state);
}

static void dispatch(void *state)
{
    struct side *side = state;
    side->engine->moe_dispatch(side->state);
}

static void combine(void *state)
{
    struct side *side = state;
    side->engine->moe_combine(side->state);
}

static void release(void *state)
{
    struct side *side = state;
    side->engine->moe_release(side->state);
}

/* See that the answers are where combine reads. */
static void answer(void *state)
{
    struct side *side = state;
    void *out = side->engine->moe_out(side->state);

    if (!out)
        return;
    for (int i = 0; i < side->nfilled; i++)
        if (side->filled[i] == out)
            return;
    perf_fill_out(&side->bench->rows, out);
    if (side->nfilled < MAX_BUFFERS)
        side->filled[side->nfilled++] = out;
}

static void check_dispatch(struct side *side)
{
    const struct bench *b = side->bench;
    void *rows = side->engine->moe_rows(side->state);

    if (rows)
        memset(rows, PERF_POISON, b->total * b->row_bytes);
    perf_gate_wait(b->g);
    dispatch(side);
    if (rows) {
        bool fp8 = b->o->wire == SHUNT_MOE_WIRE_FP8 &&
                   side->engine == &perf_engine_shunt;
        side->wrong += (double)perf_check_dispatch(&b->rows, fp8, rows);
    }
}

static void check_combine(struct side *side)
{
    const struct bench *b = side->bench;

    answer(side);
    memset(b->y, PERF_POISON, b->routing.tokens * b->row_bytes);
    perf_gate_wait(b->g);
    combine(side);
    if (side->engine->delivers)
        side->wrong += (double)perf_check_combine(&b->rows, b->y);
}

/* One step of each side on new data. */
static void try_once(struct bench *b, struct side *sides, int nsides, int round)
{
    b->rows.seed = b->o->seed + (uint64_t)round;
    perf_fill_x(&b->rows, b->x);
    for (int s = 0; s < nsides; s++) {
        sides[s].nfilled = 0;
        if (b->o->op != PERF_COMBINE)
            plan(&sides[s]);
        if (b->o->op != PERF_COMBINE)
            check_dispatch(&sides[s]);
        if (b->o->op != PERF_DISPATCH)
            check_combine(&sides[s]);
        if (b->o->op != PERF_COMBINE)
            release(&sides[s]);
    }
}

/* -- measuring ------------------------------------------------------------- */

/* A line of the table: a run of phases. */
struct part {
    const char *name;
    int first, last;
    int rows; /* how often the rows travel; 0: it is no exchange */
};

static const struct part dispatch_parts[] = {
    {"plan", 0, 0, 0},
    {"dispatch", 1, 1, 1},
    {"plan+dispatch", 0, 1, 1},
    {NULL, 0, 0, 0},
};

static const struct part combine_parts[] = {
    {"combine", 0, 0, 1},
    {NULL, 0, 0, 0},
};

static const struct part moe_parts[] = {
    {"plan", 0, 0, 0},
    {"dispatch", 1, 1, 1},
    {"combine", 2, 2, 1},
    {"dispatch+combine", 1, 2, 2},
    {"plan+dispatch+combine", 0, 2, 2},
    {NULL, 0, 0, 0},
};

static const struct part *parts_of(enum perf_op op)
{
    return op == PERF_DISPATCH  ? dispatch_parts
           : op == PERF_COMBINE ? combine_parts
                                : moe_parts;
}

static struct perf_side timed_side(enum perf_op op, struct side *side)
{
    switch (op) {
    case PERF_DISPATCH:
        return (struct perf_side){
            .state = side,
            .phases = 2,
            .phase = {plan, dispatch},
            .release = release,
        };
    case PERF_COMBINE:
        return (struct perf_side){
            .state = side,
            .phases = 1,
            .phase = {combine},
            .prepare = answer,
        };
    default:
        return (struct perf_side){
            .state = side,
            .phases = 3,
            .phase = {plan, dispatch, combine},
            .prepare = answer,
            .release = release,
        };
    }
}

static void print_part(const struct bench *b, const struct part *part,
                       const struct side *sides, int nsides,
                       const struct perf_series *series, const double *wrong)
{
    struct perf_row row = {
        .op = part->name,
        .bytes = (size_t)part->rows * b->routing.tokens * (size_t)b->o->topk *
                 b->row_bytes,
        .count = b->routing.tokens,
        .bus = b->remote,
        .samples = series[0].samples,
        .batch = series[0].batch,
        .checked = part->rows > 0,
        .part = part->rows == 0,
    };
    for (int s = 0; s < nsides; s++) {
        struct perf_times times =
            perf_series_times(&series[s], part->first, part->last);
        if (sides[s].engine == &perf_engine_shunt) {
            row.has_ours = true;
            row.ours = times;
            row.wrong = wrong[s];
        } else if (part->rows || sides[s].engine->delivers) {
            row.has_peer = true; /* a copy has nothing to plan */
            row.peer = times;
            row.peer_wrong = wrong[s];
        }
    }
    perf_table_row(&row);
}

static void measure(struct bench *b, struct side *sides, int nsides)
{
    /* Steps of several parts cannot be timed in batches. */
    int batch = b->o->op == PERF_COMBINE ? b->o->batch : 1;
    struct perf_plan how = {b->o->warmup, b->o->samples, batch, b->o->seconds};
    struct perf_side timed[PERF_MAX_SIDES];
    struct perf_series series[PERF_MAX_SIDES];
    double wrong[PERF_MAX_SIDES];

    for (int s = 0; s < nsides; s++) {
        side_open(&sides[s]);
        timed[s] = timed_side(b->o->op, &sides[s]);
        if (b->o->op == PERF_COMBINE)
            plan(&sides[s]);
    }
    try_once(b, sides, nsides, 0);
    perf_measure(b->g, &how, timed, nsides, series);
    try_once(b, sides, nsides, 1);

    for (int s = 0; s < nsides; s++)
        wrong[s] = perf_sum(b->g, sides[s].wrong);
    for (const struct part *p = parts_of(b->o->op); p->name; p++)
        print_part(b, p, sides, nsides, series, wrong);
    for (int s = 0; s < nsides; s++) {
        if (b->o->op == PERF_COMBINE)
            release(&sides[s]);
        perf_series_finish(&series[s]);
        sides[s].engine->moe_close(sides[s].state);
    }
}

void perf_moe(const struct perf_options *o, const struct perf_group *g,
              const struct perf_engine *ours, const struct perf_engine *peer)
{
    bool rows_needed =
        (ours && o->mem == PERF_MEM_MALLOC) || (peer && peer->delivers);

    for (int i = 0; i < o->ntokens; i++) {
        struct bench b = {.o = o, .g = g};
        struct side sides[PERF_MAX_SIDES] = {{0}};
        int nsides = 0;

        bench_open(&b, o->tokens[i], rows_needed);
        if (ours)
            sides[nsides++] = (struct side){.bench = &b, .engine = ours};
        if (peer)
            sides[nsides++] = (struct side){.bench = &b, .engine = peer};
        measure(&b, sides, nsides);
        bench_close(&b);
    }
}
