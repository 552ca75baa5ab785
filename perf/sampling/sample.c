// SPDX-License-Identifier: Apache-2.0
/*
 * Taking times.
 *
 * A sample is a gate, then one call, or a batch of calls back to back if a call
 * is too short to be timed alone; its value is the time of one call. Every rank
 * times its own calls by the same clock. The ranks' values are collected after
 * the loop, and a sample has the value of its slowest rank.
 *
 * The sides alternate, and each is first in turn, so that drift (clock rates,
 * other load on the machine) affects all sides alike. All sides have the same
 * batch.
 */
#include "perf/sampling/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/base/perf.h"
#include "perf/base/statistics.h"

#define MAX_BATCH 1000
#define MIN_SAMPLES 15
#define MAX_SAMPLES 1000
/* The minimum length of a sample in microseconds. It is well above the cost of
 * the clock and the gate, which is higher between hosts. With more ranks than
 * processors it is above the time until each rank has run. */
#define SAMPLE_US 200.0
#define SAMPLE_US_CROWDED 2000.0
/* A call that takes this long needs no second try: an interruption would be a
 * small part of it. */
#define LONG_US 20000.0

/* --- statistics ----------------------------------------------------------- */

/* Set sum, (samples), to the sum of phases first .. last of `us`. */
static void add_phases(const struct perf_series *s, const double *us, int first,
                       int last, double *sum)
{
    for (size_t i = 0; i < s->samples; i++) {
        sum[i] = 0;
        for (int p = first; p <= last; p++)
            sum[i] += us[(size_t)p * s->samples + i];
    }
}

struct perf_times perf_times_of(double *us, size_t n)
{
    const double median = perf_median(us, n); /* sorts `us` */

    return (struct perf_times){
        .median = median,
        .p99 = perf_quantile(us, n, 0.99),
        .least = us[0],
        .q1 = perf_quantile(us, n, 0.25),
        .q3 = perf_quantile(us, n, 0.75),
    };
}

struct perf_times perf_series_times(const struct perf_series *s, int first,
                                    int last)
{
    double *sum = perf_alloc(s->samples * sizeof(*sum)), cpu;
    struct perf_times times;

    add_phases(s, s->cpu_us, first, last, sum);
    cpu = perf_median(sum, s->samples);
    add_phases(s, s->us, first, last, sum);
    times = perf_times_of(sum, s->samples);
    times.cpu = cpu;
    free(sum);
    return times;
}

void perf_series_finish(struct perf_series *s)
{
    free(s->us);
    free(s->cpu_us);
    *s = (struct perf_series){0};
}

/* --- samples -------------------------------------------------------------- */

/* Returns the CPU time of this process, including the library's threads and the
 * kernel's work for it. */
static double cpu_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

/* Take one sample: the time of one call, by phase, and its CPU time. */
static void take(const struct perf_group *g, const struct perf_side *side,
                 int batch, double *us, double *cpu_us)
{
    for (int p = 0; p < side->phases; p++) {
        if (p == side->phases - 1 && side->prepare)
            side->prepare(side->state);
        perf_gate_wait(g);
        double cpu = cpu_now_us(), start = perf_now_us();
        for (int i = 0; i < batch; i++)
            side->phase[p](side->state);
        us[p] = (perf_now_us() - start) / batch;
        cpu_us[p] = (cpu_now_us() - cpu) / batch;
        if (side->settle)
            side->settle();
    }
    if (side->release) {
        double start = perf_now_us();
        side->release(side->state);
        us[0] += perf_now_us() - start;
    }
}

/* Returns the time of one call of this side, the same on all ranks. It is the
 * best of `tries`: an interrupted rank would make the batch too short. */
static double estimate(const struct perf_group *g, const struct perf_side *side,
                       int batch, int tries)
{
    double us[PERF_MAX_PHASES], cpu_us[PERF_MAX_PHASES], best = HUGE_VAL;

    for (int i = 0; i < tries; i++) {
        double sum = 0;
        take(g, side, batch, us, cpu_us);
        for (int p = 0; p < side->phases; p++)
            sum += us[p];
        sum = perf_max(g, sum);
        best = sum < best ? sum : best;
        if (best * batch > LONG_US)
            break;
    }
    return best;
}

/* Find a batch that makes samples of the faster side long enough. Set *cost
 * to the sum of the sides' times of a call. */
static int find_batch(const struct perf_group *g, const struct perf_plan *plan,
                      const struct perf_side *sides, int nsides, double *cost)
{
    double wanted = g->crowded || g->net ? SAMPLE_US_CROWDED : SAMPLE_US;
    int batch = plan->batch ? plan->batch : 1;

    for (;;) {
        double fastest = HUGE_VAL;
        *cost = 0;
        for (int s = 0; s < nsides; s++) {
            double us = estimate(g, &sides[s], batch, plan->batch ? 1 : 3);
            *cost += us;
            fastest = us < fastest ? us : fastest;
        }
        if (plan->batch || (sides[0].phases > 1 && !sides[0].apart) ||
            batch == MAX_BATCH || fastest * batch >= wanted)
            return batch;
        /* First calls are slow, so limit the step. */
        double step = 1.2 * wanted / (fastest * batch);
        int next = (int)ceil(batch * (step < 8 ? step : 8));
        batch = next > batch ? next : batch + 1;
        batch = batch < MAX_BATCH ? batch : MAX_BATCH;
    }
}

static size_t sample_count(const struct perf_plan *plan, double us)
{
    if (plan->samples)
        return (size_t)plan->samples;
    double n = plan->seconds * 1e6 / us;
    if (n < MIN_SAMPLES)
        return MIN_SAMPLES;
    return n > MAX_SAMPLES ? MAX_SAMPLES : (size_t)n;
}

/* Replace, for each sample, this rank's time by that of the slowest rank, and
 * its CPU time by the sum over ranks. */
static void over_ranks(const struct perf_group *g, double *us, double *cpu_us,
                       size_t n)
{
    double *all = perf_alloc((size_t)g->ranks * n * sizeof(*all));
    perf_allgather(g, us, all, n * sizeof(*us));
    for (int r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < n; i++)
            if (all[(size_t)r * n + i] > us[i])
                us[i] = all[(size_t)r * n + i];
    perf_allgather(g, cpu_us, all, n * sizeof(*cpu_us));
    memset(cpu_us, 0, n * sizeof(*cpu_us));
    for (int r = 0; r < g->ranks; r++)
        for (size_t i = 0; i < n; i++)
            cpu_us[i] += all[(size_t)r * n + i];
    free(all);
}

void perf_measure(const struct perf_group *g, const struct perf_plan *plan,
                  const struct perf_side *sides, int nsides,
                  struct perf_series *series)
{
    double us[PERF_MAX_PHASES], cpu_us[PERF_MAX_PHASES], cost;

    for (int i = 0; i < plan->warmup; i++)
        for (int s = 0; s < nsides; s++)
            take(g, &sides[s], 1, us, cpu_us);
    int batch = find_batch(g, plan, sides, nsides, &cost);
    size_t n = sample_count(plan, cost * batch);

    for (int s = 0; s < nsides; s++) {
        series[s] = (struct perf_series){
            .phases = sides[s].phases,
            .samples = n,
            .batch = batch,
        };
        series[s].us =
            perf_alloc((size_t)sides[s].phases * n * sizeof(*series[s].us));
        series[s].cpu_us =
            perf_alloc((size_t)sides[s].phases * n * sizeof(*series[s].cpu_us));
    }
    for (size_t i = 0; i < n; i++) {
        for (int turn = 0; turn < nsides; turn++) {
            int s = i % 2 ? nsides - 1 - turn : turn;
            take(g, &sides[s], batch, us, cpu_us);
            for (int p = 0; p < sides[s].phases; p++) {
                series[s].us[(size_t)p * n + i] = us[p];
                series[s].cpu_us[(size_t)p * n + i] = cpu_us[p];
            }
        }
    }
    for (int s = 0; s < nsides; s++)
        over_ranks(g, series[s].us, series[s].cpu_us,
                   (size_t)sides[s].phases * n);
}
