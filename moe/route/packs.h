// SPDX-License-Identifier: Apache-2.0
/*
 * What a plan whose rows travel by the route FLAT knows beside its layout: how
 * much goes to each rank, and into which rows it is to be copied there. Only
 * rows to the experts need the latter.
 */
#ifndef SHUNTI_PACKS_H
#define SHUNTI_PACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* One row of ours, as its source lists it. */
struct shunti_pack_entry {
    uint32_t row; /* the top bit: the first of another token */
    float weight;
};

#define SHUNTI_PACK_NEW ((uint32_t)1 << 31)

/* With one rank, before a bound of parts (parts.h). */
struct shunti_pack_bound {
    size_t send_rows;   /* rows of ours there: what combine returns */
    size_t send_tokens; /* distinct tokens of ours there */
    size_t recv_rows;   /* rows of theirs here */
    size_t recv_tokens; /* distinct tokens of theirs here */
};

/* What a direction of the route FLAT keeps: its `state`. */
struct shunti_packs {
    struct shunti_pack_bound *bound; /* (parts + 1, nranks) */
    uint32_t *home; /* (terms) place of a term's row in what its rank returns of
                       its part */
    struct shunti_pack_entry *place; /* (rows that are received) by source; only
                                        to the experts */
    size_t bound_max, home_max, place_max;
};

/* Of all ranks at a bound. */
static inline const struct shunti_pack_bound *
shunti_packs_at(const struct shunti_plan *plan,
                const struct shunti_packs *packs, int bound)
{
    return packs->bound + (size_t)bound * (size_t)plan->moe->nranks;
}

static inline size_t shunti_packs_sum(const size_t *counts, int n)
{
    size_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* Is term `i` of token `t` the first that goes to its rank? The token travels
 * there once. */
static inline bool shunti_packs_first(const struct shunti_plan *plan, size_t t,
                                      size_t i)
{
    for (size_t k = plan->first[t]; k < i; k++)
        if (plan->terms[k].rank == plan->terms[i].rank)
            return false;
    return true;
}

/* plan() and finish() of the route. */
enum shunt_status shunti_packs_plan(struct shunti_direction *direction);
void shunti_packs_finish(void *state);
size_t shunti_packs_bytes(const void *state);

#endif
