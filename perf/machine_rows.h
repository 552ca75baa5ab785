// SPDX-License-Identifier: Apache-2.0
/*
 * The rows for machines: --json and --csv, to stdout or appended to a file.
 */
#ifndef SHUNT_PERF_MACHINE_ROWS_H
#define SHUNT_PERF_MACHINE_ROWS_H

#include <stdbool.h>
#include <stdio.h>

#include "perf/table.h"

/* Flush `stream`; ends the program if what was printed cannot be written. `file`
 * is its name, NULL: stdout. */
void perf_check_written(FILE *stream, const char *file);

/* Called on rank 0 only. Returns whether stdout is used for the rows; ends the
 * program if a file cannot be written. */
bool perf_objects_open(const struct perf_settings *settings);
/* The options of the rows that follow. */
void perf_objects_operation(const struct perf_options *options);
/* Returns whether the row is to be printed for people as well. */
bool perf_objects_row(const struct perf_row *row, double ratio);
void perf_objects_close(void);

#endif
