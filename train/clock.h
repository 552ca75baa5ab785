// SPDX-License-Identifier: Apache-2.0
/* A monotonic clock, others, and adding up what is measured with them. In a
 * timeline of the library (SHUNT_TRACE) what is added is a span on the track
 * `program`. */
#ifndef TRAIN_CLOCK_H
#define TRAIN_CLOCK_H

#include <shunt/trace.h>

#include <stdint.h>
#include <string.h>
#include <time.h>

static inline double clock_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double clock_now(void)
{
    return clock_of(CLOCK_MONOTONIC);
}

/* Add the time since `*since` to `*sum`, and start anew. `name` of what was done
 * meanwhile; of "a->b.c" that is "c". */
static inline void clock_add_as(const char *name, double *sum, double *since)
{
    const char *last = strrchr(name, '.');
    double now = clock_now();

    shunt_trace_end(last ? last + 1 : name, (uint64_t)(*since * 1e9));
    *sum += now - *since;
    *since = now;
}

/* The name is that of the sum. */
#define clock_add(sum, since) clock_add_as(#sum, sum, since)

#endif
