// SPDX-License-Identifier: Apache-2.0
/*
 * How much of a call overlaps with its caller's computation, measured as in the
 * OSU benchmarks. Three times are measured: start and wait alone, a computation
 * of the same length alone, and both, with the computation between start and
 * wait.
 */
#ifndef SHUNT_PERF_OVERLAP_H
#define SHUNT_PERF_OVERLAP_H

#include "perf/sampling/sample.h"

/* A call in two halves. */
struct perf_halves {
    void *state;
    void (*start)(void *state);
    void (*test)(void *state); /* lets the call advance, without waiting */
    void (*wait)(void *state);
    void (*settle)(void); /* as in struct perf_side (sample.h), or NULL */
};

struct perf_overlap {
    struct perf_times pure;    /* start and wait */
    struct perf_times compute; /* the computation: about as long as `pure` */
    struct perf_times both;
    size_t samples;
    int batch;
};

/*
 * Measure `nsides` sides in turn. Each side computes for as long as its own
 * call takes.
 *
 * tests  calls of test() during a computation, evenly distributed
 */
void perf_overlap_measure(const struct perf_group *group,
                          const struct perf_plan *plan, int tests,
                          const struct perf_halves *sides, int nsides,
                          struct perf_overlap *result);

/* False if call and computation together took clearly less time than the
 * computation alone. Then the latter was disturbed, and the share means
 * nothing. */
bool perf_overlap_known(const struct perf_overlap *overlap);

/* The share of the call's time that the computation hid, from 0 to 1. */
double perf_overlap_share(const struct perf_overlap *overlap);

#endif
