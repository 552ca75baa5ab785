// SPDX-License-Identifier: Apache-2.0
/*
 * Machine-readable rows: --json and --csv, to stdout or appended to a file.
 */
#ifndef SHUNT_PERF_MACHINE_ROWS_H
#define SHUNT_PERF_MACHINE_ROWS_H

#include <stdbool.h>
#include <stdio.h>

#include "perf/tables/table.h"

/* Flush `stream`. If some of the output could not be written, ends the program.
 * `file` is its name in the error; NULL: stdout. */
void perf_check_written(FILE *stream, const char *file);

/* Open the outputs; on rank 0 only. Returns whether stdout is used for rows.
 * Ends the program if a file cannot be written. */
bool perf_objects_open(const struct perf_settings *settings);
/* Set the options of the rows that follow. */
void perf_objects_operation(const struct perf_options *options);
/* Write a row. Returns whether to print it in the table as well. */
bool perf_objects_row(const struct perf_row *row, double ratio);
void perf_objects_close(void);

#endif
