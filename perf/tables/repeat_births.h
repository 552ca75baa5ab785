// SPDX-License-Identifier: Apache-2.0
/*
 * --repeat-births: repeat the run with new processes each time. The placement
 * of processes and of their memory is decided when they start. So figures can
 * be stable within one run and differ in the next one.
 */
#ifndef SHUNT_PERF_REPEAT_BIRTHS_H
#define SHUNT_PERF_REPEAT_BIRTHS_H

#include "perf/tables/table.h"

/*
 * Run this program as often as the options ask, one run after another, print a
 * summary of all runs, and exit. Returns in each of these runs, and if the
 * option is not given.
 */
void perf_births(const struct perf_options *options);

/* The number of this run, from 1 on; 0: the option is not given. */
int perf_birth(void);

/* Keep a row of this operation for the summary; called on rank 0. */
void perf_births_row(enum perf_op op, const struct perf_row *row, double ratio);

#endif
