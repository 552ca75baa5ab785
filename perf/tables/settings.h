// SPDX-License-Identifier: Apache-2.0
/*
 * The settings and the environment of a run, for the head of the table, and for
 * each machine-readable row.
 */
#ifndef SHUNT_PERF_SETTINGS_H
#define SHUNT_PERF_SETTINGS_H

#include "perf/peers/contest.h"

struct perf_settings {
    const struct perf_options *options;
    const struct perf_group *group;
    const char *peer;      /* version of the peer, or NULL */
    const char *pinning;   /* as text */
    const char *place;     /* place of ranks 0 and 1: pair.h; NULL: they are on
                            * two hosts */
    double pair;           /* latency of ranks 0 and 1 in microseconds: pair.h;
                            * < 0: unknown */
    struct perf_link link; /* filled in with several hosts */
    const char *uncounted; /* why the kernel's counters are not read, or NULL */
};

/* The processor's name; "unknown" if the kernel does not report it. */
const char *perf_cpu_model(void);
/* The environment variables that affect the libraries, or NULL. */
const char *perf_environment(void);
/* The transports from rank 0 to the next rank, and to the next host if there is
 * one. */
const char *perf_transport(const struct perf_settings *settings);
const char *perf_far_transport(const struct perf_settings *settings);
/* The type of the sums that combine sends between nodes. */
const char *perf_partials(const struct perf_options *options);

#endif
