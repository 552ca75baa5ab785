// SPDX-License-Identifier: Apache-2.0
/* shunt-perf moe-move, moe-refresh, moe-reduce: the state of experts travels. */
#ifndef SHUNT_PERF_EXPERTS_H
#define SHUNT_PERF_EXPERTS_H

#include "perf/contest.h"

void perf_experts(const struct perf_contest *contest);

#endif
