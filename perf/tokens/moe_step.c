// SPDX-License-Identifier: Apache-2.0
/*
 * Measures steps of a layer in three versions, in alternation: an uneven router
 * with balance, the same router without, and an even router. A step is the
 * forward and backward pass of one micro-batch: a plan, dispatch, experts,
 * combine, and the gradients of both. With balance a step also includes the
 * work for it: all ranks exchange loads, decide and set the placement. The
 * experts' parameters are sent to their copies, and the copies' gradients to
 * the homes.
 *
 * An expert is a function that sleeps for a given time per row, and twice as
 * long backward. So there may be more ranks than cores. The measured time shows
 * how long the ranks wait for the rank with most rows. An expert multiplies its
 * rows by a parameter, the first of its bytes, which its copies receive from
 * the home. So results are wrong if a copy was not refreshed.
 *
 * Each sample is another step of the workload. All versions in a sample use the
 * same tokens. The even router draws experts uniformly for the tokens that have
 * some.
 */
#include "perf/tokens/moe_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/base/statistics.h"
#include "perf/ranks/pair.h"
#include "perf/sampling/sample.h"
#include "perf/tables/table.h"
#include "perf/tokens/step.h"

static double timed(struct step *b, enum step_side side)
{
    double us;

    perf_gate_wait(b->g);
    us = perf_now_us();
    step_run(b, side);
    return perf_now_us() - us;
}

/* --- check ---------------------------------------------------------------- */

/* Check that y and dx are x times the weighted sum of the experts' parameters.
 * Check that the gradient at a home counts the rows of all copies. */
static void check(struct step *b, enum step_side side)
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
                sum += (double)w[k] * (double)step_factor(e[k]);
        for (size_t i = t * D; i < (t + 1) * D; i++) {
            double want = sum * (double)x[i];
            double bound = fabs(want) * (double)(topk + 2) * 0x1p-23;

            b->wrong += !(fabs((double)y[i] - want) <= bound) +
                        !(fabs((double)dx[i] - want) <= bound);
        }
    }
    if (side != STEP_BALANCED)
        return;
    for (int i = 0; i < b->own.here; i++) {
        const size_t all = (size_t)r->ranks * r->tokens * topk;
        size_t rows = 0;

        for (size_t j = 0; j < all; j++)
            rows += r->index[j] == b->own.expert[i];
        b->wrong += !step_is_copy(b, i) &&
                    *step_first_of(b, b->own.gradients, i) != (float)rows;
    }
}

/* --- samples -------------------------------------------------------------- */

struct measured {
    double *us[STEP_SIDES], *cpu[STEP_SIDES]; /* (samples) */
    double *most[STEP_SIDES]; /* (samples) busiest rank's rows over the mean */
    double *phase[STEP_SIDES][STEP_PHASES];
    double copies; /* number of copies, summed over all steps */
};

static void route(struct step *b, int sample)
{
    struct perf_routing_config c =
        perf_bench_config(&b->tokens, b->tokens.routing.tokens);
    const char *wrong;

    c.step = (size_t)sample;
    for (int s = 0; s < STEP_SIDES; s++) {
        if (s == STEP_FORCED)
            c.skew = PERF_SKEW_UNIFORM;
        perf_routing_finish(&b->routing[s]);
        wrong = perf_routing_init(&b->routing[s], &c);
        if (wrong)
            perf_die(PERF_EXIT_USAGE, "%s", wrong);
    }
    for (size_t i = 0; i < (size_t)c.ranks * c.tokens * (size_t)c.topk; i++)
        if (b->routing[STEP_OFF].index[i] < 0)
            b->routing[STEP_FORCED].index[i] = -1;
}

/* Returns the rows of the busiest rank over the mean of all ranks, in one
 * step. */
static double imbalance(const struct step *b)
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

/* Run one step; sample < 0 is a warm-up and is not recorded. */
static void take(struct step *b, struct measured *m, enum step_side side,
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
    for (int i = 0; i < STEP_PHASES; i++)
        m->phase[side][i][sample] = perf_max(b->g, b->phase[i]);
    if (side == STEP_BALANCED)
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

/* Print, for each phase, the time of its slowest rank. A rank that waits for
 * another in an exchange counts the wait as its own time. */
static void print_phases(struct step *b, struct measured *m, size_t samples)
{
    const bool on = b->o->balance != PERF_BALANCE_OFF;

    perf_table_note("  phases, medians of the slowest rank (us); columns:%s",
                    on ? " with balance, without, with an even router"
                       : " without balance, with an even router");
    for (int i = 0; i < STEP_PHASES; i++) {
        const double off = perf_median(m->phase[STEP_OFF][i], samples);
        const double even = perf_median(m->phase[STEP_FORCED][i], samples);
        const char *name = step_phase_name((enum step_phase)i);

        if (on)
            perf_table_note("    %-30s %9.0f %9.0f %9.0f", name,
                            perf_median(m->phase[STEP_BALANCED][i], samples),
                            off, even);
        else
            perf_table_note("    %-30s %9.0f %9.0f", name, off, even);
    }
}

static void print_row(struct step *b, struct measured *m, size_t samples)
{
    const bool on = b->o->balance != PERF_BALANCE_OFF;
    struct perf_times times[STEP_SIDES];
    struct perf_row_step step = {
        .slots = on ? b->o->slots : 0,
        .copies = m->copies / (double)samples,
        .expert_us = b->o->expert_us,
        .expert_bytes = b->o->expert_bytes,
        .leaf_rows = b->o->leaf_rows,
        .within = b->o->within,
        .copy_us = b->o->copy_us,
        .mean = mean(m->us[on ? STEP_BALANCED : STEP_OFF], samples),
        .mean_without = mean(m->us[STEP_OFF], samples),
        .mean_forced = mean(m->us[STEP_FORCED], samples),
        .without = worst(m->most[STEP_OFF], samples),
        .with = worst(m->most[on ? STEP_BALANCED : STEP_OFF], samples),
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

    for (int s = 0; s < STEP_SIDES; s++) {
        if (s == STEP_BALANCED && !on)
            continue;
        times[s] = perf_times_of(m->us[s], samples);
        times[s].cpu = perf_median(m->cpu[s], samples);
    }
    row.times[PERF_OURS] = times[on ? STEP_BALANCED : STEP_OFF];
    row.times[PERF_PEER] = times[STEP_OFF];
    step.forced = times[STEP_FORCED].median;
    if (on) {
        step.gather = perf_median(m->phase[STEP_BALANCED][STEP_LOADS], samples);
        step.decide =
            perf_median(m->phase[STEP_BALANCED][STEP_DECISION], samples);
        step.place = perf_median(m->phase[STEP_BALANCED][STEP_PLACE], samples);
    }
    perf_table_row(&row);
    print_phases(b, m, samples);
}

static void measure(struct step *b)
{
    const int samples = b->o->samples;
    const size_t bytes = (size_t)samples * sizeof(double);
    const bool on = b->o->balance != PERF_BALANCE_OFF;
    struct measured m = {.copies = 0};

    for (int s = 0; s < STEP_SIDES; s++) {
        m.us[s] = perf_alloc(bytes);
        m.cpu[s] = perf_alloc(bytes);
        m.most[s] = perf_alloc(bytes);
        for (int i = 0; i < STEP_PHASES; i++)
            m.phase[s][i] = perf_alloc(bytes);
    }
    for (int i = -b->o->warmup; i < samples; i++) {
        route(b, i < 0 ? 0 : i);
        for (int turn = 0; turn < STEP_SIDES; turn++) {
            int side = i % 2 ? STEP_SIDES - 1 - turn : turn;

            if (side != STEP_BALANCED || on)
                take(b, &m, (enum step_side)side, i,
                     i <= 0 || i == samples - 1);
        }
    }
    print_row(b, &m, (size_t)samples);
    for (int s = 0; s < STEP_SIDES; s++) {
        free(m.us[s]);
        free(m.cpu[s]);
        free(m.most[s]);
        for (int i = 0; i < STEP_PHASES; i++)
            free(m.phase[s][i]);
    }
}

/* --- benches -------------------------------------------------------------- */

static void open_exchanges(struct step *b)
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
    /* Each version has its own exchange. An exchange frees memory that a
     * smaller plan does not need, and would have to allocate it again for the
     * next. */
    for (int s = 0; s < STEP_SIDES; s++)
        step_must(b, shunt_moe_create(b->g->comm, &config, &b->moe[s]),
                  "moe_create");
}

static void run(struct step *b, size_t tokens)
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
    step_open_experts(b);
    measure(b);
    step_close_experts(b);
    for (int s = 0; s < STEP_SIDES; s++) {
        shunt_moe_destroy(b->moe[s]);
        perf_routing_finish(&b->routing[s]);
    }
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

    perf_table_note(
        "timing of steps: %d warm-up steps; %d samples, sample i is "
        "step i of the workload",
        o->warmup, o->samples);
    perf_table_note(
        "experts: each sleeps %g us for a row instead of computing, "
        "twice that in backward; %zu bytes of parameters each",
        o->expert_us, o->expert_bytes);
    for (int i = 0; i < o->ntokens; i++) {
        struct step b = {
            .o = o,
            .g = contest->group,
            .tokens = {.o = o, .g = contest->group},
        };

        if (o->tokens[i])
            run(&b, o->tokens[i]);
    }
}
