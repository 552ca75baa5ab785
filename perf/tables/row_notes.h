// SPDX-License-Identifier: Apache-2.0
/*
 * Notes under a row of the table: how a fused call, a layer, a plan in parts, a
 * step, moved experts or a put spent the time that the row has.
 */
#ifndef SHUNT_PERF_ROW_NOTES_H
#define SHUNT_PERF_ROW_NOTES_H

#include "perf/tables/table.h"

void perf_row_notes(const struct perf_row *row,
                    const struct perf_options *options);

#endif
