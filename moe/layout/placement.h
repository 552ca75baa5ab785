// SPDX-License-Identifier: Apache-2.0
/*
 * Placements: which ranks have which experts. Any map of experts to ranks is
 * possible, and experts may have further copies.
 *
 * If an expert has copies, each source rank sends all its rows for the expert
 * to one of them: to its own copy, otherwise to one on its node, otherwise to
 * any. If n copies are equally near, source s takes copy number s % n of these.
 * So the rank that computes is a function of (source, expert), and counts by
 * (source, expert) are all that a layout needs.
 *
 * With shares, a source's rows for an expert go to several copies. Then plans
 * use another placement, in which each copy is an expert of its own, on one
 * rank. split.h rewrites the routing to the numbers of copies. So most code
 * need not know about shares.
 */
#ifndef SHUNTI_PLACEMENT_H
#define SHUNTI_PLACEMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

struct shunti_placement {
    atomic_int holders; /* used only if shunti_placement_create() made it */
    int ranks;
    int experts;
    uint32_t *copy; /* (ranks, experts) index in `local` of the copy of an
                       expert that a source uses; (experts) if no expert has
                       copies */
    /* (ranks + 1) Index in `local` of each rank's first expert. */
    size_t *first;
    int32_t *local; /* (first[ranks]) experts of each rank, ascending */
    int32_t *owner; /* (first[ranks]) rank of each entry of `local` */
    int32_t *home;  /* (experts) rank of each expert, not of its copies */
    struct shunti_shares *shares; /* NULL: no shares. Otherwise each expert here
                                     is a copy of an expert of another placement
                                     (shares.h) */
};

/* True if each expert has one copy, which all sources use. */
static inline bool
shunti_placement_has_one_copy(const struct shunti_placement *p)
{
    return p->first[p->ranks] == (size_t)p->experts;
}

/* (experts) The copy of each expert that `source` uses. */
static inline const uint32_t *
shunti_placement_copies(const struct shunti_placement *p, int source)
{
    return shunti_placement_has_one_copy(p)
               ? p->copy
               : p->copy + (size_t)source * (size_t)p->experts;
}

/* The number of experts of which `rank` has a copy. The next function returns
 * the ids of these experts, ascending. */
static inline int shunti_placement_count(const struct shunti_placement *p,
                                         int rank)
{
    return (int)(p->first[rank + 1] - p->first[rank]);
}

static inline const int32_t *
shunti_placement_local(const struct shunti_placement *p, int rank)
{
    return p->local + p->first[rank];
}

/* The rank that computes `expert` for `source`. */
static inline int shunti_placement_target(const struct shunti_placement *p,
                                          int source, int expert)
{
    return p->owner[shunti_placement_copies(p, source)[expert]];
}

/*
 * Make a placement.
 *
 * home  (experts), or NULL: expert e is on rank e * ranks / experts.
 * node  (ranks) node of each rank.
 *
 * Errors: SHUNT_ERR_INVALID, SHUNT_ERR_MEMORY; `why` says what is wrong.
 */
enum shunt_status shunti_placement_init(
    struct shunti_placement *placement, int ranks, int experts,
    const int32_t *home, const struct shunt_moe_replica *replicas,
    size_t nreplicas, const int *node, char *why, size_t why_len);

/* `placement` may be zeroed. */
void shunti_placement_finish(struct shunti_placement *placement);

/* Make a placement in memory of its own, with one holder. NULL: an error. Plans
 * and requests hold the placement that they were made with. */
struct shunti_placement *
shunti_placement_create(int ranks, int experts, const int32_t *home,
                        const struct shunt_moe_replica *replicas,
                        size_t nreplicas, const int *node, char *why,
                        size_t why_len, enum shunt_status *status);
/* Add a holder. Returns the placement. Any thread. */
struct shunti_placement *
shunti_placement_hold(struct shunti_placement *placement);
/* Remove a holder; the last one frees the placement. NULL is allowed. */
void shunti_placement_drop(struct shunti_placement *placement);

#endif
