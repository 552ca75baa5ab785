// SPDX-License-Identifier: Apache-2.0
/*
 * The rows that a plan has for each expert, as shunt_moe_loads() reports them.
 *
 * If records have counts (records.h), or if there are shares (split.h), every
 * rank knows the counts of all ranks, and the plan keeps a copy. Otherwise,
 * each rank sends all others the sums of its experts' rows, together with the
 * offsets (remote_offsets.h). Then a rank knows the sums, but not the rows of
 * each source.
 */
#ifndef SHUNTI_LOADS_H
#define SHUNTI_LOADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunti_plan;

struct shunti_loads {
    uint32_t *count; /* (nranks, experts) if `by_source`, else (experts) */
    size_t count_max;
    bool by_source;
};

/* Get memory for the loads. False: no memory. */
bool shunti_loads_prepare(struct shunti_plan *plan);

/* Copy the counts of all ranks, if they are known. Otherwise start with 0. */
void shunti_loads_keep(struct shunti_plan *plan);

/* Add the rows for `expert` that one of its ranks receives. Does nothing if
 * rows are known by source. */
void shunti_loads_add(struct shunti_plan *plan, int32_t expert, uint32_t rows);

#endif
