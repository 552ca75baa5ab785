// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommands that exchange tokens: dispatch, combine, moe.
 */
#ifndef SHUNT_PERF_MOE_H
#define SHUNT_PERF_MOE_H

#include "engine.h"
#include "group.h"
#include "options.h"

/* Rows for each number of tokens. `ours` or `peer` may be NULL. */
void perf_moe(const struct perf_options *options,
              const struct perf_group *group, const struct perf_engine *ours,
              const struct perf_engine *peer);

#endif
