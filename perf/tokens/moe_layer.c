// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the forward and backward pass of a layer whose exchanges run while
 * it computes (T), in chains of layers. In alternation it measures
 *
 *     U  the same, but each exchange is waited for at once
 *     C  the computation alone, while plain streams move the same bytes between
 *        the hosts: the kernel needs CPU time for these bytes in any case,
 *        and no library can overlap that work
 *     R  the exchanges alone, one after the other
 *
 *     exposed = T - C        hidden = (C + R - T) / min(C, R)
 *
 * The matrix products are real, so ranks that share a core still do the same
 * work. Plans are made before the measurement, and the time to make one is
 * printed.
 */
#include "perf/tokens/moe_layer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/statistics.h"
#include "perf/ranks/pair.h"
#include "perf/sampling/sample.h"
#include "perf/tables/table.h"
#include "perf/tokens/layer_chain.h"
#include "perf/tokens/layer_fit.h"

enum { TRIAL_LAYERS = 8 };
/* The numbers of parts that settle_parts() tries, and how often. */
enum { DEGREES = 4, TURNS = 3 };
/* CHECKED: layers of a chain whose results are compared with the serial order.
 * DEFINED: layers of a chain that is compared with the definition. */
enum { CHECKED = 5, DEFINED = 2 };

struct bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_bench tokens;
    struct layer layer;
    struct layer_program program, serial;
    /* Times of operations alone, and of operations that ran during
     * exchanges. */
    struct layer_times alone, beside;
    int chains; /* chains added to `beside` */
    int layers; /* layers in a chain */
    double compute, communicate;
    /* Ratios: the time in parts over the time in one piece. */
    double cost_compute, cost_communicate;

    uint64_t *bytes; /* (hosts, hosts) per layer; NULL: no bytes cross between
                      * hosts */
    uint64_t *chain_bytes;
    pthread_t streams;
    bool streaming;

    /* Results of the serial order; used by check(). */
    float *y, *dx, *dw, *dweight;
};

/* --- streams during the computation --------------------------------------- */

static void *stream(void *arg)
{
    const struct bench *b = arg;

    perf_net_exchange(b->g->net, b->chain_bytes);
    return NULL;
}

static void begin_streams(struct bench *b)
{
    const size_t n = (size_t)b->g->hosts.n;

    if (!b->bytes)
        return;
    for (size_t i = 0; i < n * n; i++)
        b->chain_bytes[i] = b->bytes[i] * (uint64_t)b->layers;
    if (pthread_create(&b->streams, NULL, stream, b))
        perf_die(PERF_EXIT_FAILED, "no thread for streams");
    b->streaming = true;
}

/* Called outside the timed phase: only the computation is compared. */
static void end_streams(void *state)
{
    struct bench *b = state;

    if (b->streaming)
        pthread_join(b->streams, NULL);
    b->streaming = false;
}

static void find_bytes(struct bench *b)
{
    const size_t n = (size_t)b->g->hosts.n;

    /* A layer has two exchanges to the experts and two back. */
    b->bytes = layer_fit_bytes(&b->tokens, &b->layer, 2);
    if (b->bytes)
        b->chain_bytes = perf_alloc(n * n * sizeof(*b->bytes));
}

/* --- chains --------------------------------------------------------------- */

static void run_overlapped(void *state)
{
    struct bench *b = state;

    layer_chain(&b->layer, &b->program, b->layers, LAYER_OVERLAP, &b->beside);
    b->chains++;
}

static void run_serial(void *state)
{
    struct bench *b = state;
    struct layer_times unused = {0};

    layer_chain(&b->layer, &b->serial, b->layers, LAYER_SERIAL, &unused);
}

static void run_compute(void *state)
{
    struct bench *b = state;

    begin_streams(b);
    layer_chain(&b->layer, &b->serial, b->layers, LAYER_COMPUTE, &b->alone);
}

static void run_exchange(void *state)
{
    struct bench *b = state;

    layer_chain(&b->layer, &b->serial, b->layers, LAYER_EXCHANGE, &b->alone);
}

static void start_again(void *state)
{
    struct bench *b = state;

    layer_reset(&b->layer);
}

/* Replace each time by the maximum over all ranks. */
static void agree(const struct perf_group *g, struct layer_times *times)
{
    for (int i = 0; i < LAYER_OPS; i++)
        times->op[i] = perf_max(g, times->op[i]);
    for (int i = 0; i < LAYER_EXCHANGES; i++)
        times->exchange[i] = perf_max(g, times->exchange[i]);
}

/* Compute mean times per rank and layer, over all chains that ran exchanges
 * during computation: of the computation, of the starts and of the waits. */
static void find_beside(struct bench *b, struct perf_row_layer *layer)
{
    const struct layer_times *t = &b->beside;
    const double n = (double)b->g->ranks * b->chains * b->layers;
    double compute = 0;

    for (int i = 0; i < LAYER_OPS; i++)
        compute += t->op[i];
    layer->beside.compute = perf_sum(b->g, compute) / n;
    layer->beside.start = perf_sum(b->g, t->started) / n;
    for (int i = 0; i < LAYER_EXCHANGES; i++)
        layer->beside.wait[i] = perf_sum(b->g, t->waited[i]) / n;
}

/* --- before the measurement ----------------------------------------------- */

static double timed(const struct bench *b, void (*run)(void *))
{
    double start;

    perf_gate_wait(b->g);
    start = perf_now_us();
    run((void *)b);
    return perf_max(b->g, perf_now_us() - start) / b->layers;
}

/* Run computations and exchanges alone, twice: the first run warms up, the
 * second gives the times. */
static void try_alone(struct bench *b)
{
    for (int i = 0; i < 2; i++) {
        b->alone = (struct layer_times){0};
        b->compute = timed(b, run_compute);
        end_streams(b);
        b->communicate = timed(b, run_exchange);
    }
    agree(b->g, &b->alone);
}

static void open_layer(struct bench *b, size_t inner)
{
    const struct layer_shape shape =
        layer_shape(b->o, b->tokens.routing.tokens, inner, b->o->attention);

    layer_open(&b->layer, &b->tokens, &shape);
}

/* Choose `inner` by the ratio that was asked for, or take it as given. */
static void choose_inner(struct bench *b)
{
    size_t inner = b->o->inner;

    b->layers = TRIAL_LAYERS;
    open_layer(b, inner);
    find_bytes(b);
    for (int i = 0; i < LAYER_FIT_TRIALS && b->o->ratio > 0; i++) {
        try_alone(b);
        if (!layer_fit_inner(&inner, b->communicate / b->compute, b->o->ratio))
            break;
        layer_close(&b->layer);
        open_layer(b, inner);
    }
    b->layers = b->o->layers;
}

/* Set the order of operations for this number of parts. */
static void use_parts(struct bench *b, int parts)
{
    b->program = layer_program(b->o->micro_batches, parts);
    layer_program_times(&b->program, &b->alone, b->compute * b->cost_compute,
                        b->communicate * b->cost_communicate);
    layer_program_order(&b->program, b->o->order);
}

/* Measure how much longer products and exchanges take when cut into parts, and
 * use these factors for the order. */
static void try_parts(struct bench *b)
{
    const struct layer_program serial = b->serial;
    const struct layer_times alone = b->alone;
    const double compute = b->compute, communicate = b->communicate;

    if (b->program.parts == 1)
        return;
    b->serial = layer_program(b->o->micro_batches, b->program.parts);
    try_alone(b);
    b->cost_compute = b->compute / compute;
    b->cost_communicate = b->communicate / communicate;
    b->serial = serial;
    b->compute = compute;
    b->communicate = communicate;
    use_parts(b, b->program.parts);
    b->alone = alone;
}

/* Try 1, 2, 4 and 8 parts in turn. Choose the smallest number whose chains
 * take at most 1 % longer than the fastest. */
static void settle_parts(struct bench *b)
{
    const int layers = b->layers;
    double us[DEGREES][TURNS], median[DEGREES], least = 0;
    int best = 0;

    b->layers = TRIAL_LAYERS;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < DEGREES; i++) {
            layer_cut(&b->layer, 1 << i);
            use_parts(b, 1 << i);
            us[i][turn] = timed(b, run_overlapped);
        }
    for (int i = 0; i < DEGREES; i++) {
        median[i] = perf_median(us[i], TURNS);
        perf_table_note("trial: a layer in %d part(s) takes %.4g us", 1 << i,
                        median[i]);
        least = !i || median[i] < least ? median[i] : least;
    }
    while (median[best] > least * 1.01)
        best++;
    layer_cut(&b->layer, 1 << best);
    b->layers = layers;
}

static void choose_order(struct bench *b)
{
    b->cost_compute = b->cost_communicate = 1;
    try_alone(b);
    if (b->o->micro_batches == 1 && !b->o->parts)
        settle_parts(b);
    else if (b->o->parts > 1)
        layer_cut(&b->layer, b->o->parts);
    use_parts(b, b->layer.parts);
    try_parts(b);
    perf_table_note(
        "order of computation (_f forward, _b backward, _dw gradient "
        "of weights): %s",
        layer_program_text(&b->program));
}

/* --- check ---------------------------------------------------------------- */

static double differ(const float *a, const float *b, size_t n)
{
    double wrong = 0;

    for (size_t i = 0; i < n; i++)
        wrong += memcmp(&a[i], &b[i], sizeof(*a)) != 0;
    return wrong;
}

static void run_again(struct bench *b, void (*run)(void *))
{
    layer_reset(&b->layer);
    run(b);
    layer_finish_forward(&b->layer);
}

static float *kept(const float *from, size_t n)
{
    return memcpy(perf_alloc(n * sizeof(float)), from, n * sizeof(float));
}

/* Compare a short chain with the definition at some elements. Compare a longer
 * chain in this order with the serial order, bit for bit. */
static double check(struct bench *b)
{
    struct layer *m = &b->layer;
    const size_t rows = m->shape.T * m->shape.D,
                 weights = m->shape.T * (size_t)b->o->topk;
    const int layers = b->layers, some = layers < CHECKED ? layers : CHECKED;
    const float *const *dx = (const float *const *)m->dy;
    double wrong = 0;

    b->layers = DEFINED;
    run_again(b, run_serial);
    wrong += layer_check(m, DEFINED);
    b->layers = some;
    run_again(b, run_serial);
    b->y = kept(m->f.x1, rows);
    b->dx = kept(dx[some % 2], rows);
    b->dw = kept(m->dw.wa, m->nweights);
    b->dweight = kept(m->dweight, weights);
    run_again(b, run_overlapped);
    wrong += differ(b->y, m->f.x1, rows);
    wrong += differ(b->dx, dx[some % 2], rows);
    wrong += differ(b->dw, m->dw.wa, m->nweights);
    wrong += differ(b->dweight, m->dweight, weights);
    free(b->y);
    free(b->dx);
    free(b->dw);
    free(b->dweight);
    b->layers = layers;
    return wrong;
}

/* --- one row -------------------------------------------------------------- */

static struct perf_times of_layer(struct perf_times t, int layers)
{
    return (struct perf_times){
        .median = t.median / layers,
        .p99 = t.p99 / layers,
        .least = t.least / layers,
        .q1 = t.q1 / layers,
        .q3 = t.q3 / layers,
        .cpu = t.cpu / layers,
    };
}

static void measure(struct bench *b, double plan_us)
{
    const struct perf_options *o = b->o;
    const struct perf_plan plan = {o->warmup, o->samples, 1, o->seconds};
    struct perf_series series[PERF_MAX_SIDES];
    const struct perf_side sides[PERF_MAX_SIDES] = {
        {b, 1, {run_overlapped}, false, NULL, NULL, start_again, NULL},
        {b, 1, {run_serial}, false, NULL, NULL, start_again, NULL},
        {b,
         2,
         {run_compute, run_exchange},
         false,
         NULL,
         NULL,
         end_streams,
         NULL},
    };
    const size_t bytes = b->tokens.routing.tokens * (size_t)o->topk *
                         b->tokens.row_bytes * LAYER_EXCHANGES;
    struct perf_row_layer layer = {
        .micro_batches = o->micro_batches,
        .parts = b->program.parts,
        .layers = b->layers,
        .inner = b->layer.shape.F,
        .attention = b->layer.shape.A,
        .order = layer_program_text(&b->program),
        .plan = plan_us,
        .streams = b->bytes != NULL,
    };
    struct perf_row row = {
        .op = perf_op_name(o->op),
        .bytes = bytes,
        .count = b->tokens.routing.tokens,
        .bus = b->tokens.remote,
        .pair = perf_pair_latency(b->g),
        .checked = true,
        .has = {[PERF_OURS] = true, [PERF_PEER] = true},
        .sent_rows = -1,
        .mode = perf_modes_name(
            (struct perf_modes){b->layer.at.mode, b->layer.at.combine_mode}),
        .layer = &layer,
    };
    double wrong = check(b), all, attention;

    b->alone = b->beside = (struct layer_times){0};
    b->chains = 0;
    perf_measure(b->g, &plan, sides, PERF_MAX_SIDES, series);
    find_beside(b, &layer);
    wrong += check(b);
    agree(b->g, &b->alone);
    row.samples = series[0].samples;
    row.batch = series[0].batch;
    row.wrong[PERF_OURS] = perf_sum(b->g, wrong);
    for (int s = PERF_OURS; s <= PERF_PEER; s++)
        row.times[s] = of_layer(perf_series_times(&series[s], 0, 0), b->layers);
    layer.compute = perf_series_times(&series[2], 0, 0).median / b->layers;
    layer.communicate = perf_series_times(&series[2], 1, 1).median / b->layers;
    layer_program_times(&b->program, &b->alone, layer.compute * b->cost_compute,
                        layer.communicate * b->cost_communicate);
    layer.predicted = layer_program_time(&b->program, b->layers);
    all = attention = 0;
    for (int i = 0; i < LAYER_OPS; i++)
        all += b->alone.op[i];
    for (int i = 0; i < LAYER_OPS; i++)
        if (i == LAYER_ATTN_F || i == LAYER_ATTN_B || i == LAYER_ATTN_DW)
            attention += b->alone.op[i] / all;
    layer.attention_share = attention;
    for (int s = 0; s < PERF_MAX_SIDES; s++)
        perf_series_finish(&series[s]);
    perf_table_row(&row);
}

static double plan_time(const struct bench *b)
{
    const struct perf_bench *t = &b->tokens;
    double us[9];

    for (int i = 0; i < 9; i++) {
        struct shunt_moe_plan *plan;
        double start;

        perf_gate_wait(b->g);
        start = perf_now_us();
        if (shunt_moe_plan_create(
                b->layer.moe, perf_token_experts(&t->routing, b->g->rank, 0),
                perf_token_weights(&t->routing, b->g->rank, 0),
                t->routing.tokens, &plan) != SHUNT_OK)
            perf_die(PERF_EXIT_FAILED, "plan: %s",
                     shunt_last_error(b->g->comm));
        us[i] = perf_max(b->g, perf_now_us() - start);
        shunt_moe_plan_destroy(plan);
    }
    return perf_median(us, 9);
}

static void run(struct bench *b, size_t tokens)
{
    perf_bench_open(&b->tokens, tokens, false);
    b->serial = b->program = layer_program(b->o->micro_batches, 1);
    choose_inner(b);
    choose_order(b);
    measure(b, plan_time(b));
    layer_close(&b->layer);
    perf_bench_close(&b->tokens);
    free(b->bytes);
    free(b->chain_bytes);
}

void perf_moe_layer(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;

    perf_table_note(
        "timing of layers: chains of %d layers; %d warm-up chains, %d "
        "samples",
        o->layers, o->warmup, o->samples);
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
