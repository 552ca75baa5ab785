// SPDX-License-Identifier: Apache-2.0
/* The subcommand moe-step: a step of a layer with uneven loads, with balance
 * and without. */
#ifndef SHUNT_PERF_MOE_STEP_H
#define SHUNT_PERF_MOE_STEP_H

#include "perf/peers/contest.h"

void perf_moe_step(const struct perf_contest *contest);

#endif
