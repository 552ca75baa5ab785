// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommands that exchange tokens: dispatch, combine, moe.
 */
#ifndef SHUNT_PERF_MOE_H
#define SHUNT_PERF_MOE_H

#include "perf/peers/contest.h"

/* Print rows for each number of tokens. */
void perf_moe(const struct perf_contest *contest);

#endif
