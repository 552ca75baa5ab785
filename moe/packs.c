// SPDX-License-Identifier: Apache-2.0
/* Lists of rows in packs; see packs.h. */
#include "moe/packs.h"

#include <stdlib.h>

#include "moe/grow.h"
#include "moe/records.h"

void shunti_packs_finish(void *state)
{
    struct shunti_packs *packs = state;

    free(packs->send_rows);
    free(packs->send_tokens);
    free(packs->recv_rows);
    free(packs->home);
    free(packs->place);
    free(packs);
}

static struct shunti_packs *packs_new(size_t nranks)
{
    struct shunti_packs *packs = calloc(1, sizeof(*packs));

    if (!packs)
        return NULL;
    packs->send_rows = calloc(nranks, sizeof(size_t));
    packs->send_tokens = calloc(nranks, sizeof(size_t));
    packs->recv_rows = calloc(nranks, sizeof(size_t));
    if (packs->send_rows && packs->send_tokens && packs->recv_rows)
        return packs;
    shunti_packs_finish(packs);
    return NULL;
}

/* Count rows and tokens by rank. */
static void count(const struct shunti_plan *plan, struct shunti_packs *packs)
{
    const struct shunt_moe *moe = plan->moe;
    const uint32_t *tokens_sent = shunti_record(moe, moe->rank).rank;
    size_t local = (size_t)shunti_placement_count(&moe->placement, moe->rank);

    for (int r = 0; r < moe->nranks; r++) {
        packs->send_rows[r] = 0;
        packs->send_tokens[r] = tokens_sent[r];
        packs->recv_rows[r] = 0;
        for (size_t i = 0; i < local; i++)
            packs->recv_rows[r] += plan->source_count[(size_t)r * local + i];
    }
    for (size_t i = 0; i < plan->first[plan->tokens]; i++)
        packs->send_rows[plan->terms[i].rank]++;
}

/*
 * What a rank returns to us is ordered as it lies there: its experts
 * ascending, of each our rows. `home` says where in all that is returned the
 * row of a term is. shift: (experts) scratch, by position.
 */
static void find_home(const struct shunti_plan *plan,
                      struct shunti_packs *packs, size_t *shift)
{
    const struct shunt_moe *moe = plan->moe;
    const uint32_t *mine = shunti_record(moe, moe->rank).expert;
    const struct shunti_placement *p = &moe->placement;
    const size_t stride = shunti_sort_stride((size_t)moe->config.topk);
    const uint32_t *ours =
        p->copy + (size_t)moe->rank * (size_t)moe->config.experts;
    size_t at = 0;

    for (size_t c = 0; c < p->first[moe->nranks]; c++) {
        const int e = p->local[c];

        if (ours[e] != c)
            continue;
        shift[moe->order.expert[e].position >> SHUNTI_SLOT_BITS] =
            at - moe->base[e];
        at += mine[e];
    }
    for (size_t t = 0; t < plan->tokens; t++) {
        const uint32_t *key = moe->key + t * stride; /* sorted, as the terms */

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            packs->home[i] = (uint32_t)(shift[*key++ >> SHUNTI_SLOT_BITS] +
                                        plan->terms[i].row);
    }
}

/* Our terms by rank, the first of each token marked. */
static void list(const struct shunti_plan *plan,
                 const struct shunti_packs *packs,
                 struct shunti_pack_entry *entries, size_t *next)
{
    const int nranks = plan->moe->nranks;
    size_t at = 0;

    for (int r = 0; r < nranks; r++) {
        next[r] = at;
        at += packs->send_rows[r];
    }
    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];
            const bool first = shunti_packs_first(plan, t, i);

            entries[next[term->rank]++] = (struct shunti_pack_entry){
                term->row | (first ? SHUNTI_PACK_NEW : 0), term->weight};
        }
}

/* Are the lists of others possible? Each token that comes has a first row, and
 * all rows are in our buffer. */
static bool lists_are_good(const struct shunti_direction *direction)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunti_packs *packs = direction->state;
    const struct shunti_pack_entry *entry = packs->place;

    for (int r = 0; r < plan->moe->nranks; r++) {
        size_t tokens = 0;

        for (size_t i = 0; i < packs->recv_rows[r]; i++, entry++) {
            tokens += (entry->row & SHUNTI_PACK_NEW) != 0;
            if (!tokens || (entry->row & ~SHUNTI_PACK_NEW) >= plan->total)
                return false;
        }
        if (tokens != plan->source_tokens[r])
            return false;
    }
    return true;
}

/* Send the lists of rows to the ranks that they go to. next: (nranks) scratch,
 * which is freed. */
static enum shunt_status exchange_lists(struct shunti_direction *direction,
                                        size_t *next)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_moe *moe = plan->moe;
    struct shunti_packs *packs = direction->state;
    const size_t n = (size_t)moe->nranks, terms = plan->first[plan->tokens];
    const size_t places = shunti_packs_sum(packs->recv_rows, moe->nranks);
    size_t *send = malloc(2 * n * sizeof(*send) +
                          (terms + 1) * sizeof(struct shunti_pack_entry));
    struct shunti_pack_entry *entries;

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
        send[r] = packs->send_rows[r] * sizeof(*entries);
        send[n + r] = packs->recv_rows[r] * sizeof(*entries);
    }
    return shunti_lists_start(direction, send, entries, send, NULL,
                              packs->place, send + n, lists_are_good);
}

enum shunt_status shunti_packs_plan(struct shunti_direction *direction)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t n = (size_t)moe->nranks, terms = plan->first[plan->tokens];
    size_t *scratch =
        malloc((n + (size_t)moe->config.experts) * sizeof(*scratch));
    struct shunti_packs *packs;

    if (!direction->state)
        direction->state = packs_new(n);
    packs = direction->state;
    if (!scratch || !packs ||
        !shunti_grow(&packs->home, &packs->home_max, terms,
                     sizeof(*packs->home))) {
        free(scratch);
        return shunti_lists_no_memory(moe);
    }
    count(plan, packs);
    find_home(plan, packs, scratch);
    if (direction->serves[SHUNTI_TO_EXPERTS])
        return exchange_lists(direction, scratch);
    free(scratch);
    direction->lists.here = true; /* there are none */
    return SHUNT_OK;
}
