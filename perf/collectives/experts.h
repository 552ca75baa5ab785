// SPDX-License-Identifier: Apache-2.0
/* shunt-perf moe-move, moe-refresh, moe-reduce: sending the state of
 * experts. */
#ifndef SHUNT_PERF_EXPERTS_H
#define SHUNT_PERF_EXPERTS_H

#include "perf/peers/contest.h"

void perf_experts(const struct perf_contest *contest);

#endif
