// SPDX-License-Identifier: Apache-2.0
/*
 * Plain streams between the hosts beside a computation: what the kernel's work
 * for the bytes costs the processor that computes, whoever sends them.
 *
 * A thread of each rank that holds connections (net.h) sends and receives the
 * bytes once for each computation that begins. With no hosts between which
 * anything travels it does nothing.
 */
#ifndef SHUNT_PERF_BACKGROUND_STREAMS_H
#define SHUNT_PERF_BACKGROUND_STREAMS_H

#include <stdint.h>

struct perf_net;
struct perf_beside;

/* bytes: (hosts, hosts), kept until the end. */
struct perf_beside *perf_beside_open(struct perf_net *net,
                                     const uint64_t *bytes);
/* Send the bytes once more, behind those that are under way. */
void perf_beside_begin(struct perf_beside *beside);
/* Wait until all have been sent, and received. */
void perf_beside_end(struct perf_beside *beside);
void perf_beside_close(struct perf_beside *beside);

#endif
