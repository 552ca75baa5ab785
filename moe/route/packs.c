// SPDX-License-Identifier: Apache-2.0
/* Lists of rows in packs; see packs.h. */
#include "moe/route/packs.h"

#include <stdlib.h>
#include <string.h>

#include "moe/layout/growing_array.h"
#include "moe/plan/records.h"

void shunti_packs_finish(void *state)
{
    struct shunti_packs *packs = state;

    free(packs->bound);
    free(packs->home);
    free(packs->place);
    free(packs);
}

/* Count the rows and tokens for each rank, up to each bound. The distinct
 * tokens for each rank in the whole plan are known already. */
static void count(const struct shunti_plan *plan, struct shunti_packs *packs)
{
    const struct shunt_moe *moe = plan->moe;
    const uint32_t *tokens_sent = shunti_record(moe, moe->rank).rank;
    const size_t n = (size_t)moe->nranks;
    const size_t local =
        (size_t)shunti_placement_count(plan->placement, moe->rank);

    memset(packs->bound, 0, n * sizeof(*packs->bound));
    for (int b = 1; b <= plan->parts.count; b++) {
        struct shunti_pack_bound *bound = packs->bound + (size_t)b * n;
        const size_t end = shunti_parts_token(plan, b);
        const bool last = b == plan->parts.count;

        memcpy(bound, bound - n, n * sizeof(*bound));
        for (size_t t = shunti_parts_token(plan, b - 1); t < end; t++)
            for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
                struct shunti_pack_bound *to = &bound[plan->terms[i].rank];

                to->send_rows++;
                to->send_tokens += !last && shunti_packs_first(plan, t, i);
            }
        for (int r = 0; r < moe->nranks; r++) {
            if (last)
                bound[r].send_tokens = tokens_sent[r];
            bound[r].recv_tokens = shunti_parts_tokens(plan, b, r);
            bound[r].recv_rows = 0;
            for (size_t i = 0; i < local; i++)
                bound[r].recv_rows += shunti_parts_rows(plan, b, r, i);
        }
    }
}

/* Find the shift of each expert. Its first row of a part has a position among
 * the rows that its rank sends home. The shift is that position minus the slot
 * of the row in the rank's buffer. All arrays are by position. */
static void find_shift(const struct shunti_plan *plan, const uint32_t *rows,
                       const uint32_t *before, size_t *shift)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = plan->placement;
    const uint32_t *ours = shunti_placement_copies(p, moe->rank);

    for (int r = 0; r < moe->nranks; r++) {
        size_t at = 0;

        for (size_t c = p->first[r]; c < p->first[r + 1]; c++) {
            const int e = p->local[c];
            const size_t position =
                moe->order.expert[e].position >> SHUNTI_SLOT_BITS;

            if (ours[e] != c)
                continue;
            shift[position] = at - moe->base[e] - before[position];
            at += rows[position];
        }
    }
}

/* Count the rows of some tokens, by position. */
static void count_rows(const struct shunti_plan *plan, size_t begin, size_t end,
                       uint32_t *rows)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t stride = shunti_sort_stride((size_t)moe->config.topk);

    memset(rows, 0, (size_t)plan->placement->experts * sizeof(*rows));
    for (size_t t = begin; t < end; t++) {
        const uint32_t *key = moe->key + t * stride; /* keys are in the order of
                                                        terms */

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            rows[*key++ >> SHUNTI_SLOT_BITS]++;
    }
}

/*
 * In one part, a peer sends this rank's rows back in the peer's own order: by
 * expert (ascending), then by row. `home[i]` is the position of term i in that
 * order.
 *
 * shift   (experts) scratch.
 * counts  (2 * experts) scratch.
 */
static void find_home(const struct shunti_plan *plan,
                      struct shunti_packs *packs, size_t *shift,
                      uint32_t *counts)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t experts = (size_t)plan->placement->experts;
    const size_t stride = shunti_sort_stride((size_t)moe->config.topk);
    const uint32_t *mine = shunti_record(moe, moe->rank).expert;
    uint32_t *rows = counts, *before = counts + experts;

    memset(before, 0, experts * sizeof(*before));
    for (int b = 0; b < plan->parts.count; b++) {
        const size_t begin = shunti_parts_token(plan, b);
        const size_t end = shunti_parts_token(plan, b + 1);

        /* Count the rows that were in no earlier part. For the last part, these
         * are its rows. */
        for (size_t e = 0; e < experts; e++) {
            const size_t position =
                moe->order.expert[e].position >> SHUNTI_SLOT_BITS;

            rows[position] = mine[e] - before[position];
        }
        if (b < plan->parts.count - 1)
            count_rows(plan, begin, end, rows);
        find_shift(plan, rows, before, shift);
        for (size_t t = begin; t < end; t++) {
            const uint32_t *key = moe->key + t * stride;

            for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
                packs->home[i] = (uint32_t)(shift[*key++ >> SHUNTI_SLOT_BITS] +
                                            plan->terms[i].row);
        }
        for (size_t e = 0; e < experts; e++)
            before[e] += rows[e];
    }
}

/* List this rank's terms by receiving rank, with the first of each token
 * marked. */
static void list(const struct shunti_plan *plan,
                 const struct shunti_packs *packs,
                 struct shunti_pack_entry *entries, size_t *next)
{
    const int nranks = plan->moe->nranks;
    const struct shunti_pack_bound *all =
        shunti_packs_at(plan, packs, plan->parts.count);
    size_t at = 0;

    for (int r = 0; r < nranks; r++) {
        next[r] = at;
        at += all[r].send_rows;
    }
    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];
            const bool first = shunti_packs_first(plan, t, i);

            entries[next[term->rank]++] = (struct shunti_pack_entry){
                term->row | (first ? SHUNTI_PACK_NEW : 0), term->weight};
        }
}

/* True if the received lists can be right. In each part, each received token
 * must begin with a first row, and all rows must be in this rank's buffer. */
static bool lists_are_good(const struct shunti_direction *direction)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunti_packs *packs = direction->state;
    const struct shunti_pack_entry *entry = packs->place;

    for (int r = 0; r < plan->moe->nranks; r++) {
        size_t tokens = 0, i = 0;

        for (int b = 0; b < plan->parts.count; b++) {
            const struct shunti_pack_bound *end =
                &shunti_packs_at(plan, packs, b + 1)[r];
            const size_t before = tokens;

            for (; i < end->recv_rows; i++, entry++) {
                tokens += (entry->row & SHUNTI_PACK_NEW) != 0;
                if (tokens == before ||
                    (entry->row & ~SHUNTI_PACK_NEW) >= plan->received.total)
                    return false;
            }
            if (tokens != end->recv_tokens)
                return false;
        }
    }
    return true;
}

/* Send the lists to the ranks that receive the rows. next: (nranks) scratch,
 * which is freed. */
static enum shunt_status exchange_lists(struct shunti_direction *direction,
                                        size_t *next)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_moe *moe = plan->moe;
    struct shunti_packs *packs = direction->state;
    const size_t n = (size_t)moe->nranks, terms = plan->first[plan->tokens];
    const struct shunti_pack_bound *all =
        shunti_packs_at(plan, packs, plan->parts.count);
    size_t *send = malloc(2 * n * sizeof(*send) +
                          (terms + 1) * sizeof(struct shunti_pack_entry));
    struct shunti_pack_entry *entries;
    size_t places = 0;

    for (size_t r = 0; r < n; r++)
        places += all[r].recv_rows;
    if (!send || !shunti_grow(&packs->place, &packs->place_max, places,
                              sizeof(*packs->place))) {
        free(send);
        free(next);
        return shunti_lists_no_memory(moe);
    }
    entries = (void *)(send + 2 * n);
    list(plan, packs, entries, next);
    free(next);
    for (size_t r = 0; r < n; r++) {
        send[r] = all[r].send_rows * sizeof(*entries);
        send[n + r] = all[r].recv_rows * sizeof(*entries);
    }
    return shunti_lists_start(direction, send, entries, send, NULL,
                              packs->place, send + n, lists_are_good);
}

enum shunt_status shunti_packs_plan(struct shunti_direction *direction)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t n = (size_t)moe->nranks, terms = plan->first[plan->tokens];
    const size_t experts = (size_t)plan->placement->experts;
    /* Room for find_home(): `experts` numbers, then 2 * experts 32-bit words.
     * Room for exchange_lists(): n numbers. */
    size_t *scratch = malloc((n + 2 * experts) * sizeof(*scratch));
    struct shunti_packs *packs;

    if (!direction->state)
        direction->state = calloc(1, sizeof(*packs));
    packs = direction->state;
    if (!scratch || !packs ||
        !shunti_grow(&packs->bound, &packs->bound_max,
                     (size_t)(plan->parts.count + 1) * n,
                     sizeof(*packs->bound)) ||
        !shunti_grow(&packs->home, &packs->home_max, terms,
                     sizeof(*packs->home))) {
        free(scratch);
        return shunti_lists_no_memory(moe);
    }
    count(plan, packs);
    find_home(plan, packs, scratch, (uint32_t *)(scratch + experts));
    if (direction->serves[SHUNTI_TO_EXPERTS])
        return exchange_lists(direction, scratch);
    free(scratch);
    direction->lists.here = true; /* no lists are needed */
    return SHUNT_OK;
}

size_t shunti_packs_bytes(const void *state)
{
    const struct shunti_packs *packs = state;

    return packs->bound_max * sizeof(*packs->bound) +
           packs->home_max * sizeof(*packs->home) +
           packs->place_max * sizeof(*packs->place);
}
