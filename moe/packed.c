// SPDX-License-Identifier: Apache-2.0
/* Rows in packs; see packed.h. */
#include "packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "error.h"
#include "fp8.h"
#include "grow.h"
#include "note.h"
#include "rows.h"

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
 * row of a term is.
 */
static void find_home(struct shunti_plan *plan, const uint32_t *mine,
                      const size_t *base, size_t *start)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = &moe->placement;
    size_t at = 0;

    for (int r = 0; r < moe->nranks; r++)
        for (int e = 0; e < moe->config.experts; e++)
            if (shunti_placement_target(p, moe->rank, e) == r) {
                start[e] = at;
                at += mine[e];
            }
    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            int e =
                moe->expert[t * (size_t)moe->config.topk + plan->terms[i].slot];

            plan->packs.home[i] =
                (uint32_t)(start[e] + plan->terms[i].row - base[e]);
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
    struct shunti_pack_entry *entries = malloc((terms + 1) * sizeof(*entries));
    size_t *next = malloc((n + (size_t)moe->config.experts) * sizeof(*next));
    size_t *send = malloc(2 * n * sizeof(*send)),
           *recv = send ? send + n : NULL;
    enum shunt_status st = SHUNT_OK;
    size_t places = 0;

    if (!packs->send_rows)
        packs->send_rows = calloc(n, sizeof(size_t));
    if (!packs->send_tokens)
        packs->send_tokens = calloc(n, sizeof(size_t));
    if (!packs->recv_rows)
        packs->recv_rows = calloc(n, sizeof(size_t));
    if (entries && next && send && packs->send_rows && packs->send_tokens &&
        packs->recv_rows) {
        count(plan, mine + moe->config.experts);
        places = sum_of(packs->recv_rows, moe->nranks);
    }
    if (!entries || !next || !send || !packs->send_rows ||
        !packs->send_tokens || !packs->recv_rows ||
        !shunti_grow(&packs->home, &packs->home_max, terms,
                     sizeof(*packs->home)) ||
        !shunti_grow(&packs->place, &packs->place_max, places,
                     sizeof(*packs->place))) {
        shunti_comm_enter(moe->comm);
        st = shunti_request_refuse(
            moe->comm, SHUNTI_SIGNATURE(SHUNTI_KIND_ALLTOALLV, SHUNT_U8, 0, 0),
            SHUNT_ERR_MEMORY, "moe_plan_create: no memory for lists");
        shunti_comm_leave(moe->comm);
        goto out;
    }
    find_home(plan, mine, base, next);
    list(plan, entries, next);
    for (size_t r = 0; r < n; r++) {
        send[r] = packs->send_rows[r] * sizeof(*entries);
        recv[r] = packs->recv_rows[r] * sizeof(*entries);
    }
    st = shunt_alltoallv(moe->comm, entries, send, NULL, packs->place, recv,
                         NULL, SHUNT_U8);
    if (!st && !lists_are_good(plan))
        st = shunti_plan_bad_list(plan);
out:
    free(entries);
    free(next);
    free(send);
    return st;
}

/* --- the operation ------------------------------------------------------------- */

/* One way of it: packs that we send and receive. */
struct half {
    struct shunt_request *inner;
    unsigned char *send, *recv;
};

struct packed {
    const struct shunti_moe_call *call;
    struct shunti_plan *plan;
    struct shunti_packed what;
    struct half out, back;
    char why[200]; /* a peer that called something else; "": none */
    /* The inner exchanges do not say which call they belong to: this note
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

/* Each token once for each rank, by rank. */
static void pack_tokens(struct packed *packed, size_t *next)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    size_t bytes = wire_bytes(packed), at = 0;

    for (int r = 0; r < moe->nranks; r++) {
        next[r] = at;
        at += plan->packs.send_tokens[r];
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
            dst = packed->out.send + next[r]++ * bytes;
            if (packed->what.fp8)
                moe->rows->pack(dst, src, moe->config.hidden);
            else
                memcpy(dst, src, bytes);
        }
    }
}

/* From the packs to all rows of each token. */
static void place_tokens(struct packed *packed, unsigned char *scratch)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_pack_entry *entry = plan->packs.place;
    size_t n = sum_of(plan->packs.recv_rows, moe->nranks);
    const unsigned char *from = packed->out.recv, *row = NULL;

    for (size_t i = 0; i < n; i++, entry++) {
        unsigned char *dst =
            (unsigned char *)packed->what.placed +
            (size_t)(entry->row & ~SHUNTI_PACK_NEW) * moe->row_bytes;

        if (entry->row & SHUNTI_PACK_NEW) {
            row = from;
            from += wire_bytes(packed);
            if (packed->what.fp8) {
                moe->rows->unpack(scratch, row, moe->config.hidden);
                row = scratch;
            }
        }
        if (packed->what.weighted)
            moe->rows->scale(dst, row, entry->weight, moe->config.hidden);
        else
            memcpy(dst, row, moe->row_bytes);
    }
}

/* Each source's rows, in the order that they lie in. */
static void pack_rows(struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = &moe->placement;
    const int32_t *expert = shunti_placement_local(p, moe->rank);
    size_t local = (size_t)shunti_placement_count(p, moe->rank);
    unsigned char *to = packed->back.send;

    for (int s = 0; s < moe->nranks; s++)
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

static void add_rows(struct packed *packed, struct shunti_rows_term *terms)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;

    for (size_t t = 0; t < plan->tokens; t++) {
        const void *bias = packed->what.bias;
        size_t n = 0;

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            terms[n++] = (struct shunti_rows_term){
                packed->back.recv + plan->packs.home[i] * moe->row_bytes,
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

static void multiply_rows(struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    size_t topk = (size_t)moe->config.topk;

    memset(packed->what.dweight, 0, plan->tokens * topk * sizeof(float));
    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            packed->what.dweight[t * topk + plan->terms[i].slot] =
                moe->rows->dot(
                    (const unsigned char *)packed->what.dy + t * moe->row_bytes,
                    packed->back.recv + plan->packs.home[i] * moe->row_bytes,
                    NULL, moe->config.hidden);
}

/* OK once the inner operation is over, with its failure recorded as ours. */
static enum shunt_status finish_half(struct shunt_request *request,
                                     struct half *half)
{
    struct shunt_request *inner = half->inner;
    enum shunt_status st;

    if (!inner)
        return SHUNT_OK;
    if (inner->status == SHUNT_IN_PROGRESS)
        return SHUNT_IN_PROGRESS;
    half->inner = NULL;
    st = shunti_request_wait(inner);
    if (st)
        shunti_request_error(request, st, "%s",
                             shunt_last_error(request->comm));
    return SHUNT_OK;
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
    const struct shunt_moe *moe = packed->plan->moe;
    bool all_heard = tell_and_hear(request);
    unsigned char *scratch;

    /* Both halves end before anything of either is used. */
    if (!all_heard || finish_half(request, &packed->out) == SHUNT_IN_PROGRESS ||
        finish_half(request, &packed->back) == SHUNT_IN_PROGRESS)
        return SHUNT_IN_PROGRESS;
    if (packed->why[0]) { /* it explains what the inner ones met with */
        enum shunt_status st = request->error;

        request->error = SHUNT_OK;
        return shunti_request_error(request, st, "%s", packed->why);
    }
    if (request->error)
        return SHUNT_OK;
    scratch = malloc(moe->row_bytes + (size_t)moe->config.topk *
                                          sizeof(struct shunti_rows_term));
    if (!scratch)
        return shunti_request_error(request, SHUNT_ERR_MEMORY, "%s: no memory",
                                    request->class->name);
    if (packed->out.recv) {
        place_tokens(packed, scratch);
        shunti_plan_zero_gaps(packed->plan, packed->what.placed);
    }
    if (packed->what.sum)
        add_rows(packed, (struct shunti_rows_term *)(void *)scratch);
    if (packed->what.dweight)
        multiply_rows(packed);
    free(scratch);
    return SHUNT_OK;
}

static bool awaits(const struct shunt_request *request, int r)
{
    const struct peer *peer = &state_of(request)->peers[r];

    return !peer->told || !peer->heard;
}

static void drop_half(struct half *half)
{
    /* Unfinished only when the communicator has failed: nothing is read or
     * written any more. */
    if (half->inner)
        half->inner->detached = true;
    free(half->send);
    free(half->recv);
}

static void cleanup(struct shunt_request *request)
{
    struct packed *packed = state_of(request);

    drop_half(&packed->out);
    drop_half(&packed->back);
    shunti_plan_unuse(packed->plan, 0);
}

static const struct shunti_class classes[] = {
    {.name = "moe_dispatch",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_combine", .step = step, .awaits = awaits, .cleanup = cleanup},
    {.name = "moe_combine_backward",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_dispatch_backward",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
};

/* --- starting --------------------------------------------------------------------- */

/* counts: rows to send to, and to receive from each rank. */
static enum shunt_status start_half(struct shunt_comm *comm, struct half *half,
                                    const size_t *send, const size_t *recv,
                                    size_t bytes)
{
    int n = shunt_comm_size(comm);
    size_t *counts = malloc(2 * (size_t)n * sizeof(*counts));
    enum shunt_status st;

    if (!counts)
        return SHUNT_ERR_MEMORY;
    for (int r = 0; r < n; r++) {
        counts[r] = send[r] * bytes;
        counts[n + r] = recv[r] * bytes;
    }
    st = shunt_alltoallv_start(comm, half->send, counts, NULL, half->recv,
                               counts + n, NULL, SHUNT_U8, &half->inner);
    free(counts);
    return st;
}

static bool allocate(struct packed *packed, size_t **next)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunti_packs *packs = &plan->packs;
    const int n = plan->moe->nranks;
    size_t bytes = plan->moe->row_bytes, wire = wire_bytes(packed);

    *next = malloc((size_t)n * sizeof(**next));
    if (packed->call->kind == SHUNTI_KIND_MOE_DISPATCH ||
        packed->call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD) {
        packed->out.send = malloc(sum_of(packs->send_tokens, n) * wire + 1);
        packed->out.recv = malloc(sum_of(plan->source_tokens, n) * wire + 1);
        if (!packed->out.send || !packed->out.recv)
            return false;
    }
    if (packed->call->kind != SHUNTI_KIND_MOE_DISPATCH) {
        packed->back.send = malloc(sum_of(packs->recv_rows, n) * bytes + 1);
        packed->back.recv = malloc(sum_of(packs->send_rows, n) * bytes + 1);
        if (!packed->back.send || !packed->back.recv)
            return false;
    }
    return *next != NULL;
}

/* The inner exchanges. They come before the operation itself in the order of
 * calls, on every rank alike. */
static enum shunt_status start_halves(struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunti_packs *packs = &plan->packs;
    struct shunt_comm *comm = plan->moe->comm;
    enum shunt_status st = SHUNT_OK;

    comm->purpose = shunti_moe_call_purpose(packed->call);
    if (packed->out.send)
        st = start_half(comm, &packed->out, packs->send_tokens,
                        plan->source_tokens, wire_bytes(packed));
    /* Nothing travels if nobody wants dweight; if some do and some do not, the
     * counts disagree and all learn of it. */
    if (!st && packed->back.send)
        st =
            start_half(comm, &packed->back, packs->recv_rows, packs->send_rows,
                       packed->call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD &&
                               !packed->what.dweight
                           ? 0
                           : plan->moe->row_bytes);
    comm->purpose = SHUNTI_PURPOSE_ITSELF;
    return st;
}

enum shunt_status shunti_packed_start(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      const struct shunti_packed *what,
                                      struct shunt_request **out)
{
    struct shunt_comm *comm = plan->moe->comm;
    struct packed begin = {.call = call, .plan = plan, .what = *what};
    struct shunt_request *request;
    enum shunt_status st;
    size_t *next;

    if (!allocate(&begin, &next)) {
        free(next);
        drop_half(&begin.out);
        drop_half(&begin.back);
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_MEMORY,
                                      "no memory for packs");
    }
    if (begin.out.send)
        pack_tokens(&begin, next);
    free(next);
    if (begin.back.send && begin.what.back && plan->total)
        pack_rows(&begin);
    st = start_halves(&begin);
    if (!st) {
        shunti_comm_enter(comm);
        st = shunti_request_create(
            comm, &classes[call->kind - SHUNTI_KIND_MOE_DISPATCH],
            shunti_moe_call_signature(call, plan),
            sizeof(begin) + (size_t)plan->moe->nranks * sizeof(begin.peers[0]),
            &request);
        if (!st) {
            memcpy(request->state, &begin, sizeof(begin));
            request->in_turn = true; /* as what it is made of */
            shunti_plan_use(plan, 0);
            st = shunti_request_launch(request, out);
            shunti_comm_leave(comm);
            return st;
        }
        shunti_comm_leave(comm);
    }
    drop_half(&begin.out);
    drop_half(&begin.back);
    return st;
}
