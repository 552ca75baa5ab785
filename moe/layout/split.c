// SPDX-License-Identifier: Apache-2.0
/* Shares in a plan; see split.h. */
#include "moe/layout/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/allgather.h"
#include "moe/layout/capacity.h"
#include "moe/layout/counts.h"
#include "moe/layout/growing_array.h"
#include "moe/layout/layout.h"
#include "moe/layout/shares.h"
#include "moe/plan.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"

void shunti_split_finish(struct shunti_split *split)
{
    free(split->routing);
    free(split->count);
    free(split->sums);
    free(split->left);
    free(split->next);
    free(split->range);
    memset(split, 0, sizeof(*split));
}

static size_t experts_of(const struct shunt_moe *moe)
{
    return (size_t)moe->config.experts;
}

static size_t copies_of(const struct shunt_moe *moe)
{
    return (size_t)moe->placement->experts;
}

const uint32_t *shunti_split_counts(const struct shunt_moe *moe, size_t source)
{
    return moe->split.count + source * experts_of(moe);
}

static uint32_t *own_counts(const struct shunt_moe *moe)
{
    return moe->split.count + (size_t)moe->rank * experts_of(moe);
}

static bool prepare_gather(struct shunt_moe *moe)
{
    struct shunti_split *s = &moe->split;

    return shunti_grow(&s->count, &s->count_max,
                       (size_t)moe->nranks * experts_of(moe),
                       sizeof(*s->count));
}

static bool prepare(struct shunt_moe *moe, size_t assignments)
{
    struct shunti_split *s = &moe->split;
    const size_t experts = experts_of(moe), copies = copies_of(moe);

    return prepare_gather(moe) &&
           shunti_grow(&s->sums, &s->sums_max, 2 * experts, sizeof(*s->sums)) &&
           shunti_grow(&s->left, &s->left_max, copies, sizeof(*s->left)) &&
           shunti_grow(&s->next, &s->next_max, experts, sizeof(*s->next)) &&
           shunti_grow(&s->range, &s->range_max, copies, sizeof(*s->range)) &&
           shunti_grow(&s->routing, &s->routing_max, assignments,
                       sizeof(*s->routing));
}

/* Count ids by expert. Returns the index of the first bad id, or n. */
static size_t count(const int32_t *expert, size_t n, uint32_t experts,
                    uint32_t *counts)
{
    memset(counts, 0, experts * sizeof(*counts));
    for (size_t i = 0; i < n; i++) {
        if ((uint32_t)expert[i] < experts)
            counts[expert[i]]++;
        else if (expert[i] != -1)
            return i;
    }
    return n;
}

/* Drop assignments over the capacity. False: no memory. */
static bool drop(struct shunt_moe *moe, const float *weight, size_t tokens,
                 double factor)
{
    const struct shunt_moe_config *c = &moe->config;
    const size_t capacity =
        shunti_capacity(factor, tokens, c->topk, c->experts);
    const size_t n = tokens * (size_t)c->topk;
    uint32_t *counts = own_counts(moe);
    const size_t before = shunti_counts_sum(counts, experts_of(moe));

    if (!shunti_counts_exceed(counts, experts_of(moe), capacity))
        return true;
    if (!shunti_grow(&moe->expert, &moe->expert_max, n, sizeof(*moe->expert)))
        return false;
    memcpy(moe->expert, moe->split.expert, n * sizeof(*moe->expert));
    moe->split.expert = moe->expert;
    if (shunti_capacity_apply(moe->expert, weight, n, c->experts, capacity,
                              c->drop, counts))
        return false;
    moe->split.dropped = before - shunti_counts_sum(counts, experts_of(moe));
    return true;
}

enum shunt_status shunti_split_count(struct shunt_moe *moe,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, double factor, char *why,
                                     size_t len)
{
    const size_t n = tokens * (size_t)moe->config.topk;
    size_t read;

    moe->split.dropped = 0;
    moe->split.expert = expert;
    if (prepare(moe, n)) {
        read = count(expert, n, (uint32_t)moe->config.experts, own_counts(moe));
        if (read < n) {
            shunti_layout_bad_id(expert, read, moe->config.topk,
                                 moe->config.experts, why, len);
            return SHUNT_ERR_INVALID;
        }
        if (drop(moe, weight, tokens, factor))
            return SHUNT_OK;
    }
    snprintf(why, len, "no memory to share the rows of %zu tokens", tokens);
    return SHUNT_ERR_MEMORY;
}

enum shunt_status shunti_split_gather(struct shunt_moe *moe,
                                      enum shunt_status status)
{
    enum shunt_status st;

    if (!prepare_gather(moe)) {
        shunti_comm_enter(moe->comm);
        st = shunti_request_refuse(
            moe->comm,
            SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U32, 0,
                             SHUNTI_PURPOSE_MOE_PLAN_CREATE),
            SHUNT_ERR_MEMORY,
            "moe_plan_create: no memory for the counts of "
            "%d ranks",
            moe->nranks);
        shunti_comm_leave(moe->comm);
        return st;
    }
    if (status)
        memset(own_counts(moe), 0, experts_of(moe) * sizeof(uint32_t));
    return shunti_allgather(moe->comm, SHUNTI_IN_PLAN_CREATE, SHUNT_IN_PLACE,
                            moe->split.count, experts_of(moe), SHUNT_U32);
}

/* --- which rows go where ---------------------------------------------------------- */

/* Add up the rows of each expert. all: over all ranks. before: over the ranks
 * before this one. */
static void add_up(const struct shunt_moe *moe, size_t *all, size_t *before)
{
    memset(all, 0, experts_of(moe) * sizeof(*all));
    for (int s = 0; s < moe->nranks; s++) {
        if (s == moe->rank)
            memcpy(before, all, experts_of(moe) * sizeof(*all));
        shunti_counts_add(all, shunti_split_counts(moe, (size_t)s),
                          experts_of(moe));
    }
}

/* The number of rows of `range` that are in first <= row < end. */
static uint32_t common(const struct shunt_moe_range *range, uint64_t first,
                       uint64_t end)
{
    const uint64_t last = range->first + range->count;
    const uint64_t from = range->first > first ? range->first : first;
    const uint64_t to = last < end ? last : end;

    return to > from ? (uint32_t)(to - from) : 0;
}

const int32_t *shunti_split_apply(struct shunt_moe *moe,
                                  struct shunti_plan *plan, size_t tokens)
{
    const struct shunti_placement *p = moe->placement;
    struct shunti_split *s = &moe->split;
    const size_t experts = experts_of(moe), copies = copies_of(moe);
    const size_t n = tokens * (size_t)moe->config.topk;
    size_t *all = s->sums, *before = all + experts;

    if (!shunti_grow(&plan->range, &plan->range_max, copies,
                     sizeof(*plan->range)))
        return NULL;
    add_up(moe, all, before);
    for (size_t e = 0; e < experts; e++) {
        const uint64_t end = before[e] + own_counts(moe)[e];

        shunti_shares_cut(p, (int)e, all[e], moe->config.leaf_rows, s->range);
        s->next[e] = (int32_t)p->shares->first[e];
        for (size_t v = p->shares->first[e]; v < p->shares->first[e + 1]; v++) {
            s->left[v] = common(&s->range[v], before[e], end);
            plan->range[p->copy[v]] = s->range[v];
        }
    }
    for (size_t i = 0; i < n; i++) {
        const int32_t e = s->expert[i];

        s->routing[i] = -1;
        if (e < 0)
            continue;
        while (!s->left[s->next[e]])
            s->next[e]++;
        s->left[s->next[e]]--;
        s->routing[i] = s->next[e];
    }
    return s->routing;
}

/* --- plans without shares ---------------------------------------------------------- */

bool shunti_split_prepare(struct shunti_plan *plan)
{
    const struct shunti_placement *p = plan->moe->placement;
    const size_t here = (size_t)shunti_placement_count(p, plan->moe->rank);

    return p->shares || shunti_grow(&plan->range, &plan->range_max, here + 1,
                                    sizeof(*plan->range));
}

/* True if all sources use this copy. */
static bool has_all(const struct shunti_placement *p, size_t copy)
{
    for (int s = 0; s < p->ranks; s++)
        if (shunti_placement_copies(p, s)[p->local[copy]] != copy)
            return false;
    return true;
}

void shunti_split_none(struct shunti_plan *plan)
{
    const struct shunti_placement *p = plan->placement;
    const int rank = plan->moe->rank;

    for (size_t i = 0; i < (size_t)shunti_placement_count(p, rank); i++) {
        const uint64_t count = plan->received.count[i];

        plan->range[i] =
            shunti_placement_has_one_copy(p) || has_all(p, p->first[rank] + i)
                ? (struct shunt_moe_range){0, count, count}
                : (struct shunt_moe_range){SHUNT_MOE_SCATTERED, count,
                                           SHUNT_MOE_SCATTERED};
    }
}

const struct shunt_moe_range *
shunti_split_ranges_here(const struct shunti_plan *plan)
{
    const struct shunti_placement *p = plan->placement;

    return plan->range + (p->shares ? p->first[plan->moe->rank] : 0);
}
