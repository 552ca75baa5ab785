// SPDX-License-Identifier: Apache-2.0
/*
 * FLAT: rows travel in packs, by alltoallv. It suits ranks that cannot write
 * into each other's windows.
 *
 * To the experts, a token's row goes once to each rank that has an expert for
 * the token. A list that is sent with the plan says to which slots the receiver
 * copies the row, and with which weights. On the way home, each row of an
 * expert travels by itself. The token's rank adds them in the tree that all
 * routes share.
 *
 * The results have the same bits as those of DIRECT. But the sender and the
 * receiver each copy a row once more.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/alltoall.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/plan_rows.h"
#include "moe/plan/records.h"
#include "moe/route.h"
#include "moe/route/packs.h"
#include "moe/route/pull.h"
#include "moe/route/push.h"
#include "src/base/error.h"
#include "src/comm.h"
#include "src/kernels/fp8.h"
#include "src/kernels/rows.h"
#include "src/op/note.h"
#include "src/op/refusal.h"
#include "src/progress/call.h"
#include "src/progress/turns.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"

/* The work of a request: rows go out to the experts, and rows come back. A
 * pointer that is NULL is not needed. */
struct work {
    struct shunti_cut cut;
    const void *out;  /* tokens to send, (tokens, hidden) */
    void *placed;     /* row buffer for received rows, (total, hidden) */
    bool fp8;         /* tokens travel as fp8 */
    bool weighted;    /* rows are multiplied by their weights when placed */
    const void *back; /* rows to send home, (total, hidden); NULL: zeros */
    const void *bias; /* with `sum`: added to each sum, or NULL */
    void *sum;        /* sums of the rows that came home, (tokens, hidden) */
    bool sum_weighted;
    const void *dy; /* with `dweight`, (tokens, hidden) */
    float *dweight; /* products of `dy` and these rows, (tokens, topk) */
    bool offers;    /* this rank sends `back` for others' dweight (push.h) */
};

static const char *unsuited(const struct shunt_moe *moe)
{
    (void)moe;
    return NULL;
}

/* A token is sent once to each rank; its rows come home one by one. */
static void traffic(struct shunti_direction *direction,
                    enum shunt_moe_mode asked)
{
    const struct shunt_moe *moe = direction->plan->moe;
    const struct shunti_record_view mine = shunti_record(moe, moe->rank);
    size_t rows = 0, far = 0;

    for (int r = 0; r < moe->nranks; r++) {
        rows += r != moe->rank ? mine.rank[r] : 0;
        far += moe->node[r] != moe->node[moe->rank] ? mine.rank[r] : 0;
    }
    (void)asked;
    direction->mode = SHUNT_MOE_FLAT;
    direction->network.rows = far;
    direction->network.dispatch_bytes = far * shunti_wire_bytes(moe);
    direction->network.combine_rows = shunti_records_sent(moe).far;
    direction->network.combine_bytes =
        direction->network.combine_rows * moe->row_bytes;
    direction->bytes_sent = rows * shunti_wire_bytes(moe);
}

/* --- the operation ------------------------------------------------------------- */

/*
 * One alltoallv carries the rows of both directions. The pack for a rank begins
 * with the tokens for its experts. Behind them are the results that go home to
 * that rank. Each call makes two operations, the alltoallv and an operation of
 * its own. So ranks that make different calls of FLAT agree again on the number
 * of the next operation after the error.
 */
struct packed {
    const struct shunti_moe_call *call;
    const struct shunti_plan *plan;
    struct shunti_direction *direction;
    struct work what;
    bool out, back; /* directions in which the call sends rows; see returns() */
    struct shunti_offers offers;
    struct shunt_request *inner; /* the alltoallv */
    unsigned char *send, *recv;
    size_t *bytes;       /* (2 * nranks) bytes to each rank, and from each */
    size_t *home;        /* (parts, nranks) offset in recv to which
                            packs_of(packed)->home is relative */
    size_t *next;        /* (nranks) scratch */
    size_t *row;         /* (local experts) scratch */
    unsigned char *some; /* scratch: a row, or a token's terms */
    char why[200]; /* error text if a peer made another call; "": all agree */
    /* Notes of this operation, by peer. They name the plan; the inner operation
     * does not. */
    struct peer {
        bool sent, received;
    } peers[];
};

static struct packed *state_of(const struct shunt_request *request)
{
    return (struct packed *)(void *)(uintptr_t)request->state;
}

static const struct shunti_packs *packs_of(const struct packed *packed)
{
    return packed->direction->state;
}

/* Counts for `rank` at the bounds of the cut. begin_of(): before the cut.
 * end_of(): up to the end of the cut. */
static const struct shunti_pack_bound *begin_of(const struct packed *packed,
                                                int rank)
{
    return shunti_packs_at(packed->plan, packs_of(packed),
                           packed->what.cut.from) +
           rank;
}

static const struct shunti_pack_bound *end_of(const struct packed *packed,
                                              int rank)
{
    return shunti_packs_at(packed->plan, packs_of(packed),
                           packed->what.cut.to) +
           rank;
}

/* True if `rank` sends home results. In combine_backward, a rank with tokens
 * sends them if it wants dweight; then all ranks with tokens want it. A rank
 * without tokens does not know whether others want dweight, so it always sends
 * them. So both ranks of a pair know from the plan how many bytes travel. */
static bool returns(const struct packed *packed, int rank)
{
    return packed->back ||
           (packed->call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD &&
            packed->plan->idle[rank]);
}

static size_t wire_bytes(const struct packed *packed)
{
    const struct shunt_moe *moe = packed->plan->moe;

    return packed->what.fp8 ? shunti_fp8_bytes(moe->config.hidden)
                            : moe->row_bytes;
}

/* Pack each token once for each rank, at the beginning of the rank's pack. */
static void pack_tokens(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    size_t bytes = wire_bytes(packed), *next = packed->next, at = 0;
    size_t t = shunti_parts_token(plan, packed->what.cut.from);
    const size_t end = shunti_parts_token(plan, packed->what.cut.to);
    SHUNTI_TRACK(COPIES);

    for (int r = 0; r < moe->nranks; r++) {
        next[r] = at;
        at += packed->bytes[r];
    }
    for (; t < end; t++) {
        const unsigned char *src =
            (const unsigned char *)packed->what.out + t * moe->row_bytes;

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const int r = plan->terms[i].rank;
            unsigned char *dst;

            if (!shunti_packs_first(plan, t, i))
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

/* Copy each token out of the packs into all of its rows. */
static void place_tokens(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_pack_entry *entry = packs_of(packed)->place;
    const unsigned char *pack = packed->recv;
    SHUNTI_TRACK(COPIES);

    for (int r = 0; r < moe->nranks; r++) {
        const unsigned char *from = pack, *row = NULL;
        const struct shunti_pack_entry *list = entry;

        entry += shunti_packs_at(plan, packs_of(packed), plan->parts.count)[r]
                     .recv_rows;
        list += begin_of(packed, r)->recv_rows;
        for (size_t n =
                 end_of(packed, r)->recv_rows - begin_of(packed, r)->recv_rows;
             n; n--, list++) {
            unsigned char *dst =
                (unsigned char *)packed->what.placed +
                (size_t)(list->row & ~SHUNTI_PACK_NEW) * moe->row_bytes;

            if (list->row & SHUNTI_PACK_NEW) {
                row = from;
                from += wire_bytes(packed);
                if (packed->what.fp8) {
                    moe->rows->unpack(packed->some, row, moe->config.hidden);
                    row = packed->some;
                }
            }
            if (packed->what.weighted)
                moe->rows->scale(dst, row, list->weight, moe->config.hidden);
            else
                memcpy(dst, row, moe->row_bytes);
        }
        pack += packed->bytes[moe->nranks + r];
    }
}

/* Pack the rows of one source and part at `to`, in the order of the buffer. at:
 * (local experts) first row of the source for each expert. Returns the end of
 * the packed rows. */
static unsigned char *pack_part(const struct packed *packed, int source,
                                int part, const size_t *at, unsigned char *to)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t local =
        (size_t)shunti_placement_count(plan->placement, moe->rank);

    for (size_t i = 0; i < local; i++) {
        const size_t first = shunti_parts_rows(plan, part, source, i);
        const size_t bytes =
            (shunti_parts_rows(plan, part + 1, source, i) - first) *
            moe->row_bytes;

        if (packed->what.back)
            memcpy(to,
                   (const unsigned char *)packed->what.back +
                       (at[i] + first) * moe->row_bytes,
                   bytes);
        else
            memset(to, 0, bytes);
        to += bytes;
    }
    return to;
}

/* Pack the results for each source at the end of the source's pack, part by
 * part. */
static void pack_rows(const struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = plan->placement;
    const int32_t *expert = shunti_placement_local(p, moe->rank);
    size_t local = (size_t)shunti_placement_count(p, moe->rank);
    size_t *at = packed->row; /* first row of the next source, by expert */
    unsigned char *end = packed->send;
    SHUNTI_TRACK(COPIES);

    for (size_t i = 0; i < local; i++)
        at[i] = plan->received.offset[i];
    for (int s = 0; s < moe->nranks; s++) {
        unsigned char *to;

        end += packed->bytes[s];
        to = end -
             (end_of(packed, s)->recv_rows - begin_of(packed, s)->recv_rows) *
                 moe->row_bytes;
        for (int b = packed->what.cut.from; b < packed->what.cut.to; b++)
            to = pack_part(packed, s, b, at, to);
        for (size_t i = 0; i < local; i++)
            if (shunti_placement_target(p, s, expert[i]) == moe->rank)
                at[i] += moe->config.pad_to_capacity
                             ? plan->padded[s]
                             : shunti_received_rows_from(&plan->received, s, i);
    }
}

/* The row that came home for a term of this rank in a part. */
static const unsigned char *returned(const struct packed *packed, int part,
                                     size_t term)
{
    const struct shunti_plan *plan = packed->plan;
    const size_t *home = packed->home + (size_t)(part - packed->what.cut.from) *
                                            (size_t)plan->moe->nranks;

    return packed->recv + home[plan->terms[term].rank] +
           packs_of(packed)->home[term] * plan->moe->row_bytes;
}

static void add_rows(const struct packed *packed, int part)
{
    struct shunti_rows_term *terms =
        (struct shunti_rows_term *)(void *)packed->some;
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t end = shunti_parts_token(plan, part + 1);
    SHUNTI_TRACK(COPIES);

    for (size_t t = shunti_parts_token(plan, part); t < end; t++) {
        const void *bias = packed->what.bias;
        size_t n = 0;

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            terms[n++] = (struct shunti_rows_term){
                returned(packed, part, i),
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

static void multiply_rows(const struct packed *packed, int part)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t topk = (size_t)moe->config.topk;
    const size_t begin = shunti_parts_token(plan, part);
    const size_t end = shunti_parts_token(plan, part + 1);
    SHUNTI_TRACK(COPIES);

    memset(packed->what.dweight + begin * topk, 0,
           (end - begin) * topk * sizeof(float));
    for (size_t t = begin; t < end; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++)
            packed->what.dweight[t * topk + plan->terms[i].slot] =
                moe->rows->dot(
                    (const unsigned char *)packed->what.dy + t * moe->row_bytes,
                    returned(packed, part, i), NULL, moe->config.hidden);
}

/* True if the inner operation is over. If it failed, record its error for this
 * operation. */
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
    st = inner->status; /* no shunt_wait(): a step must not wait */
    if (st)
        shunti_request_error(request, st, "%s", shunti_request_text(inner));
    shunti_request_discard(inner);
    return true;
}

static void note_bad(struct packed *packed, const struct shunt_request *request)
{
    if (!packed->why[0])
        snprintf(packed->why, sizeof(packed->why), "%s",
                 shunti_request_text(request));
}

static bool exchange_notes(struct shunt_request *request)
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
        if (!peer->sent && shunti_note_room(request, r)) {
            struct shunti_note *ours = shunti_moe_call_note(
                request, r, packed->plan, packed->what.cut);

            ours->word[0] = packed->what.offers;
            shunti_note_send(request, r, ours, 0);
            peer->sent = true;
        }
        note = peer->received ? NULL : shunti_note_arrived(request, r);
        if (note) {
            peer->received = true;
            if (!shunti_moe_call_agrees(request, r, packed->plan,
                                        packed->what.cut, note, &blame))
                note_bad(packed, request);
            else if (packed->call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD &&
                     !shunti_offers_receive(&packed->offers, request,
                                            packed->call, packed->plan, r,
                                            note->word[0]))
                note_bad(packed, request);
        }
        all = all && peer->sent && peer->received;
    }
    return all;
}

static enum shunt_status step(struct shunt_request *request)
{
    struct packed *packed = state_of(request);
    bool all_received = exchange_notes(request);

    if (!all_received || !inner_is_over(request) ||
        !packed->direction->lists.here)
        return SHUNT_IN_PROGRESS;
    if (packed->why[0]) { /* a peer's other call has caused the error */
        enum shunt_status st = request->error;

        request->error = SHUNT_OK;
        return shunti_request_error(request, st, "%s", packed->why);
    }
    if (request->error)
        return SHUNT_OK;
    if (packed->out) {
        place_tokens(packed);
        if (!packed->what.cut.from)
            shunti_plan_zero_gaps(packed->plan, packed->what.placed);
    }
    for (int p = packed->what.cut.from; p < packed->what.cut.to; p++) {
        if (packed->what.sum)
            add_rows(packed, p);
        if (packed->what.dweight)
            multiply_rows(packed, p);
    }
    return SHUNT_OK;
}

static bool awaits(const struct shunt_request *request, int r)
{
    const struct packed *packed = state_of(request);
    const struct peer *peer = &packed->peers[r];

    return !peer->sent || !peer->received ||
           shunti_lists_await(&packed->direction->lists, r);
}

static void drop(struct packed *packed)
{
    /* The inner operation is unfinished only if the communicator has failed.
     * Then nothing is read or written any more. */
    if (packed->inner)
        packed->inner->attachment = SHUNTI_DETACHED;
    free(packed->send);
    free(packed->recv);
    free(packed->bytes);
    free(packed->some);
}

static void cleanup(struct shunt_request *request)
{
    struct packed *packed = state_of(request);

    drop(packed);
    shunti_moe_call_end(packed->call, packed->direction->plan, packed->what.cut,
                        0, request->status);
}

static const struct shunti_class classes[] = {
    {.name = "moe_dispatch",
     .algorithm = "flat",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_combine",
     .algorithm = "flat",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_combine_backward",
     .algorithm = "flat",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
    {.name = "moe_dispatch_backward",
     .algorithm = "flat",
     .step = step,
     .awaits = awaits,
     .cleanup = cleanup},
};

/* --- starting --------------------------------------------------------------------- */

/* Find the bytes to and from each rank. */
static void measure(struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunti_cut cut = packed->what.cut;
    const int n = plan->moe->nranks;
    const size_t wire = packed->out ? wire_bytes(packed) : 0;
    const size_t bytes = plan->moe->row_bytes;
    const size_t back = returns(packed, plan->moe->rank) ? bytes : 0;
    size_t *to = packed->bytes, *from = packed->bytes + n, at = 0;

    for (int r = 0; r < n; r++) {
        const struct shunti_pack_bound *a = begin_of(packed, r);
        const struct shunti_pack_bound *z = end_of(packed, r);
        const size_t tokens = (z->recv_tokens - a->recv_tokens) * wire;
        const size_t row = returns(packed, r) ? bytes : 0;

        to[r] = (z->send_tokens - a->send_tokens) * wire +
                (z->recv_rows - a->recv_rows) * back;
        from[r] = tokens + (z->send_rows - a->send_rows) * row;
        for (int p = cut.from; p < cut.to; p++)
            packed->home[(p - cut.from) * n + r] =
                at + tokens +
                (shunti_packs_at(plan, packs_of(packed), p)[r].send_rows -
                 a->send_rows) *
                    row;
        at += from[r];
    }
}

/* Allocate all that the call needs before any peer learns of it. */
static bool allocate(struct packed *packed)
{
    const struct shunti_plan *plan = packed->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t local =
        (size_t)shunti_placement_count(plan->placement, moe->rank);
    const size_t n = (size_t)moe->nranks;
    const size_t parts = (size_t)(packed->what.cut.to - packed->what.cut.from);

    packed->bytes = malloc(((3 + parts) * n + local) * sizeof(*packed->bytes));
    packed->some = malloc(moe->row_bytes + (size_t)moe->config.topk *
                                               sizeof(struct shunti_rows_term));
    if (!packed->bytes || !packed->some)
        return false;
    packed->next = packed->bytes + 2 * n;
    packed->home = packed->bytes + 3 * n;
    packed->row = packed->home + parts * n;
    measure(packed);
    packed->send = malloc(shunti_packs_sum(packed->bytes, moe->nranks) + 1);
    packed->recv = malloc(shunti_packs_sum(packed->bytes + n, moe->nranks) + 1);
    return packed->send && packed->recv;
}

/* Start the alltoallv of the packs (packed->inner). Every rank starts it before
 * the operation of start_itself(). */
static enum shunt_status start_inner(struct packed *packed)
{
    const int n = packed->plan->moe->nranks;
    const struct shunti_options options = {
        .purpose = shunti_moe_call_purpose(packed->call)};

    return shunti_alltoallv_start(
        packed->plan->moe->comm, &options, packed->send, packed->bytes, NULL,
        packed->recv, packed->bytes + n, NULL, SHUNT_U8, &packed->inner);
}

/* Start the call's own operation. The caller holds the communicator. */
static enum shunt_status start_itself(struct packed *begin,
                                      struct shunt_request **out)
{
    const struct shunti_moe_call *call = begin->call;
    struct shunti_plan *plan = begin->direction->plan;
    struct shunt_request *request;
    enum shunt_status st = shunti_request_create(
        plan->moe->comm, &classes[call->kind - SHUNTI_KIND_MOE_DISPATCH],
        shunti_moe_call_signature(call, plan), &shunti_no_options,
        sizeof(*begin) + (size_t)plan->moe->nranks * sizeof(begin->peers[0]),
        &request);

    if (st) {
        drop(begin);
        return st;
    }
    memcpy(request->state, begin, sizeof(*begin));
    request->in_turn = true; /* as in the inner operation */
    shunti_moe_call_begin(call, plan, begin->what.cut, 0);
    return shunti_request_launch(request, out);
}

static enum shunt_status start(const struct shunti_moe_call *call,
                               struct shunti_direction *direction,
                               const struct work *what,
                               struct shunt_request **out)
{
    struct shunti_plan *plan = direction->plan;
    struct shunt_comm *comm = plan->moe->comm;
    struct packed begin = {
        .call = call,
        .plan = plan,
        .direction = direction,
        .what = *what,
        .out = shunti_moe_call_toward(call) == SHUNTI_TO_EXPERTS,
        /* If some ranks want dweight and others do not, the byte counts
         * disagree, which is an error on all ranks. */
        .back = call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD
                    ? what->dweight != NULL
                    : call->kind != SHUNTI_KIND_MOE_DISPATCH,
        .offers = shunti_offers_of(plan, what->dweight, what->offers),
    };
    enum shunt_status st;

    if (!allocate(&begin)) {
        drop(&begin);
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_MEMORY,
                                      "no memory for packs");
    }
    if (begin.out)
        pack_tokens(&begin);
    if (returns(&begin, plan->moe->rank) && plan->received.total)
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

static enum shunt_status dispatch(const struct shunti_moe_call *call,
                                  struct shunti_direction *direction,
                                  const struct shunti_push *what,
                                  struct shunt_request **request)
{
    return start(call, direction,
                 &(struct work){
                     .cut = what->cut,
                     .out = what->src,
                     .placed = what->dst,
                     .fp8 = what->fp8,
                     .weighted = what->weighted,
                     .back = what->offers ? what->out : NULL,
                     .dy = what->src,
                     .dweight = what->dweight,
                     .offers = what->offers,
                 },
                 request);
}

static enum shunt_status combine(const struct shunti_moe_call *call,
                                 struct shunti_direction *direction,
                                 const struct shunti_pull *what,
                                 struct shunt_request **request)
{
    return start(call, direction,
                 &(struct work){
                     .cut = what->cut,
                     .back = what->src,
                     .bias = what->bias,
                     .sum = what->dst,
                     .sum_weighted = what->weighted,
                 },
                 request);
}

/* Refuse both operations. The inner one comes first. */
static enum shunt_status refuse(const struct shunti_moe_call *call,
                                struct shunt_comm *comm, uint32_t signature,
                                enum shunt_status status, const char *text)
{
    (void)shunti_request_refuse(comm,
                                SHUNTI_SIGNATURE(SHUNTI_KIND_ALLTOALLV,
                                                 SHUNT_U8, 0,
                                                 shunti_moe_call_purpose(call)),
                                status, "%s: %s", call->name, text);
    return shunti_moe_call_refuse_one(call, comm, signature, status, text);
}

const struct shunti_route shunti_route_flat = {
    .name = "flat",
    .unsuited = unsuited,
    .traffic = traffic,
    .plan = shunti_packs_plan,
    .finish = shunti_packs_finish,
    .bytes = shunti_packs_bytes,
    .dispatch = dispatch,
    .combine = combine,
    .refuse = refuse,
    .operations = 2,
};
