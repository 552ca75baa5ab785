// SPDX-License-Identifier: Apache-2.0
/* Rows in packs; see packed.h. */
#include "moe/packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fp8.h"
#include "kernels/rows.h"
#include "moe/grow.h"
#include "src/call.h"
#include "src/comm.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/note.h"
#include "src/refusal.h"

/* --- with the plan: lists ----------------------------------------------------- */

void shunti_packs_finish(struct shunti_packs *packs)
{
    free(packs->send_rows);
    free(packs->send_tokens);
    free(packs->recv_rows);
    free(packs->home);
    free(packs->place);
}

static size_t sum_of(const size_t *counts, int n)
{
    size_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

/* How much goes where. */
static void count(struct shunti_plan *plan, const uint32_t *tokens_sent)
{
    const struct shunt_moe *moe = plan->moe;
    struct shunti_packs *packs = &plan->packs;
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
static void find_home(struct shunti_plan *plan, const uint32_t *mine,
                      const size_t *base, size_t *shift)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = &moe->placement;
    const size_t stride = shunti_sort_stride((size_t)moe->config.topk);
    const uint32_t *ours =
        p->copy + (size_t)moe->rank * (size_t)moe->config.experts;
    size_t at = 0;

    for (size_t c = 0; c < p->first[moe->nranks]; c++) {
        const int e = p->local[c];

        if (ours[e] != c)
            continue;
        shift[moe->order.expert[e].position >> SHUNTI_SLOT_BITS] = at - base[e];
        at += mine[e];
    }
    for (size_t t = 0; t < plan->tokens; t++) {
        const uint32_t *key = moe->key + t * stride; /* sorted, as the terms */

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            plan->packs.home[i] = (uint32_t)(shift[*key++ >> SHUNTI_SLOT_BITS] +
                                             plan->terms[i].row);
    }
}

/* Our terms by rank, the first of each token marked. */
static void list(const struct shunti_plan *plan,
                 struct shunti_pack_entry *entries, size_t *next)
{
    const int nranks = plan->moe->nranks;
    size_t at = 0;

    for (int r = 0; r < nranks; r++) {
        next[r] = at;
        at += plan->packs.send_rows[r];
    }
    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];
            bool first = true;

            for (size_t k = plan->first[t]; k < i; k++)
                first = first && plan->terms[k].rank != term->rank;
            entries[next[term->rank]++] = (struct shunti_pack_entry){
                term->row | (first ? SHUNTI_PACK_NEW : 0), term->weight};
        }
}

/* The lists of others make sense: a first row for each token that comes, and
 * each in our buffer. */
static bool lists_are_good(const struct shunti_plan *plan)
{
    const struct shunti_packs *packs = &plan->packs;
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

enum shunt_status shunti_packs_exchange(struct shunti_plan *plan,
                                        const struct shunti_counts *counts,
                                        const size_t *base)
{
    struct shunt_moe *moe = plan->moe;
    struct shunti_packs *packs = &plan->packs;
    const uint32_t *mine = counts->rows[moe->rank];
    size_t n = (size_t)moe->nranks, terms = plan->first[plan->tokens];
    size_t *send = malloc(2 * n * sizeof(*send) +
                          (terms + 1) * sizeof(struct shunti_pack_entry));
    size_t *recv = send ? send + n : NULL;
    struct shunti_pack_entry *entries = (void *)(send ? send + 2 * n : NULL);
    size_t *next = malloc((n + (size_t)moe->config.experts) * sizeof(*next));
    size_t places = 0;

    if (!packs->send_rows)
        packs->send_rows = calloc(n, sizeof(size_t));
    if (!packs->send_tokens)
        packs->send_tokens = calloc(n, sizeof(size_t));
    if (!packs->recv_rows)
        packs->recv_rows = calloc(n, sizeof(size_t));
    if (send && next && packs->send_rows && packs->send_tokens &&
        packs->recv_rows) {
        count(plan, mine + moe->config.experts);
        places = sum_of(packs->recv_rows, moe->nranks);
    }
    if (!send || !next || !packs->send_rows || !packs->send_tokens ||
        !packs->recv_rows ||
        !shunti_grow(&packs->home, &packs->home_max, terms,
                     sizeof(*packs->home)) ||
        !shunti_grow(&packs->place, &packs->place_max, places,
                     sizeof(*packs->place))) {
        free(send);
        free(next);
        return shunti_lists_no_memory(moe);
    }
    find_home(plan, mine, base, next);
    list(plan, entries, next);
    free(next);
    for (size_t r = 0; r < n; r++) {
        send[r] = packs->send_rows[r] * sizeof(*entries);
        recv[r] = packs->recv_rows[r] * sizeof(*entries);
    }
    return shunti_lists_start(plan, send, entries, send, NULL, packs->place,
                              recv, lists_are_good);
}

/* --- the operation ------------------------------------------------------------- */

/*
 * One alltoallv carries both ways: what goes to a rank is first the tokens for
 * it, and then the rows that it gets back. Whatever the call, it is two
 * operations, so that ranks which make different calls are together again
 * behind them.
 */
struct packed {
    const struct shunti_moe_call *call;
    struct shunti_plan *plan;
    struct shunti_packed what;
    bool out, back;              /* what the call has */
    struct shunt_request *inner; /* the alltoallv */
    unsigned char *send, *recv;
    size_t *bytes;       /* (2 * nranks) to each rank, and from each */
    size_t *home;        /* (nranks) in recv: where the rows are from which
                            plan->packs.home counts */
    size_t *next;        /* (nranks) scratch */
    unsigned char *some; /* scratch: a row, or a token's terms */
    char why[200];       /* a peer that called something else; "": none */
    /* The inner exchange does not say which plan it belongs to: this note
     * does. */
    struct peer {
        bool told, heard;
    } peers[];
};

static struct packed *state_of(const struct shunt_request *request)
{
    return (struct packed *)(void *)(uintptr_t)request->state;
}

static size_t wire_bytes(const struct packed *packed)
{
    const struct shunt_moe *moe = packed->plan->moe;

    return packed->what.fp8 ? shunti_fp8_bytes(moe->config.hidden)
                            : moe->row_bytes;
}

/* Each token once for each rank, at the begin of its pack. */
static void pack_tokens(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    size_t bytes = wire_bytes(packed), *next = packed->next, at = 0;

    for (int r = 0; r < moe->nranks; r++) {
        next[r] = at;
        at += packed->bytes[r];
    }
    for (size_t t = 0; t < plan->tokens; t++) {
        const unsigned char *src =
            (const unsigned char *)packed->what.out + t * moe->row_bytes;

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            int r = plan->terms[i].rank;
            bool first = true;
            unsigned char *dst;

            for (size_t k = plan->first[t]; k < i; k++)
                first = first && plan->terms[k].rank != r;
            if (!first)
                continue;
            dst = packed->send + next[r];
            next[r] += bytes;
            if (packed->what.fp8)
                moe->rows->pack(dst, src, moe->config.hidden);
            else
                memcpy(dst, src, bytes);
        }
    }
}

/* From the packs to all rows of each token. */
static void place_tokens(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_pack_entry *entry = plan->packs.place;
    const unsigned char *pack = packed->recv;

    for (int r = 0; r < moe->nranks; r++) {
        const unsigned char *from = pack, *row = NULL;

        for (size_t i = 0; i < plan->packs.recv_rows[r]; i++, entry++) {
            unsigned char *dst =
                (unsigned char *)packed->what.placed +
                (size_t)(entry->row & ~SHUNTI_PACK_NEW) * moe->row_bytes;

            if (entry->row & SHUNTI_PACK_NEW) {
                row = from;
                from += wire_bytes(packed);
                if (packed->what.fp8) {
                    moe->rows->unpack(packed->some, row, moe->config.hidden);
                    row = packed->some;
                }
            }
            if (packed->what.weighted)
                moe->rows->scale(dst, row, entry->weight, moe->config.hidden);
            else
                memcpy(dst, row, moe->row_bytes);
        }
        pack += packed->bytes[moe->nranks + r];
    }
}

/* Each source's rows, in the order that they lie in, at the end of its pack. */
static void pack_rows(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = &moe->placement;
    const int32_t *expert = shunti_placement_local(p, moe->rank);
    size_t local = (size_t)shunti_placement_count(p, moe->rank);
    unsigned char *end = packed->send;

    for (int s = 0; s < moe->nranks; s++) {
        unsigned char *to;

        end += packed->bytes[s];
        to = end - plan->packs.recv_rows[s] * moe->row_bytes;
        for (size_t i = 0; i < local; i++) {
            size_t at = plan->offset[i];
            size_t n = plan->source_count[(size_t)s * local + i];

            for (int b = 0; b < s; b++) {
                if (shunti_placement_target(p, b, expert[i]) != moe->rank)
                    continue;
                at += moe->config.pad_to_capacity
                          ? plan->padded[b]
                          : plan->source_count[(size_t)b * local + i];
            }
            memcpy(to,
                   (const unsigned char *)packed->what.back +
                       at * moe->row_bytes,
                   n * moe->row_bytes);
            to += n * moe->row_bytes;
        }
    }
}

/* The row of a term of ours as it was returned. */
static const unsigned char *returned(const struct packed *packed, size_t term)
{
    const struct shunti_plan *plan = packed->plan;

    return packed->recv + packed->home[plan->terms[term].rank] +
           plan->packs.home[term] * plan->moe->row_bytes;
}

static void add_rows(const struct packed *packed)
{
    struct shunti_rows_term *terms =
        (struct shunti_rows_term *)(void *)packed->some;
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;

    for (size_t t = 0; t < plan->tokens; t++) {
        const void *bias = packed->what.bias;
        size_t n = 0;

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            terms[n++] = (struct shunti_rows_term){
                returned(packed, i),
                packed->what.sum_weighted ? plan->terms[i].weight : 1,
                plan->terms[i].op,
                0,
            };
        moe->rows->sum(terms, n, NULL, 0,
                       bias ? (const unsigned char *)bias + t * moe->row_bytes
                            : NULL,
                       (unsigned char *)packed->what.sum + t * moe->row_bytes,
                       moe->config.hidden);
    }
}

static void multiply_rows(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    size_t topk = (size_t)moe->config.topk;

    memset(packed->what.dweight, 0, plan->tokens * topk * sizeof(float));
    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            packed->what.dweight[t * topk + plan->terms[i].slot] =
                moe->rows->dot((const unsigned char *)packed->what.dy +
                                   t * moe->row_bytes,
                               returned(packed, i), NULL, moe->config.hidden);
}

/* Is the inner operation over? Its failure is ours. */
static bool inner_is_over(struct shunt_request *request)
{
    struct packed *packed = state_of(request);
    struct shunt_request *inner = packed->inner;
    enum shunt_status st;

    if (!inner)
        return true;
    if (inner->status == SHUNT_IN_PROGRESS)
        return false;
    packed->inner = NULL;
    st = shunti_request_collect(inner); /* a step does not wait */
    if (st)
        shunti_request_error(request, st, "%s",
                             shunt_last_error(request->comm));
    return true;
}

static bool tell_and_hear(struct shunt_request *request)
{
    struct packed *packed = state_of(request);
    const int rank = packed->plan->moe->rank;
    bool all = true;

    for (int r = 0; r < packed->plan->moe->nranks; r++) {
        struct peer *peer = &packed->peers[r];
        const struct shunti_note *note;
        struct shunti_blame blame;

        if (r == rank)
            continue;
        if (!peer->told && shunti_note_room(request, r)) {
            shunti_note_send(request, r,
                             shunti_moe_call_note(request, r, packed->plan), 0);
            peer->told = true;
        }
        note = peer->heard ? NULL : shunti_note_arrived(request, r);
        if (note) {
            peer->heard = true;
            if (!shunti_moe_call_agrees(request, r, packed->plan, note,
                                        &blame) &&
                !packed->why[0])
                snprintf(packed->why, sizeof(packed->why), "%s",
                         shunt_last_error(request->comm));
        }
        all = all && peer->told && peer->heard;
    }
    return all;
}

static enum shunt_status step(struct shunt_request *request)
{
    struct packed *packed = state_of(request);
    bool all_heard = tell_and_hear(request);

    if (!all_heard || !inner_is_over(request) || !packed->plan->lists.here)
        return SHUNT_IN_PROGRESS;
    if (packed->why[0]) { /* it explains what the inner one met with */
        enum shunt_status st = request->error;

        request->error = SHUNT_OK;
        return shunti_request_error(request, st, "%s", packed->why);
    }
    if (request->error)
        return SHUNT_OK;
    if (packed->out) {
        place_tokens(packed);
        shunti_plan_zero_gaps(packed->plan, packed->what.placed);
    }
    if (packed->what.sum)
        add_rows(packed);
    if (packed->what.dweight)
        multiply_rows(packed);
    return SHUNT_OK;
}

static bool awaits(const struct shunt_request *request, int r)
{
    const struct packed *packed = state_of(request);
    const struct peer *peer = &packed->peers[r];

    return !peer->told || !peer->heard ||
           shunti_lists_await(&packed->plan->lists, r);
}

static void drop(struct packed *packed)
{
    /* Unfinished only when the communicator has failed: nothing is read or
     * written any more. */
    if (packed->inner)
        packed->inner->detached = true;
    free(packed->send);
    free(packed->recv);
    free(packed->bytes);
    free(packed->some);
}

static void cleanup(struct shunt_request *request)
{
    struct packed *packed = state_of(request);

    drop(packed);
    shunti_plan_unuse(packed->plan, 0);
}

static const struct shunti_class classes[] = {
    {.name = "moe_dispatch",
     .algorithm = "alltoallv",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_combine",
     .algorithm = "alltoallv",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_combine_backward",
     .algorithm = "alltoallv",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_dispatch_backward",
     .algorithm = "alltoallv",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
};

/* --- starting --------------------------------------------------------------------- */

/* Bytes to and from each rank. */
static void measure(struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunti_packs *packs = &plan->packs;
    const int n = plan->moe->nranks;
    const size_t wire = packed->out ? wire_bytes(packed) : 0;
    const size_t row = packed->back ? plan->moe->row_bytes : 0;
    size_t *to = packed->bytes, *from = packed->bytes + n, tokens = 0;

    for (int r = 0; r < n; r++) {
        to[r] = packs->send_tokens[r] * wire + packs->recv_rows[r] * row;
        from[r] = plan->source_tokens[r] * wire + packs->send_rows[r] * row;
        tokens += plan->source_tokens[r] * wire;
        packed->home[r] = tokens;
    }
}

/* All that the call needs, before anybody hears of it. */
static bool allocate(struct packed *packed)
{
    const struct shunt_moe *moe = packed->plan->moe;
    const size_t n = (size_t)moe->nranks;

    packed->bytes = malloc(4 * n * sizeof(*packed->bytes));
    packed->some = malloc(moe->row_bytes + (size_t)moe->config.topk *
                                               sizeof(struct shunti_rows_term));
    if (!packed->bytes || !packed->some)
        return false;
    packed->home = packed->bytes + 2 * n;
    packed->next = packed->bytes + 3 * n;
    measure(packed);
    packed->send = malloc(sum_of(packed->bytes, moe->nranks) + 1);
    packed->recv = malloc(sum_of(packed->bytes + n, moe->nranks) + 1);
    return packed->send && packed->recv;
}

/* The inner exchange. It comes before the operation itself in the order of
 * calls, on every rank alike. */
static enum shunt_status start_inner(struct packed *packed)
{
    const int n = packed->plan->moe->nranks;
    struct shunt_comm *comm = packed->plan->moe->comm;
    enum shunt_status st;

    comm->purpose = shunti_moe_call_purpose(packed->call);
    st = shunt_alltoallv_start(comm, packed->send, packed->bytes, NULL,
                               packed->recv, packed->bytes + n, NULL, SHUNT_U8,
                               &packed->inner);
    comm->purpose = SHUNTI_PURPOSE_ITSELF;
    return st;
}

/* The communicator is ours. */
static enum shunt_status start_itself(struct packed *begin,
                                      struct shunt_request **out)
{
    const struct shunti_moe_call *call = begin->call;
    struct shunti_plan *plan = begin->plan;
    struct shunt_request *request;
    enum shunt_status st = shunti_request_create(
        plan->moe->comm, &classes[call->kind - SHUNTI_KIND_MOE_DISPATCH],
        shunti_moe_call_signature(call, plan),
        sizeof(*begin) + (size_t)plan->moe->nranks * sizeof(begin->peers[0]),
        &request);

    if (st) {
        drop(begin);
        return st;
    }
    memcpy(request->state, begin, sizeof(*begin));
    request->in_turn = true; /* as what it is made of */
    shunti_plan_use(plan, 0);
    return shunti_request_launch(request, out);
}

enum shunt_status shunti_packed_start(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      const struct shunti_packed *what,
                                      struct shunt_request **out)
{
    struct shunt_comm *comm = plan->moe->comm;
    struct packed begin = {
        .call = call,
        .plan = plan,
        .what = *what,
        .out = call->kind == SHUNTI_KIND_MOE_DISPATCH ||
               call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD,
        /* No row comes back if nobody wants dweight; if some do and some do
         * not, the counts disagree and all learn of it. */
        .back = call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD
                    ? what->dweight != NULL
                    : call->kind != SHUNTI_KIND_MOE_DISPATCH,
    };
    enum shunt_status st;

    if (!allocate(&begin)) {
        drop(&begin);
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_MEMORY,
                                      "no memory for packs");
    }
    if (begin.out)
        pack_tokens(&begin);
    if (begin.back && plan->total)
        pack_rows(&begin);
    st = start_inner(&begin);
    if (st) { /* the communicator has failed */
        drop(&begin);
        return st;
    }
    shunti_comm_enter(comm);
    st = start_itself(&begin, out);
    shunti_comm_leave(comm);
    return st;
}
