// SPDX-License-Identifier: Apache-2.0
/*
 * How copies share the rows of an expert (shunt_moe_set_shares()).
 *
 * A placement with shares has a copy of an expert in the place of each expert
 * (placement.h): number v is a copy of expert[v], and the copies of expert e are
 * first[e] to first[e + 1] - 1, by rank. So the experts of a rank have the same
 * order in it as in the real placement, and the same indices in `local`.
 *
 * The rows of an expert in a plan have one order, by source rank, and then as the
 * source has them. Each copy takes a range of it, cut between leaves.
 */
#ifndef SHUNTI_SHARES_H
#define SHUNTI_SHARES_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

#include "moe/layout/placement.h"

struct shunti_shares {
    struct shunti_placement *real; /* held */
    size_t *first;                 /* (experts of `real` + 1) */
    int32_t *expert;               /* (copies) */
    uint64_t *up_to; /* (copies) shares of the expert's copies up to this one */
};

/* Where experts are, as a caller says it. */
struct shunti_places {
    const int32_t *home; /* or NULL */
    const struct shunt_moe_replica *replicas;
    size_t nreplicas;
    const int64_t *share; /* or NULL */
};

/* The placement that plans are made by, with one holder. NULL: *status and `why`
 * say what is wrong. */
struct shunti_placement *
shunti_shares_placement(const struct shunt_moe *moe,
                        const struct shunti_places *places, char *why,
                        size_t len, enum shunt_status *status);

/* NULL is allowed. */
void shunti_shares_free(struct shunti_shares *shares);

/* The rows of each copy of `expert`, if it has `all`. range: by number of the
 * copy, of which those of the expert are written. */
void shunti_shares_cut(const struct shunti_placement *placement, int expert,
                       uint64_t all, size_t leaf_rows,
                       struct shunt_moe_range *range);

/* Which part of an expert's rows a copy takes, in `units`, rounded up. */
uint32_t shunti_shares_part(const struct shunti_placement *placement, int copy,
                            uint64_t units);
/* Does the copy take some of them, and not all? Then they may be a leaf more than
 * its part. */
static inline bool shunti_shares_are_cut(const struct shunti_placement *p,
                                         int copy)
{
    const uint32_t part = shunti_shares_part(p, copy, UINT32_MAX);

    return part > 0 && part < UINT32_MAX;
}

/* The placement of experts. */
static inline struct shunti_placement *
shunti_placement_real(const struct shunti_placement *p)
{
    return p->shares ? p->shares->real
                     : (struct shunti_placement *)(uintptr_t)p;
}

/* The expert that number `e` of a placement is, or is a copy of. */
static inline int shunti_placement_expert(const struct shunti_placement *p,
                                          int e)
{
    return p->shares ? p->shares->expert[e] : e;
}

#endif
