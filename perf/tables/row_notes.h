// SPDX-License-Identifier: Apache-2.0
/*
 * Notes under a row of the table: how the row's time was spent in a fused call,
 * a layer, a plan in parts, a step, a transfer of experts or a put.
 */
#ifndef SHUNT_PERF_ROW_NOTES_H
#define SHUNT_PERF_ROW_NOTES_H

#include "perf/tables/table.h"

void perf_row_notes(const struct perf_row *row,
                    const struct perf_options *options);

#endif
