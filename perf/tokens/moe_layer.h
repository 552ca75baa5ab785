// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommand moe-layer: a layer whose exchanges overlap with its
 * computation.
 */
#ifndef SHUNT_PERF_MOE_LAYER_H
#define SHUNT_PERF_MOE_LAYER_H

#include "perf/peers/contest.h"

/* Print a row for each number of tokens. */
void perf_moe_layer(const struct perf_contest *contest);

#endif
