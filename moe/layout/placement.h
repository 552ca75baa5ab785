// SPDX-License-Identifier: Apache-2.0
/*
 * Where experts live: any map of experts to ranks, and further copies.
 *
 * With copies, each source rank sends all its rows for an expert to one of
 * them: its own, else one on its node, else any; of several it takes the one
 * whose index is its rank modulo their number. So the rank that computes is a
 * function of (source, expert), and counts by (source, expert) say everything.
 *
 * With shares a source's rows for an expert go to several copies. Then a plan is
 * made by another placement, whose experts are the copies: each of them has one
 * place, and split.h rewrites the routing. So all else need not know of it.
 */
#ifndef SHUNTI_PLACEMENT_H
#define SHUNTI_PLACEMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

struct shunti_placement {
    atomic_int holders; /* of one by shunti_placement_create() */
    int ranks;
    int experts;
    uint32_t *copy; /* (ranks, experts) index in `local` of the copy of e that
                       source s uses; (experts) if each has one copy */
    size_t *first;  /* (ranks + 1) where a rank's part of `local` begins */
    int32_t *local; /* (first[ranks]) experts of each rank, ascending */
    int32_t *owner; /* (first[ranks]) rank of each */
    int32_t *home;  /* (experts) rank of each, without copies */
    struct shunti_shares *shares; /* experts are copies of others (shares.h);
                                     NULL: they are experts */
};

/* Has each expert one copy? Then all sources use it. */
static inline bool
shunti_placement_has_one_copy(const struct shunti_placement *p)
{
    return p->first[p->ranks] == (size_t)p->experts;
}

/* (experts) The copy of each that `source` uses. */
static inline const uint32_t *
shunti_placement_copies(const struct shunti_placement *p, int source)
{
    return shunti_placement_has_one_copy(p)
               ? p->copy
               : p->copy + (size_t)source * (size_t)p->experts;
}

/* How many experts `rank` has a copy of, and their ids, ascending. */
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
 * home  (experts), or NULL: expert e on rank e * ranks / experts.
 * node  (ranks) node of each rank.
 *
 * On SHUNT_ERR_INVALID or SHUNT_ERR_MEMORY, `why` says what is wrong.
 */
enum shunt_status shunti_placement_init(
    struct shunti_placement *placement, int ranks, int experts,
    const int32_t *home, const struct shunt_moe_replica *replicas,
    size_t nreplicas, const int *node, char *why, size_t why_len);

/* Accepts a zeroed one. */
void shunti_placement_finish(struct shunti_placement *placement);

/* The same in memory of its own, with one holder; NULL after an error. Plans and
 * requests hold the placement that they were made with. */
struct shunti_placement *
shunti_placement_create(int ranks, int experts, const int32_t *home,
                        const struct shunt_moe_replica *replicas,
                        size_t nreplicas, const int *node, char *why,
                        size_t why_len, enum shunt_status *status);
/* One more holder. Returns the placement. Any thread. */
struct shunti_placement *
shunti_placement_hold(struct shunti_placement *placement);
/* One less: the last one frees it. NULL is allowed. */
void shunti_placement_drop(struct shunti_placement *placement);

#endif
