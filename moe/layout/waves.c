// SPDX-License-Identifier: Apache-2.0
/* Plans in waves; see waves.h. */
#include "moe/layout/waves.h"

#include <stdlib.h>
#include <string.h>

#include "moe/layout/growing_array.h"
#include "moe/layout/shares.h"
#include "moe/plan.h"
#include "src/base/handle.h"

/* --- how much fits ---------------------------------------------------------------- */

/* Units in a row. The units of 2^32 rows fit in 64 bits. */
#define UNIT ((uint64_t)1 << 20)

__extension__ typedef unsigned __int128 wide;

/* Rows in the buffer of `rank` that may be lost to alignment, or because copies
 * take more than their parts. */
static size_t gaps_of(const struct shunt_moe *moe, int rank)
{
    const struct shunti_placement *p = moe->placement;
    const size_t local = (size_t)shunti_placement_count(p, rank);
    size_t gaps = local * (moe->config.row_align - 1);

    for (size_t i = 0; i < local && p->shares; i++)
        if (shunti_shares_are_cut(p, shunti_placement_local(p, rank)[i]))
            gaps += moe->config.leaf_rows;
    return gaps;
}

/* The number of pairs (source, expert) whose rows are on `rank`. */
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

/* The number of quotas in the buffer of `rank`. With padding, each (source,
 * expert) takes as many rows as the fullest one, so each pair has a quota. */
static size_t quotas_of(const struct shunt_moe *moe, int rank)
{
    return moe->config.pad_to_capacity ? users_of(moe, rank)
                                       : (size_t)moe->nranks;
}

size_t shunti_waves_least(const struct shunt_moe *moe)
{
    size_t least = 0;

    for (int r = 0; r < moe->nranks; r++) {
        const size_t need =
            quotas_of(moe, r) * (size_t)moe->config.topk + gaps_of(moe, r);

        least = need > least ? need : least;
    }
    return least;
}

bool shunti_waves_needed(const struct shunti_plan *plan)
{
    if (!plan->waves.max_rows)
        return false;
    for (int r = 0; r < plan->moe->nranks; r++)
        if (plan->rank_total[r] > plan->waves.max_rows)
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
    if (!waves->max_rows || plan->wave.whole)
        return true;
    if (waves->in_order && !waves->left) {
        waves->left = calloc(ranks * ranks, sizeof(*waves->left));
        if (!waves->left)
            return false;
    }
    if (!shunti_grow(&waves->part, &waves->part_max,
                     (size_t)plan->moe->placement->experts,
                     sizeof(*waves->part)))
        return false;
    if (waves->mine)
        return true;
    waves->mine = calloc(4 * ranks, sizeof(*waves->mine));
    waves->of_expert =
        calloc((size_t)plan->moe->config.experts, sizeof(*waves->of_expert));
    if (waves->mine && waves->of_expert) {
        waves->rest = waves->mine + ranks;
        waves->quota = waves->rest + ranks;
        waves->taken = waves->quota + ranks;
        return true;
    }
    free(waves->mine);
    free(waves->of_expert);
    waves->mine = NULL;
    waves->of_expert = NULL;
    return false;
}

void shunti_waves_finish(struct shunti_waves *waves)
{
    free(waves->plan);
    free(waves->mine);
    free(waves->of_expert);
    free(waves->part);
    free(waves->left);
}

/* The entry for the handle of the i-th wave in this place. 0: no memory. */
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
    entry = entry_for(whole->moe, whole->place, i);
    if (!entry)
        return NULL;
    waves->plan[i]->entry = entry;
    return waves->plan[i];
}

/* --- the size of a wave ----------------------------------------------------------- */

void shunti_waves_source(struct shunti_plan *whole, int source,
                         const uint32_t *count)
{
    const struct shunt_moe *moe = whole->moe;
    const struct shunti_placement *p = moe->placement;
    uint32_t *left = whole->waves.left + (size_t)source * (size_t)moe->nranks;

    memset(left, 0, (size_t)moe->nranks * sizeof(*left));
    for (int e = 0; e < p->experts; e++)
        left[shunti_placement_target(p, source, e)] += count[e];
}

/* Add `rows` of an expert to the ranks that take them. less: subtract them. */
static void spread(const struct shunti_plan *whole, int expert, uint64_t rows,
                   bool less, uint64_t *of_rank)
{
    const struct shunt_moe *moe = whole->moe;
    const struct shunti_placement *p = moe->placement;
    const struct shunti_shares *s = p->shares;

    if (less)
        rows = -rows; /* modulo 2^64 */
    if (!s) {
        of_rank[moe->order.expert[expert].rank] += rows * UNIT;
        return;
    }
    for (size_t v = s->first[expert]; v < s->first[expert + 1]; v++)
        of_rank[p->owner[p->copy[v]]] += rows * whole->waves.part[v];
}

/* Add or subtract the rows of all ranks, as they were counted last
 * (split.h). */
static void spread_all(const struct shunti_plan *whole, bool less,
                       uint64_t *of_rank)
{
    const struct shunt_moe *moe = whole->moe;

    for (int s = 0; s < moe->nranks; s++)
        for (int e = 0; e < moe->config.experts; e++)
            spread(whole, e, shunti_split_counts(moe, (size_t)s)[e], less,
                   of_rank);
}

void shunti_waves_begin(struct shunti_plan *whole, const uint32_t *count)
{
    const struct shunt_moe *moe = whole->moe;
    const struct shunti_placement *p = moe->placement;
    struct shunti_waves *waves = &whole->waves;

    memset(waves->mine, 0, 2 * (size_t)moe->nranks * sizeof(*waves->mine));
    for (int v = 0; v < p->experts && p->shares; v++)
        waves->part[v] = shunti_shares_part(p, v, UNIT);
    if (p->shares) {
        count = shunti_split_counts(moe, (size_t)moe->rank);
        spread_all(whole, false, waves->rest);
    } else {
        for (int r = 0; r < moe->nranks; r++)
            waves->rest[r] = whole->rank_rows[r] * UNIT;
    }
    for (int e = 0; e < moe->config.experts; e++)
        spread(whole, e, count[e], false, waves->mine);
    waves->cut = true;
    waves->count = 0;
}

/*
 * The number of this rank's rows for `rank` that fit into a wave. One token
 * always fits. The rest of the buffer is shared in proportion, rounded down.
 * All ranks know the same `rest`, so their quotas together are at most the
 * buffer.
 */
static uint64_t rank_quota(const struct shunti_plan *whole, int rank)
{
    const struct shunt_moe *moe = whole->moe;
    const struct shunti_waves *waves = &whole->waves;
    const size_t room = waves->max_rows - gaps_of(moe, rank);
    const size_t least = (size_t)moe->config.topk;

    if (moe->config.pad_to_capacity)
        return UINT64_MAX; /* expert_quota() is the limit */
    if (waves->rest[rank] <= (wide)room * UNIT)
        return UINT64_MAX;
    return least * UNIT +
           (uint64_t)((wide)(room - least * (size_t)moe->nranks) * UNIT *
                      waves->mine[rank] / waves->rest[rank]);
}

/* In order: find how many rows fit behind those of the ranks before this one.
 * If all rows of an earlier rank fit, that rank takes them. Otherwise it fills
 * the wave, and no room is left for this rank. In order there are no shares. */
static void fill_quotas_in_order(const struct shunti_plan *whole)
{
    const struct shunt_moe *moe = whole->moe;
    const size_t ranks = (size_t)moe->nranks;
    uint64_t *room = whole->waves.quota;

    for (size_t r = 0; r < ranks; r++)
        room[r] = (whole->waves.max_rows - gaps_of(moe, (int)r)) * UNIT;
    for (size_t s = 0; s < (size_t)moe->rank; s++) {
        const uint32_t *left = whole->waves.left + s * ranks;
        bool fits = true;

        for (size_t r = 0; r < ranks; r++)
            fits = fits && left[r] * UNIT <= room[r];
        for (size_t r = 0; r < ranks; r++)
            room[r] = fits ? room[r] - left[r] * UNIT : 0;
    }
}

/* In order: subtract the wave's rows from the rows that sources have left. The
 * wave has all rows of the first sources, so subtract from these first. */
static void leave_in_order(const struct shunti_plan *whole,
                           const struct shunti_plan *wave)
{
    const size_t ranks = (size_t)whole->moe->nranks;

    for (size_t r = 0; r < ranks; r++) {
        size_t rows = wave->rank_rows[r];

        for (size_t s = 0; s < ranks; s++) {
            uint32_t *left = &whole->waves.left[s * ranks + r];
            const uint32_t n = *left < rows ? *left : (uint32_t)rows;

            *left -= n;
            rows -= n;
        }
    }
}

/* In order: set the wave's range of each expert's rows. It begins where the
 * range of the previous wave ends. */
static void find_ranges(const struct shunti_plan *whole,
                        const struct shunti_plan *wave)
{
    const struct shunti_waves *waves = &whole->waves;
    const int rank = whole->moe->rank;

    for (int i = 0; i < shunti_placement_count(wave->placement, rank); i++) {
        const struct shunt_moe_range all = whole->range[i];
        struct shunt_moe_range *range = &wave->range[i];

        if (all.first == SHUNT_MOE_SCATTERED)
            continue;
        range->first = all.first;
        range->all = all.all;
        if (waves->count) {
            const struct shunt_moe_range *before =
                &waves->plan[waves->count - 1]->range[i];

            range->first = before->first + before->count;
        }
    }
}

/* The most rows that this rank may have for an expert in a wave. */
static size_t expert_quota(const struct shunti_plan *whole)
{
    const struct shunt_moe *moe = whole->moe;
    size_t quota = SIZE_MAX;

    for (int r = 0; r < moe->nranks && moe->config.pad_to_capacity; r++) {
        const size_t users = users_of(moe, r);
        const size_t room = whole->waves.max_rows - gaps_of(moe, r);

        if (users && room / users < quota)
            quota = room / users;
    }
    return quota;
}

/* Add a token to the wave. back: remove it again. */
static void take(struct shunti_plan *whole, const int32_t *expert, bool back)
{
    const int topk = whole->moe->config.topk;
    struct shunti_waves *waves = &whole->waves;

    for (int j = 0; j < topk; j++)
        if (expert[j] >= 0) {
            waves->of_expert[expert[j]] += back ? UINT32_MAX : 1;
            spread(whole, expert[j], 1, back, waves->taken);
        }
}

/* True if all tokens of the wave fit. expert: the experts of the token that was
 * added last. most: the most rows that an expert may have. */
static bool fits(const struct shunti_plan *whole, const int32_t *expert,
                 size_t most)
{
    const struct shunt_moe *moe = whole->moe;
    const struct shunti_placement *p = moe->placement;
    const struct shunti_shares *s = p->shares;
    const struct shunti_waves *waves = &whole->waves;

    for (int j = 0; j < moe->config.topk; j++) {
        const int e = expert[j];

        if (e < 0)
            continue;
        if (waves->of_expert[e] > most)
            return false;
        for (size_t v = s ? s->first[e] : 0; v < (s ? s->first[e + 1] : 1);
             v++) {
            const int r = s ? p->owner[p->copy[v]] : moe->order.expert[e].rank;

            if (waves->taken[r] > waves->quota[r])
                return false;
        }
    }
    return true;
}

size_t shunti_waves_take(struct shunti_plan *whole, const int32_t *expert,
                         size_t tokens)
{
    const struct shunt_moe *moe = whole->moe;
    const size_t ranks = (size_t)moe->nranks, k = (size_t)moe->config.topk;
    const size_t most = expert_quota(whole);
    struct shunti_waves *waves = &whole->waves;
    size_t t;

    memset(waves->taken, 0, ranks * sizeof(*waves->taken));
    memset(waves->of_expert, 0,
           (size_t)moe->config.experts * sizeof(*waves->of_expert));
    if (waves->in_order)
        fill_quotas_in_order(whole);
    for (size_t r = 0; r < ranks && !waves->in_order; r++)
        waves->quota[r] = rank_quota(whole, (int)r);
    for (t = 0; t < tokens; t++, expert += k) {
        take(whole, expert, false);
        if (!fits(whole, expert, most)) {
            take(whole, expert, true);
            break;
        }
    }
    return t;
}

void shunti_waves_add(struct shunti_plan *whole, const struct shunti_plan *wave)
{
    const struct shunt_moe *moe = whole->moe;
    struct shunti_waves *waves = &whole->waves;

    for (int r = 0; r < moe->nranks; r++)
        waves->mine[r] -= waves->taken[r];
    if (moe->placement->shares)
        spread_all(whole, true, waves->rest);
    for (int r = 0; r < moe->nranks && !moe->placement->shares; r++)
        waves->rest[r] -= wave->rank_rows[r] * UNIT;
    if (waves->in_order) {
        leave_in_order(whole, wave);
        find_ranges(whole, wave);
    }
    waves->count++;
}

/* Set the counts and ranges of the whole plan to the sums over its waves. The
 * copies may have other rows than in a plan without waves, because each wave
 * rounds their ranges to leaves. */
void shunti_waves_end(struct shunti_plan *whole)
{
    const struct shunt_moe *moe = whole->moe;
    struct shunti_received_rows *rows = &whole->received;
    struct shunt_moe_range *range =
        whole->range + whole->placement->first[moe->rank];

    shunti_received_rows_clear(rows);
    for (int w = 0; w < whole->waves.count; w++)
        shunti_received_rows_add(rows, &whole->waves.plan[w]->received);
    shunti_received_rows_place(rows, moe->config.row_align);
    for (size_t i = 0; i < rows->local; i++)
        range[i] =
            rows->count[i] == range[i].all
                ? (struct shunt_moe_range){0, range[i].all, range[i].all}
                : (struct shunt_moe_range){SHUNT_MOE_SCATTERED, rows->count[i],
                                           SHUNT_MOE_SCATTERED};
}

/* --- waves ------------------------------------------------------------ */

struct shunti_plan *shunti_wave_of(const struct shunti_plan *plan, int wave)
{
    return plan->waves.cut ? plan->waves.plan[wave]
                           : (struct shunti_plan *)(uintptr_t)plan;
}
