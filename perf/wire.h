// SPDX-License-Identifier: Apache-2.0
/*
 * What crosses the links while a side does its calls: by the kernel's counters,
 * and by the library's own.
 */
#ifndef SHUNT_PERF_WIRE_H
#define SHUNT_PERF_WIRE_H

#include <stdbool.h>

#include "perf/group.h"
#include "perf/sample.h"

/* Bytes of one call, of all hosts together and of the host that sends most. */
struct perf_wire {
    bool measured;         /* else nothing below was */
    bool counted;          /* the kernel's, too */
    double total, busiest; /* by the kernel, with all headers */
    double payload;        /* by the library's counters; 0 for peers */
};

/* Can they be read? NULL, or why not. Collective. */
const char *perf_wire_open(const struct perf_group *group);
/* In words, by what they are counted. */
const char *perf_wire_source(void);

/* How many calls it takes for what is around them not to matter, when one takes
 * `us`. */
int perf_wire_calls(double us);

/*
 * Do `calls` calls of `side` and count for each phase apart. Not timed: nothing
 * of it is part of a measurement. Collective; every rank gets the same.
 */
void perf_wire_count(const struct perf_group *group,
                     const struct perf_side *side, int calls,
                     struct perf_wire *wire);

#endif
