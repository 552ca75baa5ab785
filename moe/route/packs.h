// SPDX-License-Identifier: Apache-2.0
/*
 * Packs: the additional state of a plan on the route FLAT. It says how many
 * rows go to each rank, and to which slots the receiver copies them. The slots
 * are needed only on the way to the experts.
 */
#ifndef SHUNTI_PACKS_H
#define SHUNTI_PACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* One row, as its source lists it for the receiver. */
struct shunti_pack_entry {
    uint32_t row; /* slot at the receiver; with SHUNTI_PACK_NEW in the first row
                     of each token */
    float weight;
};

#define SHUNTI_PACK_NEW ((uint32_t)1 << 31)

/* Counts for one other rank, of what comes before a bound of parts
 * (parts.h). */
struct shunti_pack_bound {
    size_t send_rows; /* rows that this rank sends there, and that combine sends
                         back */
    size_t send_tokens; /* distinct tokens that this rank sends there */
    size_t recv_rows;   /* rows that the other rank sends here */
    size_t recv_tokens; /* distinct tokens that the other rank sends here */
};

/* The `state` of a direction on the route FLAT. */
struct shunti_packs {
    struct shunti_pack_bound *bound; /* (parts + 1, nranks) counts at each
                                        bound */
    /* (terms) Position of a term's row among the rows of the same part that
     * come home from the same rank. */
    uint32_t *home;
    /* (rows received) The received lists, by source. Used only on the way to
     * the experts. */
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

/* plan(), finish() and bytes() of the route. */
enum shunt_status shunti_packs_plan(struct shunti_direction *direction);
void shunti_packs_finish(void *state);
size_t shunti_packs_bytes(const void *state);

#endif
