// SPDX-License-Identifier: Apache-2.0
/* Rows to the experts; see push.h. */
#include "moe/route/push_state.h"

#include <stdlib.h>
#include <string.h>

#include "moe/device/device_rows.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/plan_rows.h"
#include "moe/route/handshake.h"
#include "moe/route/rails_rows.h"
#include "moe/route/row_copies.h"
#include "src/base/error.h"
#include "src/comm.h"
#include "src/kernels/copy.h"
#include "src/kernels/rows.h"
#include "src/op/note.h"
#include "src/progress/call.h"
#include "src/progress/turns.h"
#include "src/progress/wait.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"
#include "src/wire/nodes.h"

/* Most bytes of work in one step. Then other requests have their turn. */
#define STEP_BYTES ((size_t)256 << 20)

/* --- control messages --------------------------------------------------------- */

/* Stop waiting for `r`, whose note says that it will not take part in this
 * call. */
static void hear_bad(struct shunt_request *request, int r,
                     const struct shunti_note *note)
{
    struct shunti_pushing *push = shunti_pushing_of(request);

    push->broken = true;
    push->peers[r].served = true;
    if (push->copies)
        shunti_row_copies_drop(push->copies, r);
    /* `r` may have put rows before it knew that the call fails. So it waits for
     * this ack, which says that this rank no longer reads those rows. */
    if (note->way == SHUNTI_WAY_ALARM)
        shunti_ack(request, r, SHUNT_OK);
    if (push->across && !push->handshake.notes[r].direct)
        shunti_rail_rows_give_up(push->across, r);
}

struct shunti_offers shunti_offers_of(const struct shunti_plan *plan,
                                      bool wants, bool offers)
{
    const int rank = plan->moe->rank;

    return (struct shunti_offers){wants ? rank : -1, offers ? -1 : rank};
}

bool shunti_offers_receive(struct shunti_offers *offers,
                           struct shunt_request *request,
                           const struct shunti_moe_call *call,
                           const struct shunti_plan *plan, int rank,
                           bool offered)
{
    if (!offered)
        offers->silent = rank;
    else if (!plan->idle[rank])
        offers->wanting = rank;
    if (offers->wanting < 0 || offers->silent < 0)
        return true;
    shunti_request_error(request, SHUNT_ERR_MISMATCH,
                         "%s: rank %d wants dweight, and rank %d %s",
                         call->name, offers->wanting, offers->silent,
                         plan->idle[offers->silent]
                             ? "has rows and no tokens, but gave no `out` "
                               "beside, or in the place of, dout"
                             : "does not");
    return false;
}

/* Let the copy engine write the rows for `r`, whose note says where its rows
 * go. */
static void hand_over(struct shunti_pushing *push, int r)
{
    struct shunti_push_peer *peer = &push->peers[r];

    peer->cursor = push->end;
    if (peer->rows)
        shunti_row_copies_ready(push->copies, r, peer->rows);
    else
        shunti_row_copies_drop(push->copies, r);
}

static void receive(struct shunt_request *request, int r)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    const bool direct = push->handshake.notes[r].direct;
    const char *name = push->handshake.call->name;
    struct shunti_push_peer *peer = &push->peers[r];
    const struct shunti_note *note;
    struct shunti_remote rows, out;
    size_t bytes = push->plan->rank_total[r] * push->plan->moe->row_bytes;
    bool offers;

    switch (shunti_handshake_receive(request, &push->handshake, r, &note)) {
    case SHUNTI_HANDSHAKE_NOTHING:
        return;
    case SHUNTI_HANDSHAKE_BAD:
        hear_bad(request, r, note);
        return;
    case SHUNTI_HANDSHAKE_CALL:
        break;
    }
    rows = (struct shunti_remote){note->word[0], note->word[1]};
    out = (struct shunti_remote){note->word[2], note->word[3]};
    peer->rows = shunti_remote_map(request->comm, r, &rows, bytes);
    offers = out.window != SHUNTI_NOT_OFFERED;
    if (push->device && shunti_device_rows_meet(
                            push->device, r, offers ? 0 : (unsigned)out.offset))
        peer->cursor = push->end;
    if (push->failed)
        peer->cursor = push->end;
    if (offers)
        peer->out = shunti_remote_map(request->comm, r, &out, bytes);
    if (push->handshake.call->kind == SHUNTI_KIND_MOE_COMBINE_BACKWARD &&
        !shunti_offers_receive(&push->offers, request, push->handshake.call,
                               push->plan, r, offers))
        push->broken = true;
    if (!direct)
        shunti_rail_rows_meet(push->across, r, offers);
    if (direct && bytes &&
        (!peer->rows || (push->what.dweight && !peer->out))) {
        if (!push->broken)
            shunti_request_error(request, SHUNT_ERR_MISMATCH,
                                 "%s: rank %d named memory that is no window, "
                                 "or too little of one",
                                 name, r);
        push->broken = true;
        peer->cursor = push->end;
    }
    if (push->copies)
        hand_over(push, r);
}

/* --- writing ------------------------------------------------------------------ */

static void put_row(const struct shunti_pushing *push, unsigned char *dst,
                    const void *src)
{
    size_t bytes = push->plan->moe->row_bytes;

    if (push->stream)
        shunti_copy_stream(dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

/* The row of `out` that belongs to term `i`. NULL: there is no such row. */
static const unsigned char *out_row(const struct shunti_pushing *push, size_t i)
{
    const struct shunti_plan *plan = push->plan;
    const struct shunti_term *term = &plan->terms[i];

    if (i >= plan->first[plan->tokens] || !push->peers[term->rank].out)
        return NULL;
    return push->peers[term->rank].out + term->row * plan->moe->row_bytes;
}

/* Write one token to its slots on the ranks whose cursor is `from`. */
static void put_token(struct shunti_pushing *push, size_t t, size_t from)
{
    const struct shunti_plan *plan = push->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_rows *rows = moe->rows;
    const size_t hidden = moe->config.hidden, bytes = moe->row_bytes;
    const unsigned char *src =
        (const unsigned char *)push->what.src + (t - push->src_first) * bytes;
    float *dweight = push->what.dweight;
    bool rounded = false;

    for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
        const struct shunti_term *term = &plan->terms[i];
        const struct shunti_push_peer *peer = &push->peers[term->rank];

        if (peer->cursor != from || !peer->rows)
            continue;
        /* Read the row of `out` first: the new row may overwrite it. */
        if (dweight && !push->broken)
            dweight[t * (size_t)moe->config.topk + term->slot] =
                rows->dot(src, peer->out + term->row * bytes,
                          out_row(push, i + 1), hidden);
        if (push->what.weighted) {
            rows->scale(push->scratch, src, term->weight, hidden);
            put_row(push, peer->rows + term->row * bytes, push->scratch);
        } else if (push->what.fp8) {
            if (!rounded)
                rows->fp8(push->scratch, src, hidden);
            rounded = true;
            put_row(push, peer->rows + term->row * bytes, push->scratch);
        } else {
            put_row(push, peer->rows + term->row * bytes, src);
        }
    }
}

/* Write the next chunk for the ready peer that is furthest behind. Returns the
 * bytes of the chunk; 0: nothing to do. */
static size_t put_chunk(struct shunti_pushing *push)
{
    const struct shunti_plan *plan = push->plan;
    const int nranks = plan->moe->nranks;
    size_t from = push->end, to, t;
    SHUNTI_TRACK(COPIES);

    if (push->what.device & SHUNTI_DEVICE_TOKENS && !push->what.src)
        return 0; /* the tokens are not on the host yet, or are not needed
                     there */

    for (int r = 0; r < nranks; r++)
        if (push->handshake.notes[r].received && push->peers[r].cursor < from)
            from = push->peers[r].cursor;
    if (from == push->end)
        return 0;
    to = push->end - from < push->chunk ? push->end : from + push->chunk;
    for (int r = 0; r < nranks; r++)
        if (push->handshake.notes[r].received && push->peers[r].cursor > from &&
            push->peers[r].cursor < to)
            to = push->peers[r].cursor;
    for (t = from; t < to; t++)
        put_token(push, t, from);
    for (int r = 0; r < nranks; r++)
        if (push->handshake.notes[r].received && push->peers[r].cursor == from)
            push->peers[r].cursor = to;
    return (plan->first[to] - plan->first[from] + 1) * plan->moe->row_bytes;
}

/* --- the operation ------------------------------------------------------------ */

/* True if all rows for `r` have been written. If `r` is on another node: true
 * if all rows that `r` sent have been passed on. */
static bool is_served(const struct shunti_pushing *push, int r)
{
    if (!push->handshake.notes[r].received)
        return false;
    if (!push->handshake.notes[r].direct)
        return shunti_rail_rows_passed(push->across, r);
    return push->peers[r].cursor == push->end &&
           (!push->copies || shunti_row_copies_done(push->copies, r)) &&
           (!push->device || push->failed ||
            shunti_device_rows_sent(push->device, r)) &&
           (!push->across || shunti_rail_rows_all_passed(push->across));
}

/* Give up all exchange with other nodes, because a local peer made a bad call.
 * A relay that has rows of this rank may still read them. So later calls may
 * write to the relay's arrival area only after the relay has acked. */
static void give_up_across(struct shunti_pushing *push)
{
    for (int r = 0; r < push->plan->moe->nranks; r++) {
        struct shunti_handshake_notes *notes = &push->handshake.notes[r];

        if (notes->direct)
            continue;
        notes->received = push->peers[r].served = true;
        if (!shunti_rail_rows_put_any(push->across, r))
            notes->answered = true;
        shunti_rail_rows_give_up(push->across, r);
    }
}

/* True if `r` has acked, or has made a bad call. If this rank has given up the
 * exchange with other nodes: also true if the relay `r` has ended the call. */
static bool is_answered(struct shunt_request *request, int r)
{
    const struct shunti_pushing *push = shunti_pushing_of(request);

    return shunti_acked(request, r) ||
           (push->handshake.alarmed && !push->handshake.notes[r].direct &&
            shunti_peer_completed(request->comm, r, request->seq));
}

/* Exchange notes with every peer, and ack the peers that have been served. */
static void look_at_peers(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    struct shunti_handshake *handshake = &push->handshake;
    const int nranks = push->plan->moe->nranks, rank = push->plan->moe->rank;

    if (push->across && !handshake->local_received &&
        shunti_handshake_has_locals(handshake)) {
        handshake->local_received = true;
        if (handshake->alarmed)
            give_up_across(push);
    }
    for (int i = 1; i < nranks; i++) {
        int r = (rank + i) % nranks;
        struct shunti_push_peer *peer = &push->peers[r];
        struct shunti_handshake_notes *notes = &handshake->notes[r];

        if (notes->sent && peer->served && notes->answered)
            continue;
        shunti_handshake_send(request, handshake, r);
        receive(request, r);
        if (!peer->served && is_served(push, r)) {
            if (push->stream)
                shunti_copy_fence();
            /* A rank of another node that sent no rows does not wait for an
             * ack. */
            if (push->failed)
                shunti_ack_failed(request, r);
            else if (notes->direct ||
                     shunti_rail_receives(push->across->rails, r))
                shunti_ack(request, r,
                           notes->direct ? SHUNT_OK : request->error);
            peer->served = true;
        }
        if (notes->sent && !notes->answered)
            notes->answered = is_answered(request, r);
    }
}

/* Move rows from and to other nodes. True if any moved. */
static bool move_across(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    struct shunti_rail_rows *across = push->across;
    const struct shunt_comm *comm = request->comm;
    const int *local = shunti_node_ranks(comm, comm->node);
    const uint64_t call = shunti_rail_call(request);
    bool sent = shunti_rail_rows_send(across, call);

    if (!push->handshake.local_received)
        return sent;
    for (int i = 0; i < comm->local_size; i++) {
        const struct shunti_push_peer *peer = &push->peers[local[i]];

        across->places[i] = peer->rows;
        across->outs[i] = peer->out;
        if (local[i] == comm->rank)
            across->places[i] = push->arrivals;
    }
    across->broken = across->broken || push->broken;
    if (across->dweight)
        shunti_rail_rows_take_dots(across, call);
    return shunti_rail_rows_pass_on(across, call) || sent;
}

static void fail(struct shunt_request *request, enum shunt_status status,
                 const char *why)
{
    struct shunti_pushing *push = shunti_pushing_of(request);

    shunti_request_error(request, status, "%s: %s", push->handshake.call->name,
                         why);
    push->failed = true;
    for (int r = 0; r < push->plan->moe->nranks; r++)
        push->peers[r].cursor = push->end;
}

/* Move rows from and to devices. True if any moved. */
static bool move_devices(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    enum shunt_status st = SHUNT_OK;
    char why[512] = "";
    bool moved;

    if (push->failed)
        return false;
    moved = shunti_device_rows_step(push->device, &st, why, sizeof(why));
    if (st)
        fail(request, st, why);
    else if (push->what.device & SHUNTI_DEVICE_TOKENS)
        push->what.src = shunti_device_rows_host(push->device);
    return moved;
}

/* Copy rows to the device, if the row buffer is there. All rows have arrived.
 * False: copies are still under way. */
static bool finish_devices(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    enum shunt_status st;
    char why[512] = "";

    if (request->error)
        return true;
    st = shunti_device_rows_finish(push->device, push->arrivals, why,
                                   sizeof(why));
    if (st && st != SHUNT_IN_PROGRESS)
        fail(request, st, why);
    return st != SHUNT_IN_PROGRESS;
}

/* Let the copy engine write the rows, if the call only copies them. The engine
 * cannot scale or round rows, or multiply them with rows of `out`. */
static void begin(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    const struct shunti_push *what = &push->what;

    push->begun = true;
    if (what->fp8 || what->weighted || what->dweight || push->device)
        return;
    push->copies = shunti_row_copies_create(
        request, push->plan, shunti_parts_token(push->plan, what->cut.from),
        push->end, push->handshake.notes, what->src);
    if (push->copies)
        hand_over(push, request->comm->rank);
}

static enum shunt_status step(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    const struct shunti_plan *plan = push->plan;
    const int nranks = plan->moe->nranks, rank = plan->moe->rank;
    size_t done, all = 0;
    bool moved;

    if (!push->begun)
        begin(request);
    do {
        look_at_peers(request);
        moved = push->across && move_across(request);
        if (push->device && move_devices(request))
            moved = true;
        done = push->copies ? shunti_row_copies_step(request, push->copies)
                            : put_chunk(push);
        if (moved) {
            done += SHUNTI_PUSH_CHUNK;
            shunti_transports_progress(request->comm);
        }
        all += done;
    } while (done && all < STEP_BYTES);
    if (done) { /* there is more to do: ask for another step at once */
        shunti_wake_self(request->comm);
        return SHUNT_IN_PROGRESS;
    }
    for (int r = 0; r < nranks; r++)
        if (!push->handshake.notes[r].sent || !push->peers[r].served ||
            !push->handshake.notes[r].answered)
            return SHUNT_IN_PROGRESS;
    if (push->peers[rank].cursor < push->end ||
        (push->copies && !shunti_row_copies_done(push->copies, rank)))
        return SHUNT_IN_PROGRESS;
    if (push->across &&
        (!shunti_rail_rows_done(push->across) || !push->direction->lists.here))
        return SHUNT_IN_PROGRESS;
    if (push->device && !finish_devices(request))
        return SHUNT_IN_PROGRESS;
    if (push->arrivals != push->what.dst && !request->error &&
        !(push->what.device & SHUNTI_DEVICE_ROWS))
        shunti_parts_copy(plan, push->what.cut, push->what.dst, push->arrivals);
    return SHUNT_OK;
}

static bool awaits(const struct shunt_request *request, int r)
{
    const struct shunti_pushing *push = shunti_pushing_of(request);
    const struct shunti_handshake_notes *notes = &push->handshake.notes[r];

    /* Do not wait for other nodes before the notes of all local peers have
     * arrived. */
    if (!notes->direct && !push->handshake.local_received)
        return false;
    return !notes->sent || !push->peers[r].served || !notes->answered ||
           (push->across && !notes->direct &&
            (shunti_rail_rows_miss(push->across, r) ||
             shunti_lists_await(&push->direction->lists, r)));
}

static bool has_received(const struct shunt_request *request, int r)
{
    return shunti_pushing_of(request)->handshake.notes[r].received;
}

void shunti_push_drop(struct shunti_pushing *push)
{
    free(push->scratch);
    shunti_row_copies_destroy(push->copies);
    shunti_device_rows_destroy(push->device);
    if (push->across)
        shunti_rail_rows_finish(push->across);
    free(push->across);
}

static void cleanup(struct shunt_request *request)
{
    struct shunti_pushing *push = shunti_pushing_of(request);

    if (push->across)
        shunti_rail_leave_line(&push->across->rails->rows_line,
                               &push->across->turn);
    shunti_push_drop(push);
    shunti_moe_call_end(push->handshake.call, push->plan, push->what.cut,
                        push->handshake.borrowed, request->status);
}

static size_t sent_in_all(const struct shunt_request *request)
{
    return shunti_pushing_of(request)->bytes;
}

#define CLASS(call, mode)                                                \
    {                                                                    \
        .name = call, .algorithm = mode, .step = step, .awaits = awaits, \
        .received = has_received, .cleanup = cleanup,                    \
        .sent_in_all = sent_in_all,                                      \
    }

const struct shunti_class shunti_push_classes[2][2] = {
    {CLASS("moe_dispatch", "direct"), CLASS("moe_dispatch", "two_level")},
    {CLASS("moe_combine_backward", "direct"),
     CLASS("moe_combine_backward", "two_level")},
};
