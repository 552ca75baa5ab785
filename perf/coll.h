// SPDX-License-Identifier: Apache-2.0
/*
 * The collective operations' subcommands.
 */
#ifndef SHUNT_PERF_COLL_H
#define SHUNT_PERF_COLL_H

#include "perf/contest.h"

/* A sweep over sizes. Prints rows. */
void perf_coll(const struct perf_contest *contest);

#endif
