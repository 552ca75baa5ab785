// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommand `copy`: a copy engine beside copies by its caller.
 */
#ifndef SHUNT_PERF_COPY_H
#define SHUNT_PERF_COPY_H

#include "perf/contest.h"

/*
 * Rows for each size: contiguous, with gaps and by an index list; of a copy
 * beside a computation; and of the engine's latency and idleness. Rank 0
 * measures alone, and the other ranks sleep meanwhile.
 */
void perf_copy(const struct perf_contest *contest);

#endif
