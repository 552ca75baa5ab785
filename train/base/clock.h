// SPDX-License-Identifier: Apache-2.0
/* Clocks, and sums of measured times. Measured times are also spans on the
 * track `program` of the library's timeline (SHUNT_TRACE). */
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

/* Sleeps until `time` on the monotonic clock. */
static inline void clock_sleep_until(double time)
{
    const struct timespec t = {(time_t)time,
                               (long)((time - (double)(time_t)time) * 1e9)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* Wall-clock seconds, and CPU seconds of this thread: either a reading of both
 * clocks, or a sum of differences. */
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

/* Adds the time since `*since` to `*sum`, and sets `*since` to now. The span in
 * the timeline is named by the part of `name` behind its last dot: "c" for
 * "a->b.c". */
static inline void clock_add_as(const char *name, struct spent *sum,
                                struct spent *since)
{
    const char *last = strrchr(name, '.');
    const struct spent now = clock_read();

    shunt_trace_end(last ? last + 1 : name, (uint64_t)(since->time * 1e9));
    clock_add_between(sum, since, &now);
    *since = now;
}

/* As clock_add_as(). The span is named after the argument `sum`. */
#define clock_add(sum, since) clock_add_as(#sum, sum, since)

#endif
