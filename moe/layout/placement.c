// SPDX-License-Identifier: Apache-2.0
/* Placements of experts; see placement.h. */
#include "moe/layout/placement.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/shares.h"

static enum shunt_status check(int ranks, int experts, const int32_t *home,
                               const struct shunt_moe_replica *replicas,
                               size_t nreplicas, char *why, size_t why_len)
{
    if (home)
        for (int e = 0; e < experts; e++)
            if (home[e] < 0 || home[e] >= ranks) {
                snprintf(why, why_len,
                         "placement[%d] is %d, and ranks are 0 to %d", e,
                         (int)home[e], ranks - 1);
                return SHUNT_ERR_INVALID;
            }
    if (nreplicas && !replicas) {
        snprintf(why, why_len, "replicas is NULL, nreplicas is %zu", nreplicas);
        return SHUNT_ERR_INVALID;
    }
    for (size_t i = 0; i < nreplicas; i++)
        if (replicas[i].expert < 0 || replicas[i].expert >= experts ||
            replicas[i].rank < 0 || replicas[i].rank >= ranks) {
            snprintf(why, why_len,
                     "replicas[%zu] puts expert %d on rank %d; there are %d "
                     "experts and %d ranks",
                     i, (int)replicas[i].expert, (int)replicas[i].rank, experts,
                     ranks);
            return SHUNT_ERR_INVALID;
        }
    return SHUNT_OK;
}

/* Choose the rank whose copy `source` uses: one of `owners` (ascending), and
 * one on the source's node if there is any. Consecutive sources use different
 * owners. */
static int copy_for(int source, const int *owners, int count, const int *node)
{
    int near = 0, turn;

    for (int i = 0; i < count; i++)
        near += node[owners[i]] == node[source];
    turn = source % (near ? near : count);
    for (int i = 0; i < count; i++)
        if ((!near || node[owners[i]] == node[source]) && turn-- == 0)
            return owners[i];
    return source; /* not reached: an expert has an owner */
}

/* Set p->copy if each expert has one copy. */
static void choose_only(struct shunti_placement *p)
{
    for (size_t i = 0; i < p->first[p->ranks]; i++)
        p->copy[p->local[i]] = (uint32_t)i;
}

/* Set p->copy for every source, in ranks x copies steps. has: (experts, ranks)
 * true if the rank has a copy of the expert. index: (ranks) scratch, the next
 * copy of each rank. owners: (ranks) scratch. */
static void choose(struct shunti_placement *p, const bool *has, const int *node,
                   size_t *index, int *owners)
{
    memcpy(index, p->first, (size_t)p->ranks * sizeof(*index));
    for (int e = 0; e < p->experts; e++) {
        const bool *on = has + (size_t)e * (size_t)p->ranks;
        int count = 0;

        for (int r = 0; r < p->ranks; r++)
            if (on[r])
                owners[count++] = r;
        for (int s = 0; s < p->ranks; s++) {
            const int chosen = count == 1 ? owners[0]
                               : on[s]    ? s
                                          : copy_for(s, owners, count, node);

            p->copy[(size_t)s * (size_t)p->experts + (size_t)e] =
                (uint32_t)index[chosen];
        }
        for (int i = 0; i < count; i++)
            index[owners[i]]++;
    }
}

enum shunt_status shunti_placement_init(
    struct shunti_placement *p, int ranks, int experts, const int32_t *home,
    const struct shunt_moe_replica *replicas, size_t nreplicas, const int *node,
    char *why, size_t why_len)
{
    size_t nr = (size_t)ranks, ne = (size_t)experts, copies = ne, at = 0;
    enum shunt_status st;
    size_t *index;
    int *owners;
    bool *has;

    memset(p, 0, sizeof(*p));
    st = check(ranks, experts, home, replicas, nreplicas, why, why_len);
    if (st)
        return st;
    p->ranks = ranks;
    p->experts = experts;
    has = calloc(ne * nr, sizeof(*has));
    index = malloc(nr * sizeof(*index));
    owners = malloc(nr * sizeof(*owners));
    p->copy = malloc((nreplicas ? nr : 1) * ne * sizeof(*p->copy));
    p->owner = malloc((ne + nreplicas) * sizeof(*p->owner));
    p->first = malloc((nr + 1) * sizeof(*p->first));
    p->local = malloc((ne + nreplicas) * sizeof(*p->local));
    p->home = malloc(ne * sizeof(*p->home));
    st = SHUNT_ERR_MEMORY;
    snprintf(why, why_len, "no memory for a placement of %d experts", experts);
    if (!has || !index || !owners || !p->copy || !p->owner || !p->first ||
        !p->local || !p->home)
        goto out;

    for (size_t e = 0; e < ne; e++) {
        p->home[e] = home ? home[e] : (int32_t)(e * nr / ne);
        has[e * nr + (size_t)p->home[e]] = true;
    }
    for (size_t i = 0; i < nreplicas; i++) {
        bool *on =
            &has[(size_t)replicas[i].expert * nr + (size_t)replicas[i].rank];

        if (*on) {
            snprintf(why, why_len,
                     "replicas[%zu]: rank %d has expert %d already", i,
                     (int)replicas[i].rank, (int)replicas[i].expert);
            st = SHUNT_ERR_INVALID;
            goto out;
        }
        *on = true;
        copies++;
    }
    for (size_t r = 0; r < nr; r++) {
        p->first[r] = at;
        for (size_t e = 0; e < ne; e++)
            if (has[e * nr + r]) {
                p->owner[at] = (int32_t)r;
                p->local[at++] = (int32_t)e;
            }
    }
    p->first[nr] = at;
    if (nreplicas)
        choose(p, has, node, index, owners);
    else
        choose_only(p);
    st = at == copies ? SHUNT_OK : SHUNT_ERR_INVALID;
out:
    free(has);
    free(index);
    free(owners);
    if (st)
        shunti_placement_finish(p);
    return st;
}

void shunti_placement_finish(struct shunti_placement *p)
{
    free(p->copy);
    free(p->owner);
    free(p->first);
    free(p->local);
    free(p->home);
    shunti_shares_free(p->shares);
    memset(p, 0, sizeof(*p));
}

struct shunti_placement *
shunti_placement_create(int ranks, int experts, const int32_t *home,
                        const struct shunt_moe_replica *replicas,
                        size_t nreplicas, const int *node, char *why,
                        size_t why_len, enum shunt_status *status)
{
    struct shunti_placement *p = malloc(sizeof(*p));

    if (!p) {
        snprintf(why, why_len, "no memory for a placement");
        *status = SHUNT_ERR_MEMORY;
        return NULL;
    }
    *status = shunti_placement_init(p, ranks, experts, home, replicas,
                                    nreplicas, node, why, why_len);
    if (*status) {
        free(p);
        return NULL;
    }
    atomic_init(&p->holders, 1);
    return p;
}

struct shunti_placement *shunti_placement_hold(struct shunti_placement *p)
{
    atomic_fetch_add_explicit(&p->holders, 1, memory_order_relaxed);
    return p;
}

void shunti_placement_drop(struct shunti_placement *p)
{
    /* acq_rel: all accesses by other holders come before free(). */
    if (!p ||
        atomic_fetch_sub_explicit(&p->holders, 1, memory_order_acq_rel) > 1)
        return;
    shunti_placement_finish(p);
    free(p);
}
