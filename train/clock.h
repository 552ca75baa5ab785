// SPDX-License-Identifier: Apache-2.0
/* A monotonic clock, and adding up what is measured with it. */
#ifndef TRAIN_CLOCK_H
#define TRAIN_CLOCK_H

#include <time.h>

static inline double clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Add the time since `*since` to `*sum`, and start anew. */
static inline void clock_add(double *sum, double *since)
{
    double now = clock_now();

    *sum += now - *since;
    *since = now;
}

#endif
