// SPDX-License-Identifier: Apache-2.0
/*
 * Measures the latency of a small copy by an engine that is awake, because it
 * has just copied, and by one that is asleep. Also measures what an idle engine
 * costs.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf/copies/copy_bench.h"
#include "perf/sampling/sample.h"

#define AWAKE_SAMPLES 1000
#define ASLEEP_SAMPLES 50 /* each waits some milliseconds */
#define IDLE_NS 300000000

static double cpu_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static struct perf_row_copy describe(const struct perf_copy_bench *b)
{
    return (struct perf_row_copy){
        .engine = b->copier.engine->name,
        .cache = perf_cache_name(b->o->cache),
    };
}

/* Returns how many samples were taken: fewer than n if the engine does not fall
 * asleep. */
static size_t take_samples(struct perf_copy_side *side, bool asleep,
                           struct perf_series *series, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double start, cpu;

        if (asleep && !perf_copier_await_sleep(&side->bench->copier))
            return i;
        cpu = cpu_us();
        /* No system call between the two copies: during one the engine could
         * fall asleep. */
        if (!asleep)
            perf_copy_run(side);
        start = perf_now_us();
        perf_copy_run(side);
        series->us[i] = perf_now_us() - start;
        series->cpu_us[i] = (cpu_us() - cpu) / (asleep ? 1 : 2);
    }
    return n;
}

static size_t count_samples(const struct perf_options *o, bool asleep)
{
    if (o->samples)
        return (size_t)o->samples;
    return asleep ? ASLEEP_SAMPLES : AWAKE_SAMPLES;
}

void perf_copy_latency_row(struct perf_copy_bench *b, bool asleep)
{
    struct perf_copy_side side = {b, PERF_BY_ENGINE};
    struct perf_row_copy copy = describe(b);
    size_t n = count_samples(b->o, asleep);
    struct perf_series series = {
        .phases = 1,
        .batch = 1,
        .us = perf_alloc(n * sizeof(double)),
        .cpu_us = perf_alloc(n * sizeof(double)),
    };
    struct perf_row row = {
        .op = asleep ? "copy-asleep" : "copy-awake",
        .bytes = perf_copy_bytes(&b->shape),
        .count = b->shape.rows,
        .bus = 1,
        .pair = -1,
        .checked = true,
        .batch = 1,
        .sent_rows = -1,
        .copy = &copy,
    };

    if (perf_copy_taken(b)) {
        for (int i = 0; i < b->o->warmup; i++)
            perf_copy_run(&side);
        row.wrong[PERF_OURS] = perf_copy_try(&side);
        series.samples = take_samples(&side, asleep, &series, n);
        row.wrong[PERF_OURS] += perf_copy_try(&side);
    }
    row.samples = series.samples;
    row.has[PERF_OURS] = series.samples > 0;
    if (series.samples)
        row.times[PERF_OURS] = perf_series_times(&series, 0, 0);
    perf_copy_row(b, &row);
    if (series.samples < n && asleep)
        perf_table_note("  few or no samples above: the engine, or another "
                        "thread of this process, does not fall asleep");
    perf_series_finish(&series);
}

void perf_copy_idle_row(struct perf_copy_bench *b)
{
    const struct timespec idle = {.tv_nsec = IDLE_NS};
    struct perf_row_copy copy = describe(b);
    struct perf_row row = {
        .op = "copy-idle",
        .bus = 1,
        .pair = -1,
        .part = true,
        .samples = 1,
        .batch = 1,
        .sent_rows = -1,
        .copy = &copy,
    };
    double start, cpu, others;

    perf_copier_await_sleep(&b->copier);
    start = perf_now_us();
    cpu = cpu_us();
    others = perf_copier_others_us();
    nanosleep(&idle, NULL);
    others = perf_copier_others_us() - others;
    copy.idle_others = others > 0 ? others : 0;
    copy.idle_cpu = cpu_us() - cpu;
    copy.idle = perf_now_us() - start;
    perf_copy_row(b, &row);
}
