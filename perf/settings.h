// SPDX-License-Identifier: Apache-2.0
/*
 * What a run was made with and where: for the table's head, and for each row
 * that a machine reads.
 */
#ifndef SHUNT_PERF_SETTINGS_H
#define SHUNT_PERF_SETTINGS_H

#include "perf/contest.h"

struct perf_settings {
    const struct perf_options *options;
    const struct perf_group *group;
    const char *peer;      /* its version, or NULL */
    const char *pinning;   /* in words */
    const char *place;     /* of ranks 0 and 1; NULL: not on one host */
    double pair;           /* see pair.h; < 0: unknown */
    struct perf_link link; /* with several hosts */
    const char *uncounted; /* why the kernel's counters are not read; NULL: they
                              are */
};

/* The processor's name; "unknown" where the kernel does not say. */
const char *perf_cpu_model(void);
/* What the environment told the libraries, or NULL. */
const char *perf_told(void);
/* How rank 0 reaches the next rank, and the next host if there is one. */
const char *perf_transport(const struct perf_settings *settings);
const char *perf_far_transport(const struct perf_settings *settings);
/* The type of the sums that combine sends between nodes. */
const char *perf_partials(const struct perf_options *options);

#endif
