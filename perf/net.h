// SPDX-License-Identifier: Apache-2.0
/*
 * Plain TCP between the ranks of a run on several hosts: the gate, and the
 * streams that say what the links give to somebody who just sends bytes.
 *
 * One connection joins each pair of hosts; of each host the rank whose index
 * there is the other host's number, modulo the ranks it has, holds it.
 */
#ifndef SHUNT_PERF_NET_H
#define SHUNT_PERF_NET_H

#include <stddef.h>
#include <stdint.h>

struct perf_group;
struct perf_net;

/*
 * Connect. Collective; only with several hosts.
 *
 * interface  by which the other hosts are reached; NULL: found by address
 */
struct perf_net *perf_net_open(const struct perf_group *group,
                               const char *interface);
void perf_net_close(struct perf_net *net);

/* The interface by which this rank reaches other hosts. */
const char *perf_net_interface(const struct perf_net *net);

/* Wait for all ranks. They sleep in it, so it costs the late ones nothing. */
void perf_net_gate(const struct perf_net *net);

/*
 * Send bytes[a * hosts + b] bytes from each host a to each host b (a != b) at
 * once, and receive them. Returns when this rank's part is done.
 */
void perf_net_exchange(struct perf_net *net, const uint64_t *bytes);

/* What a link gives. */
struct perf_link {
    double rate;    /* bytes per microsecond that a host sends while it receives
                       as much; the best over patterns and repeats */
    double latency; /* microseconds one way: half of a round trip of one byte,
                       the median over rounds, then over host 0's links */
    double pause;   /* microseconds until ranks that waited at the gate go on */
};

/* Collective; every rank gets the same. */
struct perf_link perf_net_measure(struct perf_net *net);

#endif
