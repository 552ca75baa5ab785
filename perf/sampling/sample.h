// SPDX-License-Identifier: Apache-2.0
/*
 * Measuring times: samples of some sides in turn, and their statistics.
 */
#ifndef SHUNT_PERF_SAMPLE_H
#define SHUNT_PERF_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

#include "perf/ranks/group.h"

#define PERF_MAX_PHASES 3
#define PERF_MAX_SIDES 3

/* One of the sides that are compared. */
struct perf_side {
    void *state;
    int phases;
    /* Each phase is timed separately. It begins when all ranks have arrived at
     * the gate. */
    void (*phase[PERF_MAX_PHASES])(void *state);
    /* true: the phases are independent, so each may be timed in batches */
    bool apart;
    /* Called after each phase, not timed; or NULL. See engine.h. */
    void (*settle)(void);
    /* Called after phase 0 when bytes are counted, if that phase makes a plan;
     * or NULL. */
    void (*plan_settle)(void);
    /* Called before the last phase, not timed; or NULL. */
    void (*prepare)(void *state);
    /* Called at the end, timed as a part of phase 0; or NULL. */
    void (*release)(void *state);
};

struct perf_plan {
    int warmup;
    int samples; /* 0: as many as `seconds` allow */
    int batch;   /* 0: chosen by the duration of a call */
    double seconds;
};

/* The times of one side. Each time is that of the slowest rank. */
struct perf_series {
    int phases;
    size_t samples;
    int batch;      /* calls in one sample */
    double *us;     /* (phases, samples) for one call */
    double *cpu_us; /* the same for CPU time, summed over all ranks */
};

/*
 * Time `nsides` sides in turn, A B B A A B B A ... (A B C C B A ...).
 * Collective; every rank gets the same numbers.
 */
void perf_measure(const struct perf_group *group, const struct perf_plan *plan,
                  const struct perf_side *sides, int nsides,
                  struct perf_series *series);
void perf_series_finish(struct perf_series *series);

struct perf_times {
    double median;
    double p99;
    double least;
    double q1, q3; /* the first and third quartile */
    double cpu;    /* median CPU time, summed over all ranks */
};

/* The statistics of the sum of the phases first .. last. */
struct perf_times perf_series_times(const struct perf_series *series, int first,
                                    int last);

/* The statistics of n > 0 values, without CPU time. Sorts `us`. */
struct perf_times perf_times_of(double *us, size_t n);

#endif
