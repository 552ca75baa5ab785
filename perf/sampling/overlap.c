// SPDX-License-Identifier: Apache-2.0
/*
 * Overlap of a call and a computation.
 *
 * The computation is a fixed number of multiplications. With a time limit it
 * would do less work whenever another thread takes the processor. But that loss
 * is what must be measured: the thread may be a progress thread, or a peer on
 * the same core.
 */
#include "perf/sampling/overlap.h"

#include "perf/base/perf.h"

#define CALIBRATION_LOOPS 200000L
/* The share of the time used to find the length of a call. */
#define PURE_SHARE 0.25
/* Call and computation together may be faster than the computation alone by
 * this share of the call, since medians have an error. More means that the
 * machine was not quiet. */
#define DISTURBED 0.05

struct lap {
    struct perf_halves halves;
    int tests;
    long loops; /* multiplications of the whole computation */
};

static void compute(long loops)
{
    static volatile double sink;
    double x = sink;

    for (long i = 0; i < loops; i++)
        x = x * 0.999999 + 1e-6;
    sink = x;
}

/* Returns the speed on an idle processor: the best of several measurements. */
static double loops_per_us(void)
{
    double best = 0;

    for (int i = 0; i < 10; i++) {
        double start = perf_now_us();
        compute(CALIBRATION_LOOPS);
        double rate = (double)CALIBRATION_LOOPS / (perf_now_us() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static void run_pure(void *state)
{
    const struct lap *lap = state;
    lap->halves.start(lap->halves.state);
    lap->halves.wait(lap->halves.state);
}

static void run_compute(void *state)
{
    compute(((const struct lap *)state)->loops);
}

static void run_both(void *state)
{
    const struct lap *lap = state;
    long piece = lap->loops / (lap->tests + 1);

    lap->halves.start(lap->halves.state);
    for (int i = 0; i < lap->tests; i++) {
        compute(piece);
        lap->halves.test(lap->halves.state);
    }
    compute(lap->loops - piece * lap->tests);
    lap->halves.wait(lap->halves.state);
}

static struct perf_side timed_side(struct lap *lap)
{
    return (struct perf_side){
        .state = lap,
        .phases = 1,
        .phase = {run_pure},
        .apart = true,
        .settle = lap->halves.settle,
    };
}

static double pure_time(struct perf_series *series)
{
    double median = perf_series_times(series, 0, 0).median;
    perf_series_finish(series);
    return median;
}

void perf_overlap_measure(const struct perf_group *g,
                          const struct perf_plan *plan, int tests,
                          const struct perf_halves *sides, int nsides,
                          struct perf_overlap *result)
{
    struct perf_plan first = *plan, second = *plan;
    struct lap laps[PERF_MAX_SIDES];
    struct perf_side timed[PERF_MAX_SIDES];
    struct perf_series series[PERF_MAX_SIDES];
    double rate = loops_per_us();

    for (int s = 0; s < nsides; s++) {
        laps[s] = (struct lap){sides[s], tests, 0};
        timed[s] = timed_side(&laps[s]);
    }
    first.seconds *= PURE_SHARE;
    second.seconds -= first.seconds;
    perf_measure(g, &first, timed, nsides, series);
    for (int s = 0; s < nsides; s++) {
        laps[s].loops = (long)(rate * pure_time(&series[s])) + 1;
        timed[s].phases = 3;
        timed[s].phase[1] = run_compute;
        timed[s].phase[2] = run_both;
    }
    perf_measure(g, &second, timed, nsides, series);
    for (int s = 0; s < nsides; s++) {
        result[s] = (struct perf_overlap){
            .pure = perf_series_times(&series[s], 0, 0),
            .compute = perf_series_times(&series[s], 1, 1),
            .both = perf_series_times(&series[s], 2, 2),
            .samples = series[s].samples,
            .batch = series[s].batch,
        };
        perf_series_finish(&series[s]);
    }
}

bool perf_overlap_known(const struct perf_overlap *o)
{
    return o->compute.median - o->both.median <= DISTURBED * o->pure.median;
}

double perf_overlap_share(const struct perf_overlap *o)
{
    double left = o->both.median - o->compute.median;
    double share = o->pure.median > 0 ? 1 - left / o->pure.median : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}
