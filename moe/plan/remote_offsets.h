// SPDX-License-Identifier: Apache-2.0
/*
 * Where the rows of this rank begin on the ranks that they go to, how many rows
 * each rank gets, and what the routes have to know of other ranks' windows.
 *
 * If records have counts, a rank finds all that by itself. Else each rank lays
 * out its own buffer by its column, and tells every source its part of it.
 */
#ifndef SHUNTI_REMOTE_OFFSETS_H
#define SHUNTI_REMOTE_OFFSETS_H

#include <stdbool.h>

#include "moe/layout/layout.h"
#include "moe/plan.h"

/* Bytes that a rank with so many experts tells each source: what the routes tell,
 * and for each expert its first row and all its rows (loads.h). */
size_t shunti_start_bytes(size_t local, size_t told);

/* Memory to find them. False: there is none. */
bool shunti_remote_offsets_prepare(struct shunt_moe *moe);

/*
 * Fill in plan->rank_total, moe->base, and what the plan's directions hear; after
 * traffic(). Collective; all ranks get the same errors.
 *
 * recv  what this rank receives: shunti_layout_recv().
 */
enum shunt_status
shunti_remote_offsets_find(struct shunti_plan *plan,
                           const struct shunti_layout_recv *recv);

#endif
