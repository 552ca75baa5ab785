// SPDX-License-Identifier: Apache-2.0
/*
 * Plain TCP between the ranks of a run on several hosts, for the gate and for
 * the streams that measure the raw rate of the links.
 *
 * Each pair of hosts has one connection. On each of the two hosts, one rank
 * holds the connection: the rank whose index on its host is the other host's
 * number modulo the host's number of ranks.
 */
#ifndef SHUNT_PERF_NET_H
#define SHUNT_PERF_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct perf_group;
struct perf_net;

/*
 * Connect the ranks. Collective; only with several hosts.
 *
 * interface  network interface to the other hosts; NULL: found by address
 */
struct perf_net *perf_net_open(const struct perf_group *group,
                               const char *interface);
void perf_net_close(struct perf_net *net);

/* The interface through which this rank reaches other hosts. */
const char *perf_net_interface(const struct perf_net *net);

/* Wait for all ranks. Waiting ranks sleep, so they do not slow down late
 * ones. */
void perf_net_gate(const struct perf_net *net);

/*
 * Send bytes[a * hosts + b] bytes from each host a to each host b (a != b) at
 * once, and receive them. Returns when this rank's part is done.
 */
void perf_net_exchange(struct perf_net *net, const uint64_t *bytes);

/* If `rests`, an exchange wakes up only for whole pieces of the incoming bytes,
 * instead of each packet. This takes the least processor time, for streams
 * during a computation. */
void perf_net_rest(struct perf_net *net, bool rests);

/* The measured properties of a link. */
struct perf_link {
    double rate;    /* bytes per microsecond that a host can send while it
                     * receives as many; the best over patterns and repeats */
    double latency; /* microseconds one way: half of a round trip of one byte,
                     * the median over rounds, then over host 0's links */
    double pause;   /* microseconds from the first rank's arrival at a gate
                     * until the last rank leaves it */
};

/* Measure the links. Collective; every rank gets the same result. */
struct perf_link perf_net_measure(struct perf_net *net);

#endif
