// SPDX-License-Identifier: Apache-2.0
/* Results between nodes; see rails_sums.h. */
#include "moe/route/rails_sums.h"

#include <stdlib.h>
#include <string.h>

#include "moe/plan/settings.h"
#include "src/comm.h"
#include "src/trace/track.h"

bool shunti_rail_sums_init(struct shunti_rail_sums *sums,
                           struct shunti_direction *direction)
{
    const struct shunt_moe *moe = direction->plan->moe;

    sums->plan = direction->plan;
    sums->lists = &direction->lists;
    sums->rails = direction->state;
    sums->chunk = shunti_moe_settings(moe->comm)->chunk;
    sums->terms = calloc(2 * (size_t)moe->config.topk, sizeof(*sums->terms));
    sums->from = calloc((size_t)sums->rails->nfrom + 1, sizeof(*sums->from));
    sums->to = calloc((size_t)moe->nodes, sizeof(*sums->to));
    sums->outs = calloc((size_t)moe->comm->local_size, sizeof(*sums->outs));
    if (sums->terms && sums->from && sums->to && sums->outs) {
        for (int n = 0; n < moe->nodes; n++) {
            const struct shunti_rail_bound *bound = sums->rails->to[n].bound;
            const struct shunti_rail_bound first = bound[sums->cut.from];

            sums->to[n] = (struct shunti_rail_taken){
                .here = (uint32_t)first.row,
                .end = (uint32_t)bound[sums->cut.to].row,
                .next = (uint32_t)first.row,
                .at = first.sums,
            };
        }
        for (int i = 0; i < sums->rails->nfrom; i++)
            sums->from[i].done = !sums->rails->from[i].rows;
        return true;
    }
    shunti_rail_sums_finish(sums);
    return false;
}

void shunti_rail_sums_finish(struct shunti_rail_sums *sums)
{
    free(sums->terms);
    free(sums->from);
    free(sums->to);
    free(sums->outs);
}

/* --- out ---------------------------------------------------------------------- */

static size_t terms_of(const struct shunti_rail_from *from, size_t k)
{
    return from->first[k + 1] - from->first[k];
}

static size_t collect(const struct shunti_rail_sums *sums,
                      const struct shunti_rail_from *from, size_t k,
                      struct shunti_rows_term *terms)
{
    const struct shunt_moe *moe = sums->plan->moe;
    const bool as_is = shunti_home_as_is(moe, terms_of(from, k));
    size_t n = 0;

    for (size_t i = from->first[k]; i < from->first[k + 1]; i++) {
        const struct shunti_rail_entry *entry = &from->entry[i];

        terms[n++] = (struct shunti_rows_term){
            sums->outs[entry->local] + entry->row * moe->row_bytes,
            sums->weighted && !as_is ? entry->weight : 1,
            entry->op,
            0,
        };
    }
    return n;
}

/* Make the sums begin <= k < end. at: bytes of the sums before them. */
static void add_up(struct shunti_rail_sums *sums,
                   const struct shunti_rail_from *from, size_t begin,
                   size_t end, size_t at)
{
    const struct shunt_moe *moe = sums->plan->moe;
    const size_t hidden = moe->config.hidden;
    const bool wide = moe->config.partials == SHUNT_MOE_PARTIALS_F32;
    struct shunti_rows_term *now = sums->terms;
    struct shunti_rows_term *next = now + moe->config.topk, *swap;
    size_t n, nnext = begin < end ? collect(sums, from, begin, next) : 0;
    SHUNTI_TRACK(COPIES);

    for (size_t k = begin; k < end; k++) {
        unsigned char *to =
            shunti_rail_memory(sums->rails, from->sums_staging + at);

        swap = now;
        now = next;
        next = swap;
        n = nnext;
        nnext = k + 1 < end ? collect(sums, from, k + 1, next) : 0;
        at += shunti_home_bytes(moe, n);
        if (n > 1 && wide)
            moe->rows->partial(now, n, next, nnext, to, hidden);
        else if (n)
            moe->rows->sum(now, n, next, nnext, NULL, to, hidden);
    }
}

/* The end of the chunk that begins with sum `begin`. A chunk has as many sums
 * as fit, and at least one. */
static size_t chunk_end(const struct shunti_rail_sums *sums,
                        const struct shunti_rail_from *from, size_t begin,
                        size_t last, size_t *bytes)
{
    const struct shunt_moe *moe = sums->plan->moe;
    size_t end = begin, more = shunti_home_bytes(moe, terms_of(from, begin));

    *bytes = 0;
    do {
        *bytes += more;
        if (++end == last)
            break;
        more = shunti_home_bytes(moe, terms_of(from, end));
    } while (*bytes + more <= sums->chunk);
    return end;
}

static bool send_chunk(struct shunti_rail_sums *sums, int index, uint64_t call,
                       bool broken)
{
    const struct shunti_plan *plan = sums->plan;
    const struct shunti_rail_from *from = &sums->rails->from[index];
    struct shunti_rail_summed *done = &sums->from[index];
    const int node = plan->moe->node[plan->moe->rank];
    size_t end = done->end, bytes = 0;

    if (done->done)
        return false;
    if (!broken)
        end = chunk_end(sums, from, done->sent, done->end, &bytes);
    if (!broken && done->made < end) {
        add_up(sums, from, done->made, end, done->at);
        done->made = end;
    }
    if (!shunti_rail_put(sums->rails, from->source,
                         from->sums_staging + done->at, from->sums + done->at,
                         bytes, SHUNTI_RAIL_SUMS, sums->cut.from, node, call,
                         broken ? SHUNTI_RAIL_BROKEN : (uint32_t)end))
        return false;
    done->sent = end;
    done->done = end == done->end;
    done->at += bytes;
    return true;
}

/* Find where the cut is in the lists, which have arrived. */
static void begin(struct shunti_rail_sums *sums)
{
    for (int i = 0; i < sums->rails->nfrom; i++) {
        const struct shunti_rail_bound *bound = sums->rails->from[i].bound;
        const struct shunti_rail_bound first = bound[sums->cut.from];
        const size_t end = bound[sums->cut.to].row;

        sums->from[i] = (struct shunti_rail_summed){
            .made = first.row,
            .sent = first.row,
            .end = end,
            .at = first.sums,
            .done = sums->from[i].done || first.row == end,
        };
    }
    sums->began = true;
}

bool shunti_rail_sums_send(struct shunti_rail_sums *sums, uint64_t call,
                           bool broken)
{
    const struct shunti_plan *plan = sums->plan;
    const int nfrom = sums->rails->nfrom;
    int first = 0;
    bool any = false;

    if (!sums->lists->here)
        return false;
    if (!sums->began)
        begin(sums);
    if (!shunti_rail_has_turn(sums->rails->sums_line, &sums->turn))
        return false;
    /* Begin with the first source behind this rank, so that not all ranks send
     * to one source. */
    while (first < nfrom && sums->rails->from[first].source < plan->moe->rank)
        first++;
    for (int i = 0; i < nfrom; i++)
        any = send_chunk(sums, (first + i) % nfrom, call, broken) || any;
    sums->turn.sent = shunti_rail_sums_sent(sums);
    return any;
}

/* --- in ------------------------------------------------------------------------- */

void shunti_rail_sums_look(struct shunti_rail_sums *sums, uint64_t call)
{
    const struct shunti_plan *plan = sums->plan;

    for (int n = 0; n < plan->moe->nodes; n++) {
        struct shunti_rail_taken *taken = &sums->to[n];
        uint32_t here;

        if (taken->here == taken->end)
            continue;
        here = shunti_rail_arrived(sums->rails, SHUNTI_RAIL_SUMS,
                                   sums->cut.from, n, call, taken->end);
        if (here == SHUNTI_RAIL_BROKEN) {
            sums->broken = true;
            here = taken->end;
        }
        /* If there are fewer sums than before, the signal is of a later call
         * (rails_rows.c). */
        if (here > taken->here)
            taken->here = here;
    }
}

const unsigned char *shunti_rail_sums_next(struct shunti_rail_sums *sums,
                                           int node, size_t t, size_t terms)
{
    const struct shunti_rail_to *to = &sums->rails->to[node];
    struct shunti_rail_taken *taken = &sums->to[node];

    uint32_t piece;
    size_t at;

    if (taken->asked != sums->asks) {
        taken->asked = sums->asks;
        if (to->token[taken->next] < t)
            taken->at += taken->bytes;
        /* In ALLGATHER, skip tokens without a term on the node, which have no
         * sum. */
        while (to->token[taken->next] < t)
            taken->next++;
        taken->pieces = 0;
        taken->bytes = 0;
    }
    piece = taken->next + taken->pieces++;
    at = taken->at + taken->bytes;
    taken->bytes += shunti_home_bytes(sums->plan->moe, terms);
    return piece < taken->here ? shunti_rail_memory(sums->rails, to->sums + at)
                               : NULL;
}

/* --- progress ---------------------------------------------------------------------- */

bool shunti_rail_sums_miss(const struct shunti_rail_sums *sums, int rank)
{
    const struct shunti_plan *plan = sums->plan;
    const int node = plan->moe->node[rank];

    return sums->rails->to[node].relay == rank &&
           sums->to[node].here != sums->to[node].end;
}

bool shunti_rail_sums_sent(const struct shunti_rail_sums *sums)
{
    for (int i = 0; i < sums->rails->nfrom; i++)
        if (!sums->from[i].done)
            return false;
    return true;
}

void shunti_rail_sums_give_up(struct shunti_rail_sums *sums, int rank)
{
    const struct shunti_plan *plan = sums->plan;
    int node = plan->moe->node[rank];

    for (int i = 0; i < sums->rails->nfrom; i++)
        if (sums->rails->from[i].source == rank)
            sums->from[i].done = true;
    if (sums->rails->to[node].relay != rank)
        return;
    sums->broken = true;
    sums->to[node].here = sums->to[node].end;
}
