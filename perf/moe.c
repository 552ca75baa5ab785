// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges of tokens.
 *
 * A step of dispatch or moe makes a plan, uses it and releases it, as a
 * training step does. Each part is timed separately, after all ranks have
 * gathered, and sums of parts are taken sample by sample. Releasing counts as
 * planning. combine alone and backward keep one plan, and so do measurements
 * with a computation (--overlap).
 *
 * No expert computes between dispatch and combine: the experts' results are
 * written into a buffer when it is first used, which is not timed.
 */
#include "perf/moe.h"

#include <stdlib.h>
#include <string.h>

#include "perf/check.h"
#include "perf/pair.h"
#include "perf/random.h"
#include "perf/sample.h"
#include "perf/table.h"
#include "perf/traffic.h"
#include "perf/wire.h"

/* Row buffers of a side, one for each plan in flight. */
#define MAX_BUFFERS 16

/* A line of the table: consecutive phases. */
struct part {
    const char *name;
    int first, last;
    int there, back; /* are rows sent to the experts, and back? */
};

static const struct part dispatch_parts[] = {
    {"plan", 0, 0, 0, 0},
    {"dispatch", 1, 1, 1, 0},
    {"plan+dispatch", 0, 1, 1, 0},
    {NULL, 0, 0, 0, 0},
};

static const struct part combine_parts[] = {
    {"combine", 0, 0, 0, 1},
    {NULL, 0, 0, 0, 0},
};

static const struct part moe_parts[] = {
    {"plan", 0, 0, 0, 0},
    {"dispatch", 1, 1, 1, 0},
    {"combine", 2, 2, 0, 1},
    {"dispatch+combine", 1, 2, 1, 1},
    {"plan+dispatch+combine", 0, 2, 1, 1},
    {NULL, 0, 0, 0, 0},
};

static const struct part backward_parts[] = {
    {"combine_backward", 0, 0, 1, 0},
    {"dispatch_backward", 1, 1, 0, 1},
    {"backward", 0, 1, 1, 1},
    {NULL, 0, 0, 0, 0},
};

/* The parts of an operation. */
struct steps {
    const struct part *parts;
    bool plans; /* makes a plan each time; otherwise one is kept */
    int n;
    enum perf_go go[2];
};

static const struct steps steps[PERF_OPS] = {
    [PERF_DISPATCH] = {dispatch_parts, true, 1, {PERF_GO_DISPATCH}},
    [PERF_COMBINE] = {combine_parts, false, 1, {PERF_GO_COMBINE}},
    [PERF_MOE] = {moe_parts, true, 2, {PERF_GO_DISPATCH, PERF_GO_COMBINE}},
    [PERF_BACKWARD] = {backward_parts,
                       false,
                       2,
                       {PERF_GO_COMBINE_BACKWARD, PERF_GO_DISPATCH_BACKWARD}},
};

static bool keeps_plan(const struct perf_options *o)
{
    return !steps[o->op].plans || o->overlap;
}

/* The bytes that have to cross between places, by a side's algorithm. */
struct traffic {
    uint64_t rows;
    uint64_t *there, *back; /* (places, places) bytes of dispatch, combine */
};

struct bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_routing routing;
    struct perf_rows rows; /* from which the data is generated */
    size_t row_bytes;
    size_t total; /* rows that this rank receives */
    void *x, *y;
    void *in, *out; /* the caller's row buffers; NULL: not needed */
    float *dweight; /* (tokens, topk); NULL: no gradients */
    double pair;    /* see pair.h */
    double remote;  /* share of the rows that leave their rank */
    struct perf_places places;
    struct traffic traffic[PERF_ROLES];
};

struct side {
    enum perf_role role;
    const struct bench *bench;
    const struct perf_engine *engine;
    void *state;
    const void *filled[MAX_BUFFERS]; /* buffers that contain the results */
    int nfilled;
    double wrong;
};

/* --- data ----------------------------------------------------------------- */

static void make_routing(struct bench *b, size_t tokens)
{
    const struct perf_options *o = b->o;
    int nodes = b->places.n;
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

/* Compute the share of rows that leave their rank, and print the imbalance. */
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

/* --- traffic -------------------------------------------------------------- */

/* Bytes of a row in dispatch: elements, or e4m3 with a scale for each 128 of
 * them. */
static uint64_t row_there(const struct bench *b, bool fp8)
{
    size_t hidden = b->o->hidden;
    return fp8 ? hidden + (hidden + 127) / 128 * sizeof(float) : b->row_bytes;
}

/* Bytes of the sum of a node's results in combine. */
static uint64_t sum_back(const struct bench *b)
{
    return b->o->partials == SHUNT_MOE_PARTIALS_F32
               ? b->o->hidden * sizeof(float)
               : b->row_bytes;
}

/* Rows of one kind, and the bytes of each. */
struct sort {
    enum perf_rows_each each;
    uint64_t bytes;
};

/* Rows to the experts; what comes back is of two sorts. */
static void set_traffic(const struct bench *b, struct traffic *t,
                        struct sort there, const struct sort back[2])
{
    const int n = b->places.n;
    const size_t bytes = (size_t)n * (size_t)n * sizeof(uint64_t);
    uint64_t *rows = perf_alloc(bytes);

    memset(t->there, 0, bytes);
    memset(t->back, 0, bytes);
    for (int i = 0; i < 2; i++) {
        perf_traffic_rows(&b->routing, back[i].each, &b->places, rows);
        perf_traffic_add(rows, n, back[i].bytes, true, t->back);
    }
    perf_traffic_rows(&b->routing, there.each, &b->places, rows);
    perf_traffic_add(rows, n, there.bytes, false, t->there);
    t->rows = perf_traffic_total(rows, n);
    free(rows);
}

static struct sort sort_there(const struct bench *b, enum shunt_moe_mode mode)
{
    bool fp8 = b->o->wire == SHUNT_MOE_WIRE_FP8 && b->o->op != PERF_BACKWARD;

    return (struct sort){
        mode == SHUNT_MOE_FLAT        ? PERF_EACH_RANK
        : mode == SHUNT_MOE_ALLGATHER ? PERF_EACH_TOKEN
                                      : PERF_EACH_PLACE,
        row_there(b, fp8),
    };
}

/* Results one by one, or one for each (token, node): a node's only result as it
 * is, or the sum of several. */
static void sorts_back(const struct bench *b, bool one_by_one,
                       struct sort back[2])
{
    back[0] = (struct sort){one_by_one ? PERF_EACH_ASSIGNMENT : PERF_EACH_LONE,
                            b->row_bytes};
    back[1] = (struct sort){PERF_EACH_SUM, one_by_one ? 0 : sum_back(b)};
}

/* Compute the bytes, for Shunt by the modes of its plan; without Shunt only the
 * peer's. */
static void find_traffic(struct bench *b, const struct perf_sent *sent)
{
    struct traffic *ours = &b->traffic[PERF_OURS];
    struct traffic *peer = &b->traffic[PERF_PEER];
    struct traffic *link = &b->traffic[PERF_LINK];
    const struct perf_modes modes = sent ? sent->modes : (struct perf_modes){0};
    struct sort back[2];

    sorts_back(b, true, back);
    set_traffic(b, peer,
                (struct sort){PERF_EACH_ASSIGNMENT, row_there(b, false)}, back);
    sorts_back(b, modes.back == SHUNT_MOE_FLAT, back);
    set_traffic(b, ours, sort_there(b, modes.there), back);
    const struct traffic *from = sent ? ours : peer;
    size_t bytes = (size_t)b->places.n * (size_t)b->places.n * sizeof(uint64_t);
    link->rows = from->rows;
    memcpy(link->there, from->there, bytes);
    memcpy(link->back, from->back, bytes);
}

static struct perf_need need_of(const struct bench *b, enum perf_role role,
                                const struct part *part)
{
    const struct traffic *t = &b->traffic[role];
    int n = b->places.n;
    struct perf_need need = {0};

    for (int back = 0; back < 2; back++) {
        if (!(back ? part->back : part->there))
            continue;
        const uint64_t *bytes = back ? t->back : t->there;
        need.total += perf_traffic_total(bytes, n);
        need.busiest += perf_traffic_busiest(bytes, n);
        need.rows = t->rows;
    }
    return need;
}

/* --- benches -------------------------------------------------------------- */

static void *zeroed(size_t bytes)
{
    void *p = perf_alloc(bytes);
    memset(p, 0, bytes);
    return p;
}

static void bench_open(struct bench *b, size_t tokens, bool rows_needed)
{
    b->places = perf_group_places(b->g);
    size_t cells = (size_t)b->places.n * (size_t)b->places.n;
    for (int r = 0; r < PERF_ROLES; r++) {
        b->traffic[r].there = perf_alloc(cells * sizeof(uint64_t));
        b->traffic[r].back = perf_alloc(cells * sizeof(uint64_t));
    }
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
    b->dweight = NULL;
    if (b->o->op == PERF_BACKWARD)
        b->dweight = zeroed(tokens * (size_t)b->o->topk * sizeof(float));
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
    free(b->dweight);
    for (int r = 0; r < PERF_ROLES; r++) {
        free(b->traffic[r].there);
        free(b->traffic[r].back);
    }
}

/* --- sides ---------------------------------------------------------------- */

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
        .modes = b->o->modes,
        .partials = b->o->partials,
        .index = perf_token_experts(&b->routing, b->g->rank, 0),
        .weight = perf_token_weights(&b->routing, b->g->rank, 0),
        .x = b->x,
        .y = b->y,
        .total = b->total,
        .rows = own ? NULL : b->in,
        .out = own ? NULL : b->out,
        .dweight = b->dweight,
        .there = b->traffic[PERF_LINK].there,
        .back = b->traffic[PERF_LINK].back,
    };
    const char *why = "it has no calls that return at once";
    if (!b->o->overlap || side->engine->moe_start)
        why = side->engine->moe_open(&exchange, &side->state);
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

static void go(struct side *side, enum perf_go what)
{
    side->engine->moe_go(side->state, what);
}

/* An exchange as perf_measure() calls it, and its start. */
#define EXCHANGE(name, what)                        \
    static void name(void *state)                   \
    {                                               \
        go(state, what);                            \
    }                                               \
    static void start_##name(void *state)           \
    {                                               \
        struct side *side = state;                  \
        side->engine->moe_start(side->state, what); \
    }

EXCHANGE(dispatch, PERF_GO_DISPATCH)
EXCHANGE(combine, PERF_GO_COMBINE)
EXCHANGE(combine_backward, PERF_GO_COMBINE_BACKWARD)
EXCHANGE(dispatch_backward, PERF_GO_DISPATCH_BACKWARD)

static void test(void *state)
{
    struct side *side = state;
    side->engine->moe_test(side->state);
}

static void wait(void *state)
{
    struct side *side = state;
    side->engine->moe_wait(side->state);
}

/* By their numbers. */
static void (*const runs[])(void *) = {
    [PERF_GO_DISPATCH] = dispatch,
    [PERF_GO_COMBINE] = combine,
    [PERF_GO_COMBINE_BACKWARD] = combine_backward,
    [PERF_GO_DISPATCH_BACKWARD] = dispatch_backward,
};

static void (*const starts[])(void *) = {
    [PERF_GO_DISPATCH] = start_dispatch,
    [PERF_GO_COMBINE] = start_combine,
    [PERF_GO_COMBINE_BACKWARD] = start_combine_backward,
    [PERF_GO_DISPATCH_BACKWARD] = start_dispatch_backward,
};

static void settle(const struct side *side)
{
    if (side->engine->settle)
        side->engine->settle();
}

static void release(void *state)
{
    struct side *side = state;
    side->engine->moe_release(side->state);
}

static void fill_once(struct side *side, void *out)
{
    for (int i = 0; i < side->nfilled; i++)
        if (side->filled[i] == out)
            return;
    perf_fill_out(&side->bench->rows, out);
    if (side->nfilled < MAX_BUFFERS)
        side->filled[side->nfilled++] = out;
}

/* Make sure that the results are where combine and dispatch_backward read. */
static void answer(void *state)
{
    struct side *side = state;
    void *out = side->engine->moe_buffer(side->state, SHUNT_MOE_OUT);

    if (!out)
        return;
    fill_once(side, out);
    if (side->bench->o->op == PERF_BACKWARD)
        fill_once(side, side->engine->moe_buffer(side->state, SHUNT_MOE_DROWS));
}

/* Run one exchange on all ranks at once, as in a measurement. */
static void run_once(struct side *side, enum perf_go what)
{
    perf_gate_wait(side->bench->g);
    if (side->bench->o->overlap) {
        starts[what](side);
        wait(side);
    } else {
        go(side, what);
    }
    settle(side);
}

static void check_dispatch(struct side *side)
{
    const struct bench *b = side->bench;
    void *rows = side->engine->moe_buffer(side->state, SHUNT_MOE_ROWS);

    if (rows)
        memset(rows, PERF_POISON, b->total * b->row_bytes);
    run_once(side, PERF_GO_DISPATCH);
    if (rows) {
        bool fp8 = b->o->wire == SHUNT_MOE_WIRE_FP8 &&
                   side->engine == &perf_engine_shunt;
        side->wrong += (double)perf_check_dispatch(&b->rows, fp8, rows);
    }
}

/* Check combine, or dispatch_backward, which is the same without weights. */
static void check_sum(struct side *side, enum perf_go what)
{
    const struct bench *b = side->bench;

    answer(side);
    memset(b->y, PERF_POISON, b->routing.tokens * b->row_bytes);
    run_once(side, what);
    if (!side->engine->delivers)
        return;
    bool rounded =
        side->role == PERF_OURS && b->o->partials != SHUNT_MOE_PARTIALS_F32;
    side->wrong +=
        (double)perf_check_combine(&b->rows, what == PERF_GO_COMBINE,
                                   rounded ? b->g->node_of : NULL, b->y);
}

/* Check combine_backward after a combine, as in a training step. */
static void check_combine_backward(struct side *side)
{
    const struct bench *b = side->bench;
    void *dout = side->engine->moe_buffer(side->state, SHUNT_MOE_DOUT);
    size_t weights = b->routing.tokens * (size_t)b->o->topk;

    check_sum(side, PERF_GO_COMBINE);
    if (dout)
        memset(dout, PERF_POISON, b->total * b->row_bytes);
    memset(b->dweight, PERF_POISON, weights * sizeof(*b->dweight));
    run_once(side, PERF_GO_COMBINE_BACKWARD);
    if (!dout)
        return;
    side->wrong += (double)perf_check_combine_backward(&b->rows, dout);
    side->wrong += (double)perf_check_dweight(&b->rows, b->dweight);
}

static void check_exchange(struct side *side, enum perf_go what)
{
    if (what == PERF_GO_DISPATCH)
        check_dispatch(side);
    else if (what == PERF_GO_COMBINE_BACKWARD)
        check_combine_backward(side);
    else
        check_sum(side, what);
}

/* Make one step of each side on new data, and check it. */
static void try_once(struct bench *b, struct side *sides, int nsides, int round)
{
    b->rows.seed = b->o->seed + (uint64_t)round;
    perf_fill_x(&b->rows, b->x);
    for (int s = 0; s < nsides; s++) {
        sides[s].nfilled = 0;
        if (!keeps_plan(b->o))
            plan(&sides[s]);
        for (int i = 0; i < steps[b->o->op].n; i++)
            check_exchange(&sides[s], steps[b->o->op].go[i]);
        if (!keeps_plan(b->o))
            release(&sides[s]);
    }
}

/* --- measuring ------------------------------------------------------------ */

static struct perf_side timed_side(const struct perf_options *o,
                                   struct side *side)
{
    struct perf_side timed = {
        .state = side,
        .settle = side->engine->settle,
        .prepare = o->op == PERF_DISPATCH ? NULL : answer,
        .release = keeps_plan(o) ? NULL : release,
        .apart = keeps_plan(o),
    };

    if (!keeps_plan(o)) {
        timed.phase[timed.phases++] = plan;
        timed.plan_settle = side->engine->plan_settle;
    }
    for (int i = 0; i < steps[o->op].n; i++)
        timed.phase[timed.phases++] = runs[steps[o->op].go[i]];
    return timed;
}

/* The wire bytes of consecutive phases. */
static struct perf_wire wire_of(const struct perf_wire *phases,
                                const struct part *part)
{
    struct perf_wire sum = {
        .measured = phases[part->first].measured,
        .counted = phases[part->first].counted,
    };

    for (int p = part->first; p <= part->last; p++) {
        sum.total += phases[p].total;
        sum.busiest += phases[p].busiest;
        sum.payload += phases[p].payload;
    }
    return sum;
}

/* The measurements of a side. */
struct result {
    struct perf_series series;
    struct perf_overlap overlap; /* --overlap: instead of `series` */
    struct perf_wire wire[PERF_MAX_PHASES];
    double wrong;
};

/* Sum the sent rows and bytes over all ranks; only if Shunt sends rows between
 * nodes. */
static void set_sent(struct perf_row *row, const struct part *part,
                     const struct perf_sent *sent)
{
    row->sent_rows = -1;
    if (!sent || !(part->there || part->back))
        return;
    row->mode = perf_modes_name(sent->modes);
    row->sent_rows = (double)sent->rows;
    row->sent_bytes = (double)((part->there ? sent->dispatch : 0) +
                               (part->back ? sent->combine : 0));
}

static void print_part(const struct bench *b, const struct part *part,
                       const struct side *sides, int nsides,
                       const struct result *results,
                       const struct perf_sent *sent)
{
    size_t travels = (size_t)(part->there + part->back);
    struct perf_row row = {
        .op = part->name,
        .bytes =
            travels * b->routing.tokens * (size_t)b->o->topk * b->row_bytes,
        .count = b->routing.tokens,
        .bus = b->remote,
        .pair = b->pair,
        .samples = results[0].series.samples,
        .batch = results[0].series.batch,
        .checked = travels > 0,
        .part = travels == 0,
        .between = b->places.n > 1,
    };
    /* The plan has figures of dispatch and combine only. */
    set_sent(&row, part, b->o->op == PERF_BACKWARD ? NULL : sent);
    if (b->o->overlap) {
        row.samples = results[0].overlap.samples;
        row.batch = results[0].overlap.batch;
    }
    for (int s = 0; s < nsides; s++) {
        enum perf_role role = sides[s].role;
        const struct result *r = &results[s];

        /* A copy or a stream makes no plan. */
        if (!travels && !sides[s].engine->delivers)
            continue;
        row.has[role] = true;
        row.times[role] =
            b->o->overlap
                ? r->overlap.pure
                : perf_series_times(&r->series, part->first, part->last);
        row.overlap[role] = r->overlap;
        row.wrong[role] = r->wrong;
        row.need[role] = need_of(b, role, part);
        row.wire[role] = wire_of(r->wire, part);
    }
    perf_table_row(&row);
}

/* Make a plan to learn Shunt's mode; with `keep` it is not released. */
static struct perf_sent look_at_plan(struct side *side, bool keep)
{
    struct perf_sent sent;
    const struct perf_group *g = side->bench->g;

    plan(side);
    sent = perf_shunt_sent(side->state);
    sent.rows = (uint64_t)perf_sum(g, (double)sent.rows);
    sent.rows_plain = (uint64_t)perf_sum(g, (double)sent.rows_plain);
    sent.dispatch = (uint64_t)perf_sum(g, (double)sent.dispatch);
    sent.combine = (uint64_t)perf_sum(g, (double)sent.combine);
    if (!keep)
        release(side);
    return sent;
}

static void open_sides(struct bench *b, struct side *sides, int nsides,
                       struct perf_sent *sent)
{
    bool keep = keeps_plan(b->o);

    for (int s = 0; s < nsides; s++) {
        side_open(&sides[s]);
        if (sides[s].role == PERF_OURS)
            *sent = look_at_plan(&sides[s], keep);
        else if (keep)
            plan(&sides[s]);
    }
}

static void count_wire(const struct bench *b, const struct perf_side *timed,
                       struct result *r)
{
    double us = perf_series_times(&r->series, 0, timed->phases - 1).median;
    perf_wire_count(b->g, timed, perf_wire_calls(us), r->wire);
}

/* Measure the parts that are one exchange each, one after another. */
static void measure_overlap(struct bench *b, struct side *sides, int nsides,
                            struct result (*results)[PERF_MAX_SIDES])
{
    const struct perf_options *o = b->o;
    struct perf_plan how = {o->warmup, o->samples, o->batch, o->seconds};

    for (int i = 0; i < steps[o->op].n; i++) {
        struct perf_halves halves[PERF_MAX_SIDES];
        struct perf_overlap found[PERF_MAX_SIDES];

        for (int s = 0; s < nsides; s++)
            halves[s] = (struct perf_halves){
                .state = &sides[s],
                .start = starts[steps[o->op].go[i]],
                .test = test,
                .wait = wait,
                .settle = sides[s].engine->settle,
            };
        perf_overlap_measure(b->g, &how, o->tests, halves, nsides, found);
        for (int s = 0; s < nsides; s++)
            results[i][s] = (struct result){.overlap = found[s]};
    }
}

static void measure_steps(struct bench *b, struct side *sides, int nsides,
                          struct result *results)
{
    /* Steps of several dependent parts cannot be timed in batches. */
    int batch = keeps_plan(b->o) ? b->o->batch : 1;
    struct perf_plan how = {b->o->warmup, b->o->samples, batch, b->o->seconds};
    struct perf_side timed[PERF_MAX_SIDES];
    struct perf_series series[PERF_MAX_SIDES];

    for (int s = 0; s < nsides; s++)
        timed[s] = timed_side(b->o, &sides[s]);
    perf_measure(b->g, &how, timed, nsides, series);
    for (int s = 0; s < nsides; s++) {
        results[s] = (struct result){.series = series[s]};
        if (b->places.n > 1 && sides[s].role != PERF_LINK)
            count_wire(b, &timed[s], &results[s]);
    }
}

static void print_parts(const struct bench *b, const struct side *sides,
                        int nsides, struct result (*results)[PERF_MAX_SIDES],
                        const struct perf_sent *sent)
{
    int exchange = 0;

    for (const struct part *p = steps[b->o->op].parts; p->name; p++) {
        if (!b->o->overlap)
            print_part(b, p, sides, nsides, results[0], sent);
        else if (p->first == p->last && p->there + p->back)
            print_part(b, p, sides, nsides, results[exchange++], sent);
    }
}

static void measure(struct bench *b, struct side *sides, int nsides)
{
    struct result results[2][PERF_MAX_SIDES] = {{{.wrong = 0}}};
    struct perf_sent sent = {0};
    bool ours = sides[0].role == PERF_OURS;

    open_sides(b, sides, nsides, &sent);
    find_traffic(b, ours ? &sent : NULL);
    try_once(b, sides, nsides, 0);
    b->pair = perf_pair_latency(b->g);
    if (b->o->overlap)
        measure_overlap(b, sides, nsides, results);
    else
        measure_steps(b, sides, nsides, results[0]);
    try_once(b, sides, nsides, 1);

    for (int s = 0; s < nsides; s++)
        results[0][s].wrong = results[1][s].wrong =
            perf_sum(b->g, sides[s].wrong);
    print_parts(b, sides, nsides, results, ours ? &sent : NULL);
    for (int s = 0; s < nsides; s++) {
        if (keeps_plan(b->o))
            release(&sides[s]);
        perf_series_finish(&results[0][s].series);
        sides[s].engine->moe_close(sides[s].state);
    }
}

void perf_moe(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;
    bool rows_needed = false;

    for (int r = 0; r < PERF_ROLES; r++) {
        const struct perf_engine *engine = contest->engine[r];
        bool own = r == PERF_OURS && o->mem == PERF_MEM_WINDOW;
        rows_needed = rows_needed || (engine && engine->delivers && !own);
    }
    for (int i = 0; i < o->ntokens; i++) {
        struct bench b = {.o = o, .g = contest->group};
        struct side sides[PERF_MAX_SIDES] = {{0}};
        int nsides = 0;

        bench_open(&b, o->tokens[i], rows_needed);
        for (int r = 0; r < PERF_ROLES; r++)
            if (contest->engine[r])
                sides[nsides++] = (struct side){
                    .role = (enum perf_role)r,
                    .bench = &b,
                    .engine = contest->engine[r],
                };
        measure(&b, sides, nsides);
        bench_close(&b);
    }
}
