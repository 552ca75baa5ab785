// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommand moe-parts: which number of parts is best for an exchange.
 */
#ifndef SHUNT_PERF_MOE_PARTS_H
#define SHUNT_PERF_MOE_PARTS_H

#include "perf/peers/contest.h"

/* For each number of tokens, print a row for each number of parts, and one for
 * SHUNT_MOE_PARTS_AUTO. */
void perf_moe_parts(const struct perf_contest *contest);

#endif
