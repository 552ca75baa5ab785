// SPDX-License-Identifier: Apache-2.0
/*
 * Measures exchanges of tokens.
 *
 * A step of dispatch or moe makes a plan, uses it and releases it, as a
 * training step does. Each part is timed separately, after all ranks have
 * arrived at the gate, and sums of parts are taken sample by sample. The time
 * to release a plan counts as planning. combine alone and backward keep one
 * plan, and so do measurements with a computation (--overlap).
 *
 * No expert computes between dispatch and combine. The experts' results are
 * written into a buffer when it is first used, which is not timed.
 */
#include "perf/tokens/moe.h"

#include "perf/base/random.h"
#include "perf/ranks/pair.h"
#include "perf/sampling/sample.h"
#include "perf/sampling/wire.h"
#include "perf/tables/table.h"
#include "perf/tokens/moe_side.h"

/* A line of the table: the time of consecutive phases of a step. */
struct part {
    const char *name;
    int first, last;  /* numbers of these phases */
    bool there, back; /* rows are sent to the experts; rows are sent back */
};

static const struct part dispatch_parts[] = {
    {"plan", 0, 0, false, false},
    {"dispatch", 1, 1, true, false},
    {"plan+dispatch", 0, 1, true, false},
    {NULL, 0, 0, false, false},
};

static const struct part combine_parts[] = {
    {"combine", 0, 0, false, true},
    {NULL, 0, 0, false, false},
};

static const struct part moe_parts[] = {
    {"plan", 0, 0, false, false},
    {"dispatch", 1, 1, true, false},
    {"combine", 2, 2, false, true},
    {"dispatch+combine", 1, 2, true, true},
    {"plan+dispatch+combine", 0, 2, true, true},
    {NULL, 0, 0, false, false},
};

static const struct part backward_parts[] = {
    {"combine_backward", 0, 0, true, false},
    {"dispatch_backward", 1, 1, false, true},
    {"backward", 0, 1, true, true},
    {NULL, 0, 0, false, false},
};

/* How an operation is measured: the lines of its table, and the calls of one
 * step. */
struct steps {
    const struct part *parts;
    bool plans; /* true: each step makes a plan; false: all steps use one
                 * plan */
    int n;
    /* The n calls of a step. Each is a phase. If `plans`, phase 0 makes the
     * plan. */
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

/* --- measuring ------------------------------------------------------------ */

/* Make one step of each side on new data, and check it. */
static void try_once(struct perf_bench *b, struct perf_moe_side *sides,
                     int nsides, int round)
{
    b->rows.seed = b->o->seed + (uint64_t)round;
    perf_fill_x(&b->rows, perf_bench_host(b, b->x));
    perf_bench_put(b, b->x, b->routing.tokens * b->row_bytes);
    for (int s = 0; s < nsides; s++) {
        sides[s].nfilled = 0;
        if (!keeps_plan(b->o))
            perf_moe_side_plan(&sides[s]);
        for (int i = 0; i < steps[b->o->op].n; i++)
            perf_moe_side_check(&sides[s], steps[b->o->op].go[i]);
        if (!keeps_plan(b->o))
            perf_moe_side_release(&sides[s]);
    }
}

static struct perf_side timed_side(const struct perf_options *o,
                                   struct perf_moe_side *side)
{
    struct perf_side timed = {
        .state = side,
        .settle = side->engine->settle,
        .prepare = o->op == PERF_DISPATCH ? NULL : perf_moe_side_answer,
        .release = keeps_plan(o) ? NULL : perf_moe_side_release,
        .apart = keeps_plan(o),
    };

    if (!keeps_plan(o)) {
        timed.phase[timed.phases++] = perf_moe_side_plan;
        timed.plan_settle = side->engine->plan_settle;
    }
    for (int i = 0; i < steps[o->op].n; i++)
        timed.phase[timed.phases++] = perf_moe_side_runs[steps[o->op].go[i]];
    return timed;
}

/* Sum the wire bytes of consecutive phases. */
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
    struct perf_overlap overlap; /* with --overlap, instead of `series` */
    struct perf_wire wire[PERF_MAX_PHASES];
    double wrong;
};

/* Set the rows and bytes that all ranks sent, if Shunt sent rows between
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

/* Print the time of one copy of all bytes, with --mem device. */
static void print_whole(const struct perf_row *row)
{
    const double us = row->times[PERF_WHOLE].median;

    perf_table_note(
        "  one copy of as many bytes: %.4g us (%.3f GB/s); share of "
        "that bandwidth: %.3f",
        us, perf_row_rate((double)row->bytes, us), perf_row_share(row));
}

static void print_part(const struct perf_bench *b, const struct part *part,
                       const struct perf_moe_side *sides, int nsides,
                       const struct result *results,
                       const struct perf_sent *sent)
{
    size_t travels = (size_t)part->there + (size_t)part->back;
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
    /* A plan has figures for dispatch and combine only. */
    set_sent(&row, part, b->o->op == PERF_BACKWARD ? NULL : sent);
    if (b->o->overlap) {
        row.samples = results[0].overlap.samples;
        row.batch = results[0].overlap.batch;
    }
    for (int s = 0; s < nsides; s++) {
        enum perf_role role = sides[s].role;
        const struct result *r = &results[s];

        /* memcpy and plain streams make no plan. */
        if (!travels && !sides[s].engine->delivers)
            continue;
        row.has[role] = true;
        row.times[role] =
            b->o->overlap
                ? r->overlap.pure
                : perf_series_times(&r->series, part->first, part->last);
        row.overlap[role] = r->overlap;
        row.wrong[role] = r->wrong;
        row.need[role] = perf_bench_need(b, role, part->there, part->back);
        row.wire[role] = wire_of(r->wire, part);
    }
    perf_table_row(&row);
    if (row.has[PERF_WHOLE] && row.has[PERF_OURS])
        print_whole(&row);
}

/* Make a plan to find the mode that Shunt chose and the rows it sends. With
 * `keep` the plan is not released. */
static struct perf_sent look_at_plan(struct perf_moe_side *side, bool keep)
{
    struct perf_sent sent;
    const struct perf_group *g = side->bench->g;

    perf_moe_side_plan(side);
    sent = perf_shunt_sent(side->state);
    sent.rows = (uint64_t)perf_sum(g, (double)sent.rows);
    sent.rows_plain = (uint64_t)perf_sum(g, (double)sent.rows_plain);
    sent.dispatch = (uint64_t)perf_sum(g, (double)sent.dispatch);
    sent.combine = (uint64_t)perf_sum(g, (double)sent.combine);
    if (!keep)
        perf_moe_side_release(side);
    return sent;
}

static void open_sides(struct perf_bench *b, struct perf_moe_side *sides,
                       int nsides, struct perf_sent *sent)
{
    bool keep = keeps_plan(b->o);

    for (int s = 0; s < nsides; s++) {
        perf_moe_side_open(&sides[s]);
        if (sides[s].role == PERF_OURS)
            *sent = look_at_plan(&sides[s], keep);
        else if (keep)
            perf_moe_side_plan(&sides[s]);
    }
}

static void count_wire(const struct perf_bench *b,
                       const struct perf_side *timed, struct result *r)
{
    double us = perf_series_times(&r->series, 0, timed->phases - 1).median;
    perf_wire_count(b->g, timed, perf_wire_calls(us), r->wire);
}

/* Measure the parts that are one exchange each, one after another. */
static void measure_overlap(struct perf_bench *b, struct perf_moe_side *sides,
                            int nsides,
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
                .start = perf_moe_side_starts[steps[o->op].go[i]],
                .test = perf_moe_side_test,
                .wait = perf_moe_side_wait,
                .settle = sides[s].engine->settle,
            };
        perf_overlap_measure(b->g, &how, o->tests, halves, nsides, found);
        for (int s = 0; s < nsides; s++)
            results[i][s] = (struct result){.overlap = found[s]};
    }
}

static void measure_steps(struct perf_bench *b, struct perf_moe_side *sides,
                          int nsides, struct result *results)
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
        if (b->places.n > 1 && sides[s].role <= PERF_PEER)
            count_wire(b, &timed[s], &results[s]);
    }
}

static void print_parts(const struct perf_bench *b,
                        const struct perf_moe_side *sides, int nsides,
                        struct result (*results)[PERF_MAX_SIDES],
                        const struct perf_sent *sent)
{
    int exchange = 0;

    for (const struct part *p = steps[b->o->op].parts; p->name; p++) {
        if (!b->o->overlap)
            print_part(b, p, sides, nsides, results[0], sent);
        else if (p->first == p->last && (p->there || p->back))
            print_part(b, p, sides, nsides, results[exchange++], sent);
    }
}

static void measure(struct perf_bench *b, struct perf_moe_side *sides,
                    int nsides)
{
    struct result results[2][PERF_MAX_SIDES] = {{{.wrong = 0}}};
    struct perf_sent sent = {0};
    bool ours = sides[0].role == PERF_OURS;

    open_sides(b, sides, nsides, &sent);
    perf_bench_find_traffic(b, ours ? &sent : NULL);
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
            perf_moe_side_release(&sides[s]);
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
        struct perf_bench b = {.o = o, .g = contest->group};
        struct perf_moe_side sides[PERF_MAX_SIDES] = {{0}};
        int nsides = 0;

        perf_bench_open(&b, o->tokens[i], rows_needed);
        for (int r = 0; r < PERF_ROLES; r++)
            if (contest->engine[r])
                sides[nsides++] = (struct perf_moe_side){
                    .role = (enum perf_role)r,
                    .bench = &b,
                    .engine = contest->engine[r],
                };
        measure(&b, sides, nsides);
        perf_bench_close(&b);
    }
}
