// SPDX-License-Identifier: Apache-2.0
/*
 * The pair of ranks 0 and 1: how long a cache line takes from one to the other,
 * by plain loads and stores. Every small call takes a few times as long. The
 * time depends on where the two processors are. Virtual processors may share a
 * last-level cache in one run and not in the next one.
 */
#ifndef SHUNT_PERF_PAIR_H
#define SHUNT_PERF_PAIR_H

#include "perf/ranks/group.h"

/* Where ranks 0 and 1 run, as text, with the caches that the kernel reports. */
const char *perf_pair_place(const struct perf_group *group);

/*
 * One-way time in microseconds: half of a round trip, the median of some
 * measurements. Collective; every rank gets the same number. It is negative if
 * the time cannot be measured: with one rank, two hosts, or more ranks than
 * processors.
 */
double perf_pair_latency(const struct perf_group *group);

#endif
