// SPDX-License-Identifier: Apache-2.0
/*
 * Hosts of ranks. Ranks are on one host if they see the same network
 * interfaces. A host has a link with kernel counters, which raw streams
 * can fill. The library's nodes (ranks that share memory) may be different.
 */
#ifndef SHUNT_PERF_HOSTS_H
#define SHUNT_PERF_HOSTS_H

#include <stdbool.h>

struct perf_group;

struct perf_hosts {
    int n;     /* the number of hosts */
    int mine;  /* host of this rank */
    int *of;   /* (ranks) host of each rank; numbered by their lowest rank */
    int *size; /* (n) number of ranks on each host */
    int local; /* this rank's index on its host */
};

/* Find the hosts. Collective. */
void perf_hosts_find(const struct perf_group *group, struct perf_hosts *hosts);
void perf_hosts_finish(struct perf_hosts *hosts);

/* The rank with index `local` on `host`. */
int perf_host_rank(const struct perf_group *group, int host, int local);

#endif
