// SPDX-License-Identifier: Apache-2.0
/* A step of a layer with uneven loads, with balance and without: moe-step. */
#ifndef SHUNT_PERF_MOE_STEP_H
#define SHUNT_PERF_MOE_STEP_H

#include "perf/contest.h"

void perf_moe_step(const struct perf_contest *contest);

#endif
