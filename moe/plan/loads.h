// SPDX-License-Identifier: Apache-2.0
/*
 * How many rows a plan has for each expert, as shunt_moe_loads() tells it.
 *
 * If records have counts (records.h), or there are shares (split.h), every rank has
 * those of all ranks, and the plan keeps a copy. Else the ranks that hold an expert tell its rows to all
 * others with the starts (remote_offsets.h), so the sums are known, but not by source.
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

/* Memory for them. False: there is none. */
bool shunti_loads_prepare(struct shunti_plan *plan);

/* Keep the counts of the records; without counts, begin with 0. */
void shunti_loads_keep(struct shunti_plan *plan);

/* A rank has so many rows for `expert`. Nothing is done if they are known by
 * source. */
void shunti_loads_add(struct shunti_plan *plan, int32_t expert, uint32_t rows);

#endif
