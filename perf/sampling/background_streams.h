// SPDX-License-Identifier: Apache-2.0
/*
 * Plain streams between the hosts, during a computation. They show how much
 * time the kernel's work for the bytes takes from the processor that computes,
 * whichever library sends the bytes.
 *
 * On each rank that holds connections (net.h), a thread sends and receives the
 * bytes once for each call of perf_beside_begin(). If nothing is sent between
 * hosts, there are no streams.
 */
#ifndef SHUNT_PERF_BACKGROUND_STREAMS_H
#define SHUNT_PERF_BACKGROUND_STREAMS_H

#include <stdint.h>

struct perf_net;
struct perf_beside;

/* bytes: (hosts, hosts), see perf_net_exchange(); borrowed until
 * perf_beside_close(). */
struct perf_beside *perf_beside_open(struct perf_net *net,
                                     const uint64_t *bytes);
/* Send the bytes once more, after those that are under way. */
void perf_beside_begin(struct perf_beside *beside);
/* Wait until all bytes have been sent and received. */
void perf_beside_end(struct perf_beside *beside);
void perf_beside_close(struct perf_beside *beside);

#endif
