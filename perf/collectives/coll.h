// SPDX-License-Identifier: Apache-2.0
/*
 * The subcommands of the collective operations.
 */
#ifndef SHUNT_PERF_COLL_H
#define SHUNT_PERF_COLL_H

#include "perf/peers/contest.h"

/* Measure a sweep over sizes, and print its rows. */
void perf_coll(const struct perf_contest *contest);

#endif
