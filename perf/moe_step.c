// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of a layer whose router is uneven, with balance, without, and with a
 * router that is even, in alternation. A step is forward and backward of one
 * micro-batch: a plan, dispatch, experts, combine, and the gradients of both; with
 * balance also what it costs: loads to all ranks, the decision, the placement, and
 * the experts' parameters to their copies and gradients home.
 *
 * An expert is a function that takes a given time for each row, twice that
 * backward, and sleeps in it: so there may be more ranks than cores, and what is
 * measured is how long the ranks wait for the one that has most rows. It
 * multiplies its rows by a parameter, the first of its bytes, which copies have
 * from the home. So results are wrong if a copy was not refreshed.
 *
 * Each sample is another step of the workload. All sides of a sample have its
 * tokens; the even router draws experts uniformly, for those that have some.
 */
#include "perf/moe_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/balance.h>
#include <shunt/moe_experts.h>

#include "perf/moe_bench.h"
#include "perf/pair.h"
#include "perf/sample.h"
#include "perf/table.h"

enum side { OFF, BALANCED, FORCED, SIDES };

/* Of the mean of loads (shunt_balance_predict()). */
#define THETA 0.9

/* What balance takes, in microseconds. */
enum { GATHER, DECIDE, PLACE, COSTS };

/* The experts' parameters and gradients of this rank: experts at home, in slots
 * 0, 1, ..., and copies behind them. */
struct experts {
    char *parameters, *gradients;
    int32_t *slot;   /* of the experts here, ascending */
    int32_t *expert; /* their numbers */
    int here;
};

struct bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_bench tokens; /* its x and y */
    struct perf_routing routing[SIDES];
    struct shunt_moe *moe[SIDES]; /* FORCED: that of OFF */
    struct experts own;           /* of BALANCED; the others': those at home */
    int64_t *rows;                /* (ranks, experts) of a step */
    double *loads, *predicted;    /* likewise, with PERF_BALANCE_REPLICAS */
    bool seen;                    /* a step: there is a prediction */
    int64_t *share; /* (experts + ranks * slots) rows of homes and copies */
    struct shunt_moe_replica *replicas; /* (ranks * slots) */
    size_t nreplicas;
    double cost[COSTS]; /* of this rank's latest step */
    double total;       /* rows of this rank's latest step */
    double wrong;
};

static void must(const struct bench *b, enum shunt_status st, const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(b->g->comm));
}

/* --- experts ---------------------------------------------------------------- */

/* An expert's parameter. */
static float factor(int expert)
{
    return 1 + (float)(expert % 8) / 8;
}

static int at_home(const struct bench *b)
{
    const struct perf_routing *r = &b->routing[OFF];

    return perf_first_expert(r, b->g->rank + 1) -
           perf_first_expert(r, b->g->rank);
}

static float *first_of(const struct bench *b, char *arrays, int i)
{
    return (float *)(void *)(arrays +
                             (size_t)b->own.slot[i] * b->o->expert_bytes);
}

/* Which experts are here, by the placement that was decided. */
static void list_experts(struct bench *b)
{
    struct experts *x = &b->own;
    const int first = perf_first_expert(&b->routing[OFF], b->g->rank);
    const int home = at_home(b);
    int copies = 0;

    x->here = 0;
    for (int e = 0; e < b->o->experts; e++) {
        bool here = e >= first && e < first + home;
        int slot = e - first;

        for (size_t i = 0; i < b->nreplicas && !here; i++)
            if (b->replicas[i].expert == e &&
                b->replicas[i].rank == b->g->rank) {
                here = true;
                slot = home + copies++;
            }
        if (here) {
            x->expert[x->here] = e;
            x->slot[x->here++] = slot;
        }
    }
}

static void open_experts(struct bench *b)
{
    struct experts *x = &b->own;
    const size_t most = (size_t)(at_home(b) + b->o->slots);
    const int first = perf_first_expert(&b->routing[OFF], b->g->rank);

    x->parameters = perf_alloc(most * b->o->expert_bytes);
    x->gradients = perf_alloc(most * b->o->expert_bytes);
    x->slot = perf_alloc(most * sizeof(*x->slot));
    x->expert = perf_alloc(most * sizeof(*x->expert));
    memset(x->parameters, 0, most * b->o->expert_bytes);
    memset(x->gradients, 0, most * b->o->expert_bytes);
    list_experts(b);
    for (int i = 0; i < x->here; i++)
        *first_of(b, x->parameters, i) = factor(first + i);
}

static void close_experts(struct experts *x)
{
    free(x->parameters);
    free(x->gradients);
    free(x->slot);
    free(x->expert);
}

static void nap(double us)
{
    struct timespec left = {.tv_sec = (time_t)(us * 1e-6)};

    left.tv_nsec = (long)((us - (double)left.tv_sec * 1e6) * 1e3);
    while (nanosleep(&left, &left) != 0)
        ;
}

/* to = parameter * from, of the rows of each expert here. */
static void compute(const struct bench *b, enum side side,
                    const struct shunt_moe_rows *rows, const float *from,
                    float *to, double times)
{
    const size_t D = b->o->hidden;

    for (int e = 0; e < rows->local_experts; e++) {
        float w = side == BALANCED ? *first_of(b, b->own.parameters, e)
                                   : factor(rows->expert[e]);
        size_t first = rows->offset[e] * D;

        for (size_t i = first; i < first + rows->count[e] * D; i++)
            to[i] = w * from[i];
    }
    nap((double)rows->total * b->o->expert_us * times);
}

/* --- balance ---------------------------------------------------------------- */

static double since(double *us)
{
    double now = perf_now_us(), passed = now - *us;

    *us = now;
    return passed;
}

/* The rows of this batch, of all ranks. */
static void gather(struct bench *b)
{
    const struct perf_routing *r = &b->routing[BALANCED];
    const struct perf_options *o = b->o;
    const int32_t *index = perf_token_experts(r, b->g->rank, 0);
    int64_t *mine = b->rows + (size_t)b->g->rank * (size_t)o->experts;

    memset(mine, 0, (size_t)o->experts * sizeof(*mine));
    for (size_t i = 0; i < r->tokens * (size_t)o->topk; i++)
        if (index[i] >= 0)
            mine[index[i]]++;
    must(b,
         shunt_allgather(b->g->comm, SHUNT_IN_PLACE, b->rows,
                         (size_t)o->experts, SHUNT_I64),
         "allgather");
}

/* What the batches before let expect; the plans' loads are everywhere. */
static void predict(struct bench *b)
{
    const size_t n = (size_t)b->g->ranks * (size_t)b->o->experts;

    for (size_t i = 0; i < n; i++)
        b->rows[i] = b->seen ? (int64_t)(b->predicted[i] + 0.5) : 0;
}

static void remember(struct bench *b, const struct shunt_moe_plan *plan)
{
    const size_t n = (size_t)b->g->ranks * (size_t)b->o->experts;

    must(b, shunt_moe_loads_by_source(plan, b->rows), "loads");
    for (size_t i = 0; i < n; i++)
        b->loads[i] = (double)b->rows[i];
    must(b,
         shunt_balance_predict(b->predicted, b->loads, n, b->seen ? THETA : 0),
         "predict");
    b->seen = true;
}

/* Decide for this batch, and tell the exchange. */
static void balance(struct bench *b)
{
    const struct perf_options *o = b->o;
    double us = perf_now_us();

    if (o->balance == PERF_BALANCE_REPLICAS)
        predict(b);
    else
        gather(b);
    b->cost[GATHER] = since(&us);
    must(b,
         shunt_balance_batch(b->rows, b->g->ranks, o->experts, NULL,
                             b->g->node_of, o->slots, o->leaf_rows, b->replicas,
                             b->share, &b->nreplicas, NULL),
         "balance_batch");
    b->cost[DECIDE] = since(&us);
    must(b,
         shunt_moe_set_shares(b->moe[BALANCED], NULL, b->replicas, b->nreplicas,
                              b->share),
         "set_shares");
    b->cost[PLACE] = since(&us);
    list_experts(b);
}

/* Parameters or gradients of the experts here. */
struct state {
    struct shunt_moe_array array;
    struct shunt_moe_state state;
};

static void describe(const struct bench *b, char *at, struct state *s)
{
    s->array = (struct shunt_moe_array){.at = at, .bytes = b->o->expert_bytes};
    s->state = (struct shunt_moe_state){
        .size = sizeof(s->state),
        .array = &s->array,
        .arrays = 1,
        .slot = b->own.slot,
    };
}

/* --- a step ----------------------------------------------------------------- */

static void wait_for(const struct bench *b, struct shunt_request **request)
{
    if (*request)
        must(b, shunt_wait(request), "wait");
}

static void step(struct bench *b, enum side side)
{
    const struct perf_routing *r = &b->routing[side];
    const struct perf_bench *t = &b->tokens;
    struct shunt_request *travels = NULL;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    struct state parameters, gradients;
    float *in, *out, *dout, *drows;

    if (side == BALANCED) {
        balance(b);
        describe(b, b->own.parameters, &parameters);
        must(b,
             shunt_moe_replicas_refresh_start(b->moe[side], &parameters.state,
                                              &travels),
             "refresh");
    }
    must(b,
         shunt_moe_plan_create(
             b->moe[side], perf_token_experts(r, b->g->rank, 0),
             perf_token_weights(r, b->g->rank, 0), r->tokens, &plan),
         "plan");
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    b->total = (double)rows.total;
    in = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    out = shunt_moe_buffer(plan, SHUNT_MOE_OUT);
    dout = shunt_moe_buffer(plan, SHUNT_MOE_DOUT);
    drows = shunt_moe_buffer(plan, SHUNT_MOE_DROWS);

    must(b, shunt_moe_dispatch(plan, t->x, in, rows.total), "dispatch");
    wait_for(b, &travels);
    compute(b, side, &rows, in, out, 1);
    must(b, shunt_moe_combine(plan, out, NULL, t->y), "combine");

    must(b,
         shunt_moe_combine_backward(plan, t->x, out, dout, rows.total,
                                    t->dweight),
         "combine_backward");
    compute(b, side, &rows, dout, drows, 2);
    if (side == BALANCED) {
        for (int e = 0; e < rows.local_experts; e++)
            *first_of(b, b->own.gradients, e) = (float)rows.count[e];
        describe(b, b->own.gradients, &gradients);
        must(b,
             shunt_moe_replicas_reduce_start(b->moe[side], &gradients.state,
                                             SHUNT_F32, &travels),
             "reduce");
    }
    must(b, shunt_moe_dispatch_backward(plan, drows, t->in),
         "dispatch_backward");
    wait_for(b, &travels);
    if (side == BALANCED && b->o->balance == PERF_BALANCE_REPLICAS)
        remember(b, plan);
    shunt_moe_plan_destroy(plan);
}

static double timed(struct bench *b, enum side side)
{
    double us;

    perf_gate_wait(b->g);
    us = perf_now_us();
    step(b, side);
    return perf_now_us() - us;
}

/* --- check ------------------------------------------------------------------ */

/* y and dx are x times what the experts' parameters give in sum; a home's
 * gradient is the rows of all copies. */
static void check(struct bench *b, enum side side)
{
    const struct perf_routing *r = &b->routing[side];
    const size_t D = b->o->hidden, topk = (size_t)b->o->topk;
    const float *x = b->tokens.x, *y = b->tokens.y, *dx = b->tokens.in;
    const int32_t *e = perf_token_experts(r, b->g->rank, 0);
    const float *w = perf_token_weights(r, b->g->rank, 0);

    for (size_t t = 0; t < r->tokens; t++) {
        double sum = 0;

        for (size_t k = t * topk; k < (t + 1) * topk; k++)
            if (e[k] >= 0)
                sum += (double)w[k] * (double)factor(e[k]);
        for (size_t i = t * D; i < (t + 1) * D; i++) {
            double want = sum * (double)x[i];
            double bound = fabs(want) * (double)(topk + 2) * 0x1p-23;

            b->wrong += !(fabs((double)y[i] - want) <= bound) +
                        !(fabs((double)dx[i] - want) <= bound);
        }
    }
    if (side != BALANCED)
        return;
    for (int i = 0; i < b->own.here; i++) {
        const size_t all = (size_t)r->ranks * r->tokens * topk;
        size_t rows = 0;

        for (size_t j = 0; j < all; j++)
            rows += r->index[j] == b->own.expert[i];
        b->wrong += b->own.slot[i] < at_home(b) &&
                    *first_of(b, b->own.gradients, i) != (float)rows;
    }
}

/* --- samples ---------------------------------------------------------------- */

struct measured {
    double *us[SIDES], *cpu[SIDES]; /* by sample */
    double *most[SIDES];            /* rows of the busiest rank over the mean */
    double *cost[COSTS];
    double copies; /* of all steps, in sum */
};

static void route(struct bench *b, int sample)
{
    struct perf_routing_config c =
        perf_bench_config(&b->tokens, b->tokens.routing.tokens);
    const char *wrong;

    c.step = (size_t)sample;
    for (int s = 0; s < SIDES; s++) {
        if (s == FORCED)
            c.skew = PERF_SKEW_UNIFORM;
        perf_routing_finish(&b->routing[s]);
        wrong = perf_routing_init(&b->routing[s], &c);
        if (wrong)
            perf_die(PERF_EXIT_USAGE, "%s", wrong);
    }
    for (size_t i = 0; i < (size_t)c.ranks * c.tokens * (size_t)c.topk; i++)
        if (b->routing[OFF].index[i] < 0)
            b->routing[FORCED].index[i] = -1;
}

/* Of the rows of a step that all ranks have made. */
static double imbalance(const struct bench *b)
{
    const double sum = perf_sum(b->g, b->total);

    return sum > 0 ? perf_max(b->g, b->total) * b->g->ranks / sum : 1;
}

static double cpu_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

/* sample < 0: to warm up. */
static void take(struct bench *b, struct measured *m, enum side side,
                 int sample, bool checked)
{
    double cpu = cpu_us(), us = timed(b, side), most = imbalance(b);

    cpu = cpu_us() - cpu;
    if (checked)
        check(b, side);
    if (sample < 0)
        return;
    m->us[side][sample] = perf_max(b->g, us);
    m->cpu[side][sample] = perf_sum(b->g, cpu);
    m->most[side][sample] = most;
    for (int i = 0; i < COSTS && side == BALANCED; i++)
        m->cost[i][sample] = perf_max(b->g, b->cost[i]);
    if (side == BALANCED)
        m->copies += (double)b->nreplicas;
}

static double worst(const double *values, size_t n)
{
    double most = values[0];

    for (size_t i = 1; i < n; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

static double mean(const double *values, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return sum / (double)n;
}

static void print_row(struct bench *b, struct measured *m, size_t samples)
{
    const bool on = b->o->balance != PERF_BALANCE_OFF;
    struct perf_times times[SIDES];
    struct perf_row_step step = {
        .slots = on ? b->o->slots : 0,
        .copies = m->copies / (double)samples,
        .expert_us = b->o->expert_us,
        .expert_bytes = b->o->expert_bytes,
        .leaf_rows = b->o->leaf_rows,
        .mean = mean(m->us[on ? BALANCED : OFF], samples),
        .mean_without = mean(m->us[OFF], samples),
        .mean_forced = mean(m->us[FORCED], samples),
        .without = worst(m->most[OFF], samples),
        .with = worst(m->most[on ? BALANCED : OFF], samples),
    };
    struct perf_row row = {
        .op = "moe-step",
        .bytes = b->tokens.routing.tokens * (size_t)b->o->topk *
                 b->tokens.row_bytes * 4,
        .count = b->tokens.routing.tokens,
        .bus = b->tokens.remote,
        .samples = samples,
        .batch = 1,
        .pair = perf_pair_latency(b->g),
        .checked = true,
        .has = {[PERF_OURS] = true, [PERF_PEER] = on},
        .wrong = {perf_sum(b->g, b->wrong)},
        .sent_rows = -1,
        .step = &step,
    };

    for (int s = 0; s < SIDES; s++) {
        if (s == BALANCED && !on)
            continue;
        times[s] = perf_times_of(m->us[s], samples);
        times[s].cpu = perf_median(m->cpu[s], samples);
    }
    row.times[PERF_OURS] = times[on ? BALANCED : OFF];
    row.times[PERF_PEER] = times[OFF];
    step.forced = times[FORCED].median;
    if (on) {
        step.gather = perf_median(m->cost[GATHER], samples);
        step.decide = perf_median(m->cost[DECIDE], samples);
        step.place = perf_median(m->cost[PLACE], samples);
    }
    perf_table_row(&row);
}

static void measure(struct bench *b)
{
    const int samples = b->o->samples;
    const size_t bytes = (size_t)samples * sizeof(double);
    const bool on = b->o->balance != PERF_BALANCE_OFF;
    struct measured m = {.copies = 0};

    for (int s = 0; s < SIDES; s++) {
        m.us[s] = perf_alloc(bytes);
        m.cpu[s] = perf_alloc(bytes);
        m.most[s] = perf_alloc(bytes);
    }
    for (int i = 0; i < COSTS; i++)
        m.cost[i] = perf_alloc(bytes);
    for (int i = -b->o->warmup; i < samples; i++) {
        route(b, i < 0 ? 0 : i);
        for (int turn = 0; turn < SIDES; turn++) {
            int side = i % 2 ? SIDES - 1 - turn : turn;

            if (side != BALANCED || on)
                take(b, &m, (enum side)side, i, i <= 0 || i == samples - 1);
        }
    }
    print_row(b, &m, (size_t)samples);
    for (int s = 0; s < SIDES; s++) {
        free(m.us[s]);
        free(m.cpu[s]);
        free(m.most[s]);
    }
    for (int i = 0; i < COSTS; i++)
        free(m.cost[i]);
}

/* --- benches ---------------------------------------------------------------- */

static void open_exchanges(struct bench *b)
{
    const struct perf_options *o = b->o;
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;

    config.hidden = o->hidden;
    config.dtype = o->dtype;
    config.experts = o->experts;
    config.topk = o->topk;
    config.max_tokens = b->tokens.routing.tokens;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.wire = o->wire;
    config.mode = o->modes.there;
    config.combine_mode = o->modes.back;
    config.partials = o->partials;
    config.leaf_rows = o->leaf_rows;
    for (int s = OFF; s <= BALANCED; s++)
        must(b, shunt_moe_create(b->g->comm, &config, &b->moe[s]),
             "moe_create");
    b->moe[FORCED] = b->moe[OFF];
}

static void run(struct bench *b, size_t tokens)
{
    const struct perf_options *o = b->o;
    const size_t ranks = (size_t)b->g->ranks, most = ranks * (size_t)o->slots;

    perf_bench_open(&b->tokens, tokens, false);
    b->tokens.rows.seed = o->seed;
    perf_fill_x(&b->tokens.rows, b->tokens.x);
    b->tokens.in = perf_alloc(tokens * b->tokens.row_bytes);
    b->tokens.dweight =
        perf_alloc(tokens * (size_t)o->topk * sizeof(*b->tokens.dweight));
    route(b, 0);
    b->rows = perf_alloc(ranks * (size_t)o->experts * sizeof(*b->rows));
    b->replicas = perf_alloc(most * sizeof(*b->replicas));
    b->share = perf_alloc(((size_t)o->experts + most) * sizeof(*b->share));
    b->loads = perf_alloc(ranks * (size_t)o->experts * sizeof(double));
    b->predicted = perf_alloc(ranks * (size_t)o->experts * sizeof(double));
    memset(b->predicted, 0, ranks * (size_t)o->experts * sizeof(double));
    open_exchanges(b);
    open_experts(b);
    measure(b);
    close_experts(&b->own);
    shunt_moe_destroy(b->moe[OFF]);
    shunt_moe_destroy(b->moe[BALANCED]);
    for (int s = 0; s < SIDES; s++)
        perf_routing_finish(&b->routing[s]);
    free(b->rows);
    free(b->replicas);
    free(b->share);
    free(b->loads);
    free(b->predicted);
    perf_bench_close(&b->tokens);
}

void perf_moe_step(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;

    perf_table_note("timing of steps: %d to warm up, %d samples of each, of "
                    "steps 0, 1, ... of the workload",
                    o->warmup, o->samples);
    perf_table_note("experts: sleep %g us for a row, twice that backward, "
                    "whatever the cores do; %zu bytes of parameters each",
                    o->expert_us, o->expert_bytes);
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
