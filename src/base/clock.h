// SPDX-License-Identifier: Apache-2.0
/* The host's monotonic clock, by which waits are timed. */
#ifndef SHUNTI_CLOCK_H
#define SHUNTI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t shunti_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* "No limit": 30 years, which still fit into 64 bits as nanoseconds. */
#define SHUNTI_NEVER_SECONDS 1e9

/* Convert seconds, which may be infinite, to nanoseconds. */
static inline uint64_t shunti_ns(double seconds)
{
    if (!(seconds > 0))
        return 0;
    return (uint64_t)((seconds < SHUNTI_NEVER_SECONDS ? seconds
                                                      : SHUNTI_NEVER_SECONDS) *
                      1e9);
}

#endif
