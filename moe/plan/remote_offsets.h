// SPDX-License-Identifier: Apache-2.0
/*
 * Remote offsets: where this rank's rows begin on the ranks that they go to.
 * The same step finds the number of rows that each rank gets, and the offsets
 * in other ranks' windows that routes need.
 *
 * If records have counts, a rank computes all of this by itself. Otherwise each
 * rank lays out its own buffer from its column of the counts, and sends every
 * source its offsets.
 */
#ifndef SHUNTI_REMOTE_OFFSETS_H
#define SHUNTI_REMOTE_OFFSETS_H

#include <stdbool.h>

#include "moe/layout/layout.h"
#include "moe/plan.h"

/* Bytes that a rank with `local` experts sends to each source: `offset_bytes`
 * of the routes; and for each expert, the source's first row and the sum of all
 * sources' rows (loads.h). */
size_t shunti_start_bytes(size_t local, size_t offset_bytes);

/* Get memory to find the offsets. False: no memory. */
bool shunti_remote_offsets_prepare(struct shunt_moe *moe);

/*
 * Fill in plan->rank_total, plan->rank_rows, moe->base, and the remote offsets
 * of the plan's directions (read_offsets() of the route). Called after
 * shunti_layout_recv() and traffic(). Collective; all ranks get the same
 * errors.
 */
enum shunt_status shunti_remote_offsets_find(struct shunti_plan *plan);

#endif
