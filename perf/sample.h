// SPDX-License-Identifier: Apache-2.0
/*
 * How times are taken: alternating samples of one to three sides, and what is
 * said of them.
 */
#ifndef SHUNT_PERF_SAMPLE_H
#define SHUNT_PERF_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

#include "perf/group.h"

#define PERF_MAX_PHASES 3
#define PERF_MAX_SIDES 3

/* One of the things that are compared. */
struct perf_side {
    void *state;
    int phases;
    /* Each is timed on its own, with all ranks gathered before it. */
    void (*phase[PERF_MAX_PHASES])(void *state);
    /* The phases do not build on each other: a batch may be made of each. */
    bool apart;
    /* Not timed: after each phase; or NULL. See engine.h. */
    void (*settle)(void);
    /* After phase 0 where bytes are counted, if it is a plan; or NULL. */
    void (*plan_settle)(void);
    /* Not timed: before the last phase, and after it; or NULL. */
    void (*prepare)(void *state);
    /* Timed, and counted as part of phase 0; or NULL. */
    void (*release)(void *state);
};

struct perf_plan {
    int warmup;
    int samples; /* 0: as many as `seconds` allow */
    int batch;   /* 0: by the length of a call */
    double seconds;
};

/* The times of one side, of the slowest rank. */
struct perf_series {
    int phases;
    size_t samples;
    int batch;  /* calls of one sample */
    double *us; /* (phases, samples) for one call; NULL: no such side */
};

/*
 * Time `nsides` sides in alternation, A B B A A B B A ... (A B C C B A ...).
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
    double q1, q3; /* a quarter of the samples is not above, not below */
};

/* Of the sum of the phases first .. last. */
struct perf_times perf_series_times(const struct perf_series *series, int first,
                                    int last);

/* The middle value, or the mean of the two in the middle. Sorts `values`. */
double perf_median(double *values, size_t n);
/* The smallest value that is not below `share` of all (nearest rank). `values`
 * are sorted. */
double perf_quantile(const double *sorted, size_t n, double share);
/* The geometric mean of n > 0 positive values. */
double perf_geomean(const double *values, size_t n);

#endif
