// SPDX-License-Identifier: Apache-2.0
/* Tests of shunt-perf's statistics, and of how it takes samples. */

#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>

#include "perf/base/perf.h"
#include "perf/base/statistics.h"
#include "perf/sampling/overlap.h"
#include "perf/sampling/sample.h"

TestSuite(sample, .timeout = 30);

Test(sample, median)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, one[] = {7};

    cr_assert_eq(perf_median(odd, 3), 3);
    cr_assert_eq(perf_median(even, 4), 2.5);
    cr_assert_eq(perf_median(one, 1), 7);
}

Test(sample, quantile_is_the_nearest_rank)
{
    double v[200];

    for (int i = 0; i < 200; i++)
        v[i] = i + 1;
    cr_assert_eq(perf_quantile(v, 200, 0.99), 198);
    cr_assert_eq(perf_quantile(v, 100, 0.99), 99);
    /* With fewer than a hundred values, only the last one is at or above
     * 99%. */
    cr_assert_eq(perf_quantile(v, 99, 0.99), 99);
    cr_assert_eq(perf_quantile(v, 20, 0.99), 20);
    cr_assert_eq(perf_quantile(v, 1, 0.99), 1);
    cr_assert_eq(perf_quantile(v, 4, 0.5), 2);
    cr_assert_eq(perf_quantile(v, 200, 1), 200);
}

Test(sample, geometric_mean)
{
    double v[] = {2, 8}, same[] = {3, 3, 3};

    cr_assert(fabs(perf_geomean(v, 2) - 4) < 1e-12);
    cr_assert(fabs(perf_geomean(same, 3) - 3) < 1e-12);
}

/* The median of sums is not the sum of the medians. */
Test(sample, sums_of_phases_are_taken_by_sample)
{
    double us[] = {1, 2, 10, /* phase 0 */ 10, 1, 2 /* phase 1 */};
    /* in one sample the kernel did other work that counts as this process's */
    double cpu_us[] = {3, 1, 100, /* phase 0 */ 4, 5, 2 /* phase 1 */};
    struct perf_series s = {
        .phases = 2, .samples = 3, .batch = 1, .us = us, .cpu_us = cpu_us};

    cr_assert_eq(perf_series_times(&s, 0, 0).median, 2);
    cr_assert_eq(perf_series_times(&s, 1, 1).median, 2);
    cr_assert_eq(perf_series_times(&s, 0, 1).median, 11);
    cr_assert_eq(perf_series_times(&s, 0, 1).p99, 12);
    cr_assert_eq(perf_series_times(&s, 0, 1).least, 3);
    cr_assert_eq(perf_series_times(&s, 0, 0).cpu, 3);
    cr_assert_eq(perf_series_times(&s, 0, 1).cpu, 7);
}

/* A call takes a given time, and appends the name of its side to `order`. */
static char order[64];
static size_t calls;

struct work {
    char name;
    double us;
    int prepared, released;
};

static void run(void *state)
{
    struct work *w = state;
    double end = perf_now_us() + w->us;

    if (calls < sizeof(order) - 1)
        order[calls] = w->name;
    calls++;
    while (perf_now_us() < end)
        continue;
}

static void prepare(void *state)
{
    struct work *w = state;
    w->prepared++;
    run(&(struct work){'.', 3000, 0, 0});
}

static void release(void *state)
{
    struct work *w = state;
    w->released++;
    run(&(struct work){'.', 1000, 0, 0});
}

static struct perf_group alone(void)
{
    return (struct perf_group){.ranks = 1, .processors = 1};
}

Test(sample, sides_alternate_and_take_turns_in_going_first)
{
    struct perf_group g = alone();
    struct work a = {'a', 300, 0, 0}, b = {'b', 300, 0, 0};
    struct perf_side sides[] = {
        {.state = &a, .phases = 1, .phase = {run}},
        {.state = &b, .phases = 1, .phase = {run}},
    };
    struct perf_plan plan = {.warmup = 1, .samples = 4, .batch = 1};
    struct perf_series series[2];

    perf_measure(&g, &plan, sides, 2, series);
    /* The calls are: warm-up, the estimate, and four samples of each side. */
    cr_assert_str_eq(order, "ababab"
                            "baab"
                            "ba");
    cr_assert_eq(series[0].samples, 4);
    cr_assert_eq(series[0].batch, 1);
    perf_series_finish(&series[0]);
    perf_series_finish(&series[1]);
}

Test(sample, short_calls_are_timed_in_batches)
{
    struct perf_group g = alone();
    struct work a = {'a', 2, 0, 0};
    struct perf_side side = {.state = &a, .phases = 1, .phase = {run}};
    struct perf_plan plan = {.samples = 30};
    struct perf_series series;

    perf_measure(&g, &plan, &side, 1, &series);
    cr_assert_gt(series.batch, 10);
    /* Times are per call, not per batch. */
    double us = perf_series_times(&series, 0, 0).least;
    cr_assert(us >= 2 && us < 20, "%g", us);
    perf_series_finish(&series);
}

Test(sample, preparing_is_not_timed_and_releasing_counts_as_phase_0)
{
    struct perf_group g = alone();
    struct work a = {'a', 200, 0, 0};
    struct perf_side side = {
        .state = &a,
        .phases = 2,
        .phase = {run, run},
        .prepare = prepare,
        .release = release,
    };
    struct perf_plan plan = {.samples = 5};
    struct perf_series series;

    perf_measure(&g, &plan, &side, 1, &series);
    cr_assert_eq(series.batch, 1);
    cr_assert_eq(a.prepared, a.released);
    cr_assert_geq(a.prepared, 5);
    /* The lower bounds are certain. Upper bounds are not, because a busy
     * machine may add time. */
    for (size_t i = 0; i < series.samples; i++) {
        cr_assert_geq(series.us[i], 1200);
        cr_assert_geq(series.us[series.samples + i], 200);
    }
    cr_assert_lt(perf_series_times(&series, 1, 1).least, 3000);
    perf_series_finish(&series);
}

static void nothing(void *state)
{
    (void)state;
}

/* The time for a row includes the first measurement, of start and wait
 * alone. */
Test(sample, overlap_keeps_to_the_time)
{
    const double seconds = 0.4;
    struct perf_group g = alone();
    struct work a = {'a', 1000, 0, 0};
    struct perf_halves halves = {
        .state = &a, .start = run, .test = nothing, .wait = nothing};
    struct perf_plan plan = {.batch = 1, .seconds = seconds};
    struct perf_overlap o;
    double us;

    perf_overlap_measure(&g, &plan, 0, &halves, 1, &o);
    /* The samples of all three parts, and the other calls of the first
     * measurement. */
    us = (double)o.samples * (o.pure.least + o.compute.least + o.both.least);
    us += ((double)calls - 2 * (double)o.samples) * o.pure.least;
    cr_assert_lt(us, 1.1e6 * seconds, "%zu samples, %zu calls", o.samples,
                 calls);
}
