// SPDX-License-Identifier: Apache-2.0
/* Plans in waves; see waves.h. */
#include "moe/waves.h"

#include <stdlib.h>
#include <string.h>

#include "moe/grow.h"
#include "moe/plan.h"
#include "src/handle.h"

/* --- how much fits ---------------------------------------------------------------- */

/* Rows of a buffer of `rank` that may be lost to alignment. */
static size_t gaps_of(const struct shunt_moe *moe, int rank)
{
    return (size_t)shunti_placement_count(moe->placement, rank) *
           (moe->config.row_align - 1);
}

/* How many (source, expert) have their rows on `rank`. */
static size_t users_of(const struct shunt_moe *moe, int rank)
{
    const struct shunti_placement *p = moe->placement;
    const int32_t *expert = shunti_placement_local(p, rank);
    size_t users = 0;

    for (int i = 0; i < shunti_placement_count(p, rank); i++)
        for (int s = 0; s < moe->nranks; s++)
            users += shunti_placement_target(p, s, expert[i]) == rank;
    return users;
}

/* With padding each (source, expert) takes as many rows as the fullest, so that
 * is what must not exceed its share. */
static size_t shares_of(const struct shunt_moe *moe, int rank)
{
    return moe->config.pad_to_capacity ? users_of(moe, rank)
                                       : (size_t)moe->nranks;
}

size_t shunti_waves_least(const struct shunt_moe *moe)
{
    size_t least = 0;

    for (int r = 0; r < moe->nranks; r++) {
        const size_t need =
            shares_of(moe, r) * (size_t)moe->config.topk + gaps_of(moe, r);

        least = need > least ? need : least;
    }
    return least;
}

bool shunti_waves_needed(const struct shunti_plan *plan)
{
    if (!plan->max_rows)
        return false;
    for (int r = 0; r < plan->moe->nranks; r++)
        if (plan->rank_total[r] > plan->max_rows)
            return true;
    return false;
}

/* --- memory ----------------------------------------------------------------------- */

bool shunti_waves_prepare(struct shunti_plan *plan)
{
    const size_t ranks = (size_t)plan->moe->nranks;
    struct shunti_waves *waves = &plan->waves;

    waves->cut = false;
    waves->count = 1;
    if (!plan->max_rows || plan->whole || waves->mine)
        return true;
    waves->mine = calloc(3 * ranks, sizeof(*waves->mine));
    waves->taken = calloc(ranks + (size_t)plan->moe->config.experts,
                          sizeof(*waves->taken));
    if (waves->mine && waves->taken) {
        waves->rest = waves->mine + ranks;
        waves->share = waves->rest + ranks;
        return true;
    }
    free(waves->mine);
    free(waves->taken);
    waves->mine = NULL;
    waves->taken = NULL;
    return false;
}

/* An entry of handles for the i-th wave in this place. 0: no memory. */
static uint32_t entry_for(const struct shunt_moe *moe, struct shunti_place *at,
                          size_t i)
{
    uint32_t entry;

    if (i < at->nwaves)
        return at->wave[i];
    if (!shunti_grow(&at->wave, &at->wave_max, i + 1, sizeof(*at->wave)))
        return 0;
    entry = shunti_handle_take(SHUNTI_HANDLE_PLAN, moe->slot);
    if (entry)
        at->wave[at->nwaves++] = entry;
    return entry;
}

struct shunti_plan *shunti_waves_next(struct shunti_plan *whole)
{
    struct shunti_waves *waves = &whole->waves;
    const size_t i = (size_t)waves->count;
    struct shunti_plan *plan;
    uint32_t entry;

    if (!shunti_grow(&waves->plan, &waves->plan_max, i + 1,
                     sizeof(struct shunti_plan *)))
        return NULL;
    if (i == waves->made) {
        plan = calloc(1, sizeof(*plan));
        if (!plan)
            return NULL;
        plan->moe = whole->moe;
        waves->plan[waves->made++] = plan;
    }
    entry = entry_for(whole->moe, whole->at, i);
    if (!entry)
        return NULL;
    waves->plan[i]->entry = entry;
    return waves->plan[i];
}

/* --- the cut ---------------------------------------------------------------------- */

void shunti_waves_begin(struct shunti_plan *whole, const uint32_t *count)
{
    const struct shunt_moe *moe = whole->moe;
    struct shunti_waves *waves = &whole->waves;

    memset(waves->mine, 0, (size_t)moe->nranks * sizeof(*waves->mine));
    for (int e = 0; e < moe->config.experts; e++)
        waves->mine[moe->order.expert[e].rank] += count[e];
    memcpy(waves->rest, whole->rank_rows,
           (size_t)moe->nranks * sizeof(*waves->rest));
    waves->cut = true;
    waves->count = 0;
}

/*
 * What of our rows for `rank` fits into a wave. One token always does; what is
 * left of the rank's buffer is shared in proportion, rounded down. All ranks know
 * the same `rest`, so their shares together are at most the buffer.
 */
static size_t share_of(const struct shunti_plan *whole, int rank)
{
    const struct shunt_moe *moe = whole->moe;
    const struct shunti_waves *waves = &whole->waves;
    const size_t room = whole->max_rows - gaps_of(moe, rank);
    const size_t least = (size_t)moe->config.topk;

    if (moe->config.pad_to_capacity)
        return SIZE_MAX; /* it is by expert */
    if (waves->rest[rank] <= room)
        return SIZE_MAX;
    /* Rows are less than 2^32. */
    return least + (room - least * (size_t)moe->nranks) * waves->mine[rank] /
                       waves->rest[rank];
}

/* Rows of ours that an expert may have in a wave. */
static size_t share_of_experts(const struct shunti_plan *whole)
{
    const struct shunt_moe *moe = whole->moe;
    size_t share = SIZE_MAX;

    for (int r = 0; r < moe->nranks && moe->config.pad_to_capacity; r++) {
        const size_t users = users_of(moe, r);
        const size_t room = whole->max_rows - gaps_of(moe, r);

        if (users && room / users < share)
            share = room / users;
    }
    return share;
}

size_t shunti_waves_take(struct shunti_plan *whole, const int32_t *expert,
                         size_t tokens)
{
    const struct shunt_moe *moe = whole->moe;
    const size_t ranks = (size_t)moe->nranks, k = (size_t)moe->config.topk;
    const size_t most = share_of_experts(whole);
    struct shunti_waves *waves = &whole->waves;
    uint32_t *const of_rank = waves->taken, *const of = of_rank + ranks;
    size_t t;

    memset(waves->taken, 0,
           (ranks + (size_t)moe->config.experts) * sizeof(*waves->taken));
    for (size_t r = 0; r < ranks; r++)
        waves->share[r] = share_of(whole, (int)r);
    for (t = 0; t < tokens; t++, expert += k) {
        bool fits = true;

        for (size_t j = 0; j < k; j++) {
            if (expert[j] < 0)
                continue;
            const int r = moe->order.expert[expert[j]].rank;

            fits = ++of[expert[j]] <= most && ++of_rank[r] <= waves->share[r] &&
                   fits;
        }
        if (fits)
            continue;
        for (size_t j = 0; j < k; j++)
            if (expert[j] >= 0) {
                of[expert[j]]--;
                of_rank[moe->order.expert[expert[j]].rank]--;
            }
        break;
    }
    return t;
}

void shunti_waves_add(struct shunti_plan *whole, const struct shunti_plan *wave)
{
    const struct shunt_moe *moe = whole->moe;
    struct shunti_waves *waves = &whole->waves;

    for (int r = 0; r < moe->nranks; r++) {
        waves->mine[r] -= waves->taken[r];
        waves->rest[r] -= wave->rank_rows[r];
    }
    waves->count++;
}

/* --- waves ------------------------------------------------------------ */

struct shunti_plan *shunti_wave_of(const struct shunti_plan *plan, int wave)
{
    return plan->waves.cut ? plan->waves.plan[wave]
                           : (struct shunti_plan *)(uintptr_t)plan;
}
