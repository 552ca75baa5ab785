// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes on the links during a side's calls, as counted by the kernel and by
 * the library.
 */
#ifndef SHUNT_PERF_WIRE_H
#define SHUNT_PERF_WIRE_H

#include <stdbool.h>

#include "perf/ranks/group.h"
#include "perf/sampling/sample.h"

/* Bytes of one call, of all hosts together and of the host that sends most. */
struct perf_wire {
    bool measured;         /* false: the fields below are not set */
    bool counted;          /* the kernel's counters were read, too */
    double total, busiest; /* by the kernel's counters, with all headers */
    double payload;        /* by the library's counters; 0 for peers */
};

/* Open the kernel's counters. Returns NULL, or why they cannot be read.
 * Collective. */
const char *perf_wire_open(const struct perf_group *group);
/* The counter in use, as text. */
const char *perf_wire_source(void);

/* How many calls of `us` microseconds make the bytes of the gates
 * negligible. */
int perf_wire_calls(double us);

/*
 * Make `calls` calls of `side`, and count the bytes of each phase separately.
 * Not timed. Collective; every rank gets the same numbers.
 */
void perf_wire_count(const struct perf_group *group,
                     const struct perf_side *side, int calls,
                     struct perf_wire *wire);

#endif
