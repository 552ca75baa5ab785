// SPDX-License-Identifier: Apache-2.0
/*
 * Packs: what a plan on the route FLAT knows beside its layout. It knows how
 * much goes to each rank, and into which rows the receiver copies it. The
 * latter is needed only on the way to the experts.
 */
#ifndef SHUNTI_PACKS_H
#define SHUNTI_PACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* One row, as its source lists it for the receiver. */
struct shunti_pack_entry {
    uint32_t row; /* SHUNTI_PACK_NEW is set in the first row of each token */
    float weight;
};

#define SHUNTI_PACK_NEW ((uint32_t)1 << 31)

/* Counts for one other rank, before a bound of parts (parts.h). */
struct shunti_pack_bound {
    size_t send_rows;   /* this rank's rows there: combine brings them home */
    size_t send_tokens; /* this rank's distinct tokens there */
    size_t recv_rows;   /* the other rank's rows here */
    size_t recv_tokens; /* the other rank's distinct tokens here */
};

/* The `state` of a direction on the route FLAT. */
struct shunti_packs {
    struct shunti_pack_bound *bound; /* (parts + 1, nranks) */
    /* (terms) Position of a term's row among the rows of its part that its rank
     * sends home. */
    uint32_t *home;
    /* (rows received) The received lists, by source. Only on the way to the
     * experts. */
    struct shunti_pack_entry *place;
    size_t bound_max, home_max, place_max;
};

/* (nranks) The counts for all ranks at a bound. */
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

/* True if term `i` is the first of token `t` that goes to its rank. The token
 * travels there once. */
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
