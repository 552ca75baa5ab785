// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommand `put`: puts of a transport, with their signals.
 */
#ifndef SHUNT_PERF_PUT_H
#define SHUNT_PERF_PUT_H

#include "perf/peers/contest.h"

/*
 * Measure puts between ranks 0 and 1, over the transport that joins them.
 * Prints two rows for each size: a ping-pong, and a stream. With --peer verbs,
 * the same is measured with libibverbs.
 */
void perf_put(const struct perf_contest *contest);

#endif
