// SPDX-License-Identifier: Apache-2.0
/* A monotonic clock, others, and adding up what is measured with them. In a
 * timeline of the library (SHUNT_TRACE) what is added is a span on the track
 * `program`. */
#ifndef TRAIN_CLOCK_H
#define TRAIN_CLOCK_H

#include <shunt/trace.h>

#include <errno.h>
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

/* Returns at that time on the clock, without using the CPU. */
static inline void clock_sleep_until(double time)
{
    const struct timespec t = {(time_t)time,
                               (long)((time - (double)(time_t)time) * 1e9)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Seconds on the clock, and of CPU time of this thread: a reading of both, or a
 * sum of what lay between two. */
struct spent {
    double time, cpu;
};

static inline struct spent clock_read(void)
{
    return (struct spent){clock_now(), clock_of(CLOCK_THREAD_CPUTIME_ID)};
}

static inline void clock_add_between(struct spent *sum,
                                     const struct spent *since,
                                     const struct spent *until)
{
    sum->time += until->time - since->time;
    sum->cpu += until->cpu - since->cpu;
}

/* Add what was spent since `*since` to `*sum`, and start anew. `name` of what was
 * done meanwhile; of "a->b.c" that is "c". */
static inline void clock_add_as(const char *name, struct spent *sum,
                                struct spent *since)
{
    const char *last = strrchr(name, '.');
    const struct spent now = clock_read();

    shunt_trace_end(last ? last + 1 : name, (uint64_t)(since->time * 1e9));
    clock_add_between(sum, since, &now);
    *since = now;
}

/* The name is that of the sum. */
#define clock_add(sum, since) clock_add_as(#sum, sum, since)

#endif
