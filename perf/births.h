// SPDX-License-Identifier: Apache-2.0
/*
 * --repeat-births: the same run by ranks that are started anew each time. Where
 * processes and their memory lie is drawn when they start, and figures of one
 * start can be stable and still not those of the next one.
 */
#ifndef SHUNT_PERF_BIRTHS_H
#define SHUNT_PERF_BIRTHS_H

#include "perf/table.h"

/*
 * Run this program as often as asked for, one run after the other, print what
 * the runs have in common, and end. Returns in each of the runs, and when
 * nothing was asked for.
 */
void perf_births(const struct perf_options *options);

/* The number of this run, from 1; 0: there are no others. */
int perf_birth(void);

/* Keep a row for the closing table; on rank 0. */
void perf_births_row(const struct perf_row *row, double ratio);

#endif
