// SPDX-License-Identifier: Apache-2.0
/*
 * Measures dispatch, experts and combine in 1, 2, 4 and 8 parts, and in the
 * number that SHUNT_MOE_PARTS_AUTO has learned, in alternation. For each number
 * it also measures what the cutting costs: the experts alone, the exchanges
 * alone, and the plan.
 *
 * As in training, each run has its own plan. The plan is made and used once
 * before the timed run.
 */
#include "perf/tokens/moe_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/moe_parts.h>

#include "perf/base/statistics.h"
#include "perf/ranks/pair.h"
#include "perf/sampling/background_streams.h"
#include "perf/sampling/sample.h"
#include "perf/tables/table.h"
#include "perf/tokens/layer.h"
#include "perf/tokens/layer_fit.h"

/* AUTO is the index of SHUNT_MOE_PARTS_AUTO, after those of 1, 2, 4 and 8
 * parts. */
enum { AUTO = SHUNT_MOE_DEGREES, CUTS };
enum { TOGETHER, COMPUTE, EXCHANGE, PLAN, TIMES };
enum { MAX_LEARN = 1000 };

struct bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_bench tokens;
    struct layer layer;
    uint64_t *bytes;            /* (hosts, hosts) of dispatch and combine */
    struct perf_beside *beside; /* the plain streams; NULL: no bytes cross
                                 * between hosts */
    int plans;                  /* plans until AUTO was settled */
};

static void must(const struct bench *b, enum shunt_status st, const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(b->g->comm));
}

static int parts_of(int cut)
{
    return cut == AUTO ? SHUNT_MOE_PARTS_AUTO : 1 << cut;
}

/* --- what is timed -------------------------------------------------------- */

static void wait_all(struct layer *m, enum layer_exchange exchange)
{
    for (int p = 0; p < m->parts; p++)
        layer_wait(m, exchange, p);
}

static void start_all(struct layer *m, enum layer_exchange exchange)
{
    for (int p = 0; p < m->parts; p++)
        layer_start(m, exchange, p, 0);
}

static void together(struct layer *m)
{
    start_all(m, LAYER_DISPATCH_F);
    for (int p = 0; p < m->parts; p++) {
        layer_wait(m, LAYER_DISPATCH_F, p);
        layer_compute(m, LAYER_MLP_F, p, 0);
        layer_start(m, LAYER_COMBINE_F, p, 0);
    }
    wait_all(m, LAYER_COMBINE_F);
}

static void compute(struct layer *m)
{
    for (int p = 0; p < m->parts; p++)
        layer_compute(m, LAYER_MLP_F, p, 0);
}

static void exchange(struct layer *m)
{
    start_all(m, LAYER_DISPATCH_F);
    wait_all(m, LAYER_DISPATCH_F);
    start_all(m, LAYER_COMBINE_F);
    wait_all(m, LAYER_COMBINE_F);
}

static double cpu_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

/* Returns the time of one run on this rank, in microseconds. */
static double timed(const struct bench *b, void (*run)(struct layer *))
{
    double start;

    perf_gate_wait(b->g);
    start = perf_now_us();
    run((struct layer *)(uintptr_t)&b->layer);
    return perf_now_us() - start;
}

/* Time the computation while plain streams move the same bytes. */
static double timed_beside(const struct bench *b)
{
    double us;

    if (b->beside)
        perf_beside_begin(b->beside);
    us = timed(b, compute);
    if (b->beside)
        perf_beside_end(b->beside);
    return us;
}

static double timed_plan(const struct bench *b, int parts)
{
    const struct perf_bench *t = &b->tokens;
    struct shunt_moe_plan *plan;
    double us;

    perf_gate_wait(b->g);
    us = perf_now_us();
    must(b,
         shunt_moe_plan_create_parts(
             b->layer.moe, perf_token_experts(&t->routing, b->g->rank, 0),
             perf_token_weights(&t->routing, b->g->rank, 0), t->routing.tokens,
             parts, &plan),
         "plan");
    us = perf_now_us() - us;
    shunt_moe_plan_destroy(plan);
    return us;
}

/* --- before the measurement ----------------------------------------------- */

static void open_layer(struct bench *b, size_t inner)
{
    const struct layer_shape shape =
        layer_shape(b->o, b->tokens.routing.tokens, inner, 0);

    layer_open(&b->layer, &b->tokens, &shape);
}

static void open_streams(struct bench *b)
{
    b->bytes = layer_fit_bytes(&b->tokens, &b->layer, 1);
    if (b->bytes)
        b->beside = perf_beside_open(b->g->net, b->bytes);
}

/* Choose `inner` by the ratio that was asked for, or take it as given. */
static void choose_inner(struct bench *b)
{
    size_t inner = b->o->inner;

    open_layer(b, inner);
    open_streams(b);
    for (int i = 0; i < LAYER_FIT_TRIALS && b->o->ratio > 0; i++) {
        double c[3], r[3];

        layer_cut(&b->layer, 1);
        for (int turn = 0; turn < 3; turn++) {
            c[turn] = perf_max(b->g, timed_beside(b));
            r[turn] = perf_max(b->g, timed(b, exchange));
        }
        if (!layer_fit_inner(&inner, perf_median(r, 3) / perf_median(c, 3),
                             b->o->ratio))
            break;
        layer_close(&b->layer);
        open_layer(b, inner);
    }
}

/* Let the exchange learn its number of parts, as an application would. */
static void learn(struct bench *b)
{
    struct layer *m = &b->layer;
    struct shunt_moe_degree degree;

    for (b->plans = 0; b->plans < MAX_LEARN; b->plans++) {
        layer_cut(m, SHUNT_MOE_PARTS_AUTO);
        shunt_moe_degree(m->moe, m->shape.T, &degree, sizeof(degree));
        if (degree.settled)
            break;
        must(b, shunt_moe_plan_took(m->plan[0], timed(b, together) * 1e-6),
             "took");
    }
}

/* --- check ---------------------------------------------------------------- */

/* Compare the results of one part with the definition. Compare the results of
 * other numbers of parts with those of one part, bit for bit. */
static double check(struct bench *b)
{
    struct layer *m = &b->layer;
    const size_t bytes = m->shape.T * m->shape.D * sizeof(float);
    float *whole = perf_alloc(bytes);
    double wrong = 0;

    for (int cut = 0; cut < CUTS; cut++) {
        layer_cut(m, parts_of(cut));
        memset(m->yr, PERF_POISON, bytes);
        together(m);
        if (cut == 0) {
            memcpy(whole, m->yr, bytes);
            wrong += layer_check_experts(m);
        }
        for (size_t i = 0; i < m->shape.T * m->shape.D; i++)
            wrong += memcmp(&whole[i], &m->yr[i], sizeof(*whole)) != 0;
    }
    free(whole);
    return wrong;
}

/* --- rows ----------------------------------------------------------------- */

struct measured {
    double *us[CUTS][TIMES]; /* (samples) */
    double *cpu[CUTS];       /* (samples) CPU time of TOGETHER, summed over
                              * ranks */
    double *beside;          /* (samples) COMPUTE in one part, during plain
                              * streams */
    int parts[CUTS];
};

/* Measure one number of parts once; sample < 0 is a warm-up. */
static void take_turn(struct bench *b, struct measured *t, int cut, int sample)
{
    struct layer *m = &b->layer;
    double us[TIMES], cpu;

    layer_cut(m, parts_of(cut));
    t->parts[cut] = m->parts;
    cpu = cpu_us();
    us[TOGETHER] = timed(b, together);
    cpu = cpu_us() - cpu;
    if (cut == AUTO)
        must(b, shunt_moe_plan_took(m->plan[0], us[TOGETHER] * 1e-6), "took");
    us[COMPUTE] = timed(b, compute);
    us[EXCHANGE] = timed(b, exchange);
    us[PLAN] = timed_plan(b, m->parts);
    if (cut == 0 && sample >= 0)
        t->beside[sample] = perf_max(b->g, timed_beside(b));
    if (sample < 0)
        return;
    t->cpu[cut][sample] = perf_sum(b->g, cpu);
    for (int i = 0; i < TIMES; i++)
        t->us[cut][i][sample] = perf_max(b->g, us[i]);
}

static void print_row(struct bench *b, struct measured *t, int cut,
                      const struct perf_times *times, double wrong,
                      size_t samples)
{
    static const char *const names[CUTS] = {"parts-1", "parts-2", "parts-4",
                                            "parts-8", "parts-auto"};
    const struct perf_options *o = b->o;
    struct perf_row_parts parts = {
        .parts = t->parts[cut],
        .learned = cut == AUTO ? b->plans : 0,
        .compute = perf_median(t->us[cut][COMPUTE], samples),
        .exchange = perf_median(t->us[cut][EXCHANGE], samples),
        .plan = perf_median(t->us[cut][PLAN], samples),
        .beside = perf_median(t->beside, samples),
        .whole_compute = perf_median(t->us[0][COMPUTE], samples),
        .whole_exchange = perf_median(t->us[0][EXCHANGE], samples),
        .whole_plan = perf_median(t->us[0][PLAN], samples),
        .inner = b->layer.shape.F,
    };
    struct perf_row row = {
        .op = names[cut],
        .bytes = b->tokens.routing.tokens * (size_t)o->topk *
                 b->tokens.row_bytes * 2,
        .count = b->tokens.routing.tokens,
        .bus = b->tokens.remote,
        .samples = samples,
        .batch = 1,
        .pair = perf_pair_latency(b->g),
        .checked = true,
        .wrong = {wrong},
        .has = {[PERF_OURS] = true, [PERF_PEER] = true},
        .times = {times[cut], times[0]},
        .sent_rows = -1,
        .mode = perf_modes_name(
            (struct perf_modes){b->layer.at.mode, b->layer.at.combine_mode}),
        .parts = &parts,
    };

    for (int i = 0; i < AUTO; i++) {
        if (t->parts[i] == parts.parts)
            parts.given = times[i].median;
        /* AUTO is compared with the fastest of the given numbers. */
        if (cut == AUTO && times[i].median < row.times[PERF_PEER].median)
            row.times[PERF_PEER] = times[i];
    }
    perf_table_row(&row);
}

static void measure(struct bench *b)
{
    const size_t samples = (size_t)b->o->samples;
    struct perf_times times[CUTS];
    struct measured t;
    double wrong = check(b);

    t.beside = perf_alloc(samples * sizeof(double));
    for (int cut = 0; cut < CUTS; cut++) {
        t.cpu[cut] = perf_alloc(samples * sizeof(double));
        for (int i = 0; i < TIMES; i++)
            t.us[cut][i] = perf_alloc(samples * sizeof(double));
    }
    for (int i = -b->o->warmup; i < (int)samples; i++)
        for (int turn = 0; turn < CUTS; turn++)
            take_turn(b, &t, i % 2 ? CUTS - 1 - turn : turn, i);
    wrong = perf_sum(b->g, wrong + check(b));
    for (int cut = 0; cut < CUTS; cut++) {
        times[cut] = perf_times_of(t.us[cut][TOGETHER], samples);
        times[cut].cpu = perf_median(t.cpu[cut], samples);
    }
    for (int cut = 0; cut < CUTS; cut++)
        print_row(b, &t, cut, times, wrong, samples);
    for (int cut = 0; cut < CUTS; cut++) {
        free(t.cpu[cut]);
        for (int i = 0; i < TIMES; i++)
            free(t.us[cut][i]);
    }
    free(t.beside);
}

static void run(struct bench *b, size_t tokens)
{
    perf_bench_open(&b->tokens, tokens, false);
    choose_inner(b);
    learn(b);
    measure(b);
    if (b->beside)
        perf_beside_close(b->beside);
    layer_close(&b->layer);
    perf_bench_close(&b->tokens);
    free(b->bytes);
}

void perf_moe_parts(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;

    perf_table_note("timing of parts: %d warm-up runs, %d samples of each row",
                    o->warmup, o->samples);
    for (int i = 0; i < o->ntokens; i++) {
        struct bench b = {
            .o = o,
            .g = contest->group,
            .tokens = {.o = o, .g = contest->group},
        };

        if (o->tokens[i])
            run(&b, o->tokens[i]);
    }
}
