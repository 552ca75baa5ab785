// SPDX-License-Identifier: Apache-2.0
/*
 * Plain TCP between the ranks of a run on several hosts: the gate, and the
 * streams that measure the raw rate of the links.
 *
 * One connection joins each pair of hosts. On each host it belongs to the rank
 * whose index there is the other host's number, modulo its number of ranks.
 */
#ifndef SHUNT_PERF_NET_H
#define SHUNT_PERF_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct perf_group;
struct perf_net;

/*
 * Connect. Collective; only with several hosts.
 *
 * interface  to the other hosts; NULL: found by address
 */
struct perf_net *perf_net_open(const struct perf_group *group,
                               const char *interface);
void perf_net_close(struct perf_net *net);

/* The interface through which this rank reaches other hosts. */
const char *perf_net_interface(const struct perf_net *net);

/* Wait for all ranks. They sleep in it, so late ranks are not slowed down. */
void perf_net_gate(const struct perf_net *net);

/*
 * Send bytes[a * hosts + b] bytes from each host a to each host b (a != b) at
 * once, and receive them. Returns when this rank's part is done.
 */
void perf_net_exchange(struct perf_net *net, const uint64_t *bytes);

/* From now on an exchange wakes up for every piece of what arrives, not for every
 * packet: as little work for the processor as streams can be, for those beside a
 * computation. */
void perf_net_rest(struct perf_net *net, bool rests);

/* The measured figures of a link. */
struct perf_link {
    double rate;    /* bytes per microsecond that a host sends while it receives
                       as much; the best over patterns and repeats */
    double latency; /* microseconds one way: half of a round trip of one byte,
                       the median over rounds, then over host 0's links */
    double pause;   /* microseconds until ranks leave the gate */
};

/* Collective; every rank gets the same. */
struct perf_link perf_net_measure(struct perf_net *net);

#endif
