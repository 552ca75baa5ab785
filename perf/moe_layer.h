// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommand moe-layer: a layer's exchanges beside its computation.
 */
#ifndef SHUNT_PERF_MOE_LAYER_H
#define SHUNT_PERF_MOE_LAYER_H

#include "perf/contest.h"

/* A row for each number of tokens. */
void perf_moe_layer(const struct perf_contest *contest);

#endif
