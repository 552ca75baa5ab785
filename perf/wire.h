// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes on the links during a side's calls: by the kernel's counters, and
 * by the library's own.
 */
#ifndef SHUNT_PERF_WIRE_H
#define SHUNT_PERF_WIRE_H

#include <stdbool.h>

#include "perf/group.h"
#include "perf/sample.h"

/* Bytes of one call, of all hosts together and of the host that sends most. */
struct perf_wire {
    bool measured;         /* else the fields below are not set */
    bool counted;          /* by the kernel, too */
    double total, busiest; /* counted by the kernel, with all headers */
    double payload;        /* by the library's counters; 0 for peers */
};

/* Open the kernel's counters. Returns NULL, or why they cannot be read.
 * Collective. */
const char *perf_wire_open(const struct perf_group *group);
/* The counter in use, in words. */
const char *perf_wire_source(void);

/* The number of calls of `us` microseconds for which the bytes of the gates are
 * negligible. */
int perf_wire_calls(double us);

/*
 * Make `calls` calls of `side` and count the bytes of each phase separately. It
 * is not timed. Collective; every rank gets the same.
 */
void perf_wire_count(const struct perf_group *group,
                     const struct perf_side *side, int calls,
                     struct perf_wire *wire);

#endif
