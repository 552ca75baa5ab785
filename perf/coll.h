// SPDX-License-Identifier: Apache-2.0
/*
 * The collective operations' subcommands.
 */
#ifndef SHUNT_PERF_COLL_H
#define SHUNT_PERF_COLL_H

#include "engine.h"
#include "group.h"
#include "options.h"

/* A sweep over sizes. `ours` or `peer` may be NULL. Prints rows. */
void perf_coll(const struct perf_options *options,
               const struct perf_group *group, const struct perf_engine *ours,
               const struct perf_engine *peer);

#endif
