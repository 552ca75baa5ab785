// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommand `copy`: a copy engine compared with copies by its caller.
 */
#ifndef SHUNT_PERF_COPY_H
#define SHUNT_PERF_COPY_H

#include "perf/peers/contest.h"

/*
 * Print rows for each size: contiguous copies, copies with gaps and by an index
 * list; a copy during a computation; and the engine's latency and its CPU time
 * when idle. Rank 0 measures alone, and the other ranks sleep meanwhile.
 */
void perf_copy(const struct perf_contest *contest);

#endif
