// SPDX-License-Identifier: Apache-2.0
/*
 * The state of the pair of ranks 0 and 1: how long a cache line takes from one
 * to the other, by plain loads and stores. Every small call is a few times
 * that, and it is a property of where the two processors happen to be: virtual
 * ones may share a last-level cache in one run and not in the next one.
 */
#ifndef SHUNT_PERF_PAIR_H
#define SHUNT_PERF_PAIR_H

#include "perf/group.h"

/* Where the two run, in words; the caches are as the kernel says. */
const char *perf_pair_place(const struct perf_group *group);

/*
 * One way in microseconds, the median of some measurements: half of what a
 * round trip takes. Collective; every rank gets the number. Negative where it
 * cannot be measured: one rank, two hosts, more ranks than processors.
 */
double perf_pair_latency(const struct perf_group *group);

#endif
