// SPDX-License-Identifier: Apache-2.0
/*
 * --repeat-births: the same run, with ranks that are started anew each time.
 * The placement of processes and their memory is decided when they start, so
 * figures can be stable within one run and differ in the next one.
 */
#ifndef SHUNT_PERF_REPEAT_BIRTHS_H
#define SHUNT_PERF_REPEAT_BIRTHS_H

#include "perf/table.h"

/*
 * Run this program as often as the options say, one run after another, print a
 * summary of all runs, and exit. Returns in each of the runs, and if the option
 * is not given.
 */
void perf_births(const struct perf_options *options);

/* The number of this run, from 1; 0: it is the only one. */
int perf_birth(void);

/* Keep a row of this operation for the summary; called on rank 0. */
void perf_births_row(enum perf_op op, const struct perf_row *row, double ratio);

#endif
