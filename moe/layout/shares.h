// SPDX-License-Identifier: Apache-2.0
/*
 * Shares: how copies divide the rows of an expert (shunt_moe_set_shares()).
 *
 * A placement with shares has an expert for each copy (placement.h). Number v
 * is a copy of expert[v]. The copies of expert e have the numbers from first[e]
 * on, up to first[e + 1] (excluded), by rank. So a rank's experts have the same
 * order, and the same indices in `local`, as in the real placement.
 *
 * In a plan, the rows of an expert have one order: by source rank, then in the
 * source's order. Each copy takes a range of them, which begins and ends
 * between leaves.
 */
#ifndef SHUNTI_SHARES_H
#define SHUNTI_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

#include "moe/layout/placement.h"

struct shunti_shares {
    struct shunti_placement *real; /* placement of the experts; held */
    size_t *first;   /* (experts of `real` + 1) first copy of each expert */
    int32_t *expert; /* (copies) expert of each copy */
    uint64_t *up_to; /* (copies) sum of the shares of the same expert's copies,
                        up to and including this one */
};

/* A placement, as in the arguments of a call. */
struct shunti_places {
    const int32_t *home; /* (experts) NULL: the default placement */
    const struct shunt_moe_replica *replicas;
    size_t nreplicas;
    const int64_t *share; /* (experts + nreplicas) NULL: no shares */
};

/* Make the placement for plans, with one holder. NULL: *status and `why` say
 * what is wrong. */
struct shunti_placement *
shunti_shares_placement(const struct shunt_moe *moe,
                        const struct shunti_places *places, char *why,
                        size_t len, enum shunt_status *status);

/* NULL is allowed. */
void shunti_shares_free(struct shunti_shares *shares);

/* Find the rows of each copy of `expert`, which has `all` rows. range: (copies)
 * by number; only those of this expert are set. */
void shunti_shares_cut(const struct shunti_placement *placement, int expert,
                       uint64_t all, size_t leaf_rows,
                       struct shunt_moe_range *range);

/* The part of an expert's rows that a copy takes, in `units`, rounded up. */
uint32_t shunti_shares_part(const struct shunti_placement *placement, int copy,
                            uint64_t units);
/* True if the copy takes some rows of its expert and not all. Then it may get a
 * leaf more than its part. */
static inline bool shunti_shares_are_cut(const struct shunti_placement *p,
                                         int copy)
{
    const uint32_t part = shunti_shares_part(p, copy, UINT32_MAX);

    return part > 0 && part < UINT32_MAX;
}

/* With shares, the placement of experts whose copies `p` has. Otherwise `p`
 * itself. */
static inline struct shunti_placement *
shunti_placement_real(const struct shunti_placement *p)
{
    return p->shares ? p->shares->real
                     : (struct shunti_placement *)(uintptr_t)p;
}

/* With shares, `e` is the number of a copy: returns its expert. Otherwise
 * returns `e`. */
static inline int shunti_placement_expert(const struct shunti_placement *p,
                                          int e)
{
    return p->shares ? p->shares->expert[e] : e;
}

#endif
