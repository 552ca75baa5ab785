// SPDX-License-Identifier: Apache-2.0
/* Rows home; see pull.h. */
#include "moe/route/pull.h"

#include <stdlib.h>
#include <string.h>

#include "moe/layout/pieces.h"
#include "moe/route/handshake.h"
#include "moe/route/rails_sums.h"
#include "moe/route/start.h"
#include "src/base/error.h"
#include "src/comm.h"
#include "src/kernels/rows.h"
#include "src/op/note.h"
#include "src/progress/call.h"
#include "src/progress/wait.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"
#include "src/wire/nodes.h"

/* Most bytes of work in one step. Then other requests have their turn. */
#define STEP_BYTES ((size_t)256 << 20)

struct peer {
    bool bad; /* the peer's call is bad, so the peer waits for no ack */
    const unsigned char *rows;
};

struct pull {
    struct shunti_handshake handshake;
    struct shunti_plan *plan;
    struct shunti_direction *direction;
    size_t bytes; /* bytes that others read of this rank's rows, for traces */
    struct shunti_pull what;
    bool broken;        /* rows of a peer are missing */
    bool acked;         /* this rank has acked all peers */
    size_t cursor, end; /* the next token to add up; the last token + 1 */
    struct shunti_rows_term *terms;  /* (2, topk) terms of this token and of the
                                        next one */
    struct shunti_rail_sums *across; /* results between nodes, or NULL */
    struct peer peers[];
};

static struct pull *state_of(const struct shunt_request *request)
{
    return (struct pull *)(void *)(uintptr_t)request->state;
}

static void receive(struct shunt_request *request, int r)
{
    struct pull *pull = state_of(request);
    const bool direct = pull->handshake.notes[r].direct;
    struct peer *peer = &pull->peers[r];
    const struct shunti_note *note;
    struct shunti_remote rows;
    size_t bytes = pull->plan->rank_total[r] * pull->plan->moe->row_bytes;

    switch (shunti_handshake_receive(request, &pull->handshake, r, &note)) {
    case SHUNTI_HANDSHAKE_NOTHING:
        return;
    case SHUNTI_HANDSHAKE_BAD:
        peer->bad = pull->broken = true;
        if (pull->across && !direct)
            shunti_rail_sums_give_up(pull->across, r);
        return;
    case SHUNTI_HANDSHAKE_CALL:
        break;
    }
    if (!direct)
        return;
    rows = (struct shunti_remote){note->word[0], note->word[1]};
    peer->rows = shunti_remote_map(request->comm, r, &rows, bytes);
    if (!peer->rows && bytes) {
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d named memory that is no window, or "
                             "too little of one",
                             pull->handshake.call->name, r);
        pull->broken = true;
    }
}

/* --- adding ------------------------------------------------------------------- */

#define NOT_HERE SIZE_MAX

/* Collect the terms of a token. A piece (pieces.h) of another node is one term.
 * Returns their number. NOT_HERE: a piece has not arrived. */
static size_t collect(const struct pull *pull, size_t t,
                      struct shunti_rows_term *terms)
{
    const struct shunti_plan *plan = pull->plan;
    const struct shunt_moe *moe = plan->moe;
    size_t n = 0, end = plan->first[t + 1];

    if (pull->across)
        pull->across->asks++;
    for (size_t i = plan->first[t]; i < end; i++) {
        const struct shunti_term *from = &plan->terms[i];
        const unsigned char *sum;
        size_t there;
        bool as_is;

        if (pull->handshake.notes[from->rank].direct) {
            terms[n++] = (struct shunti_rows_term){
                pull->peers[from->rank].rows + from->row * moe->row_bytes,
                pull->what.weighted ? from->weight : 1,
                from->op,
                0,
            };
            continue;
        }
        there = shunti_piece_end(from, end - i, i == plan->first[t], moe->node);
        sum = shunti_rail_sums_next(pull->across, moe->node[from->rank], t,
                                    there);
        if (!sum)
            return NOT_HERE;
        as_is = shunti_home_as_is(moe, there);
        terms[n++] = (struct shunti_rows_term){
            sum,
            as_is && pull->what.weighted ? from->weight : 1,
            from->op,
            !as_is && moe->config.partials == SHUNT_MOE_PARTIALS_F32,
        };
        i += there - 1;
    }
    return n;
}

/* Add up the rows of some tokens. False: nothing more can be added now. */
static bool add(struct pull *pull)
{
    const struct shunti_plan *plan = pull->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t bytes = moe->row_bytes;
    struct shunti_rows_term *now = pull->terms;
    struct shunti_rows_term *next = pull->terms + moe->config.topk, *swap;
    size_t n, nnext, work = 0, t = pull->cursor;
    /* With rails, add less at once, because there is other work to do in
     * between. */
    const size_t most = pull->across ? SHUNTI_PULL_STEP : STEP_BYTES;

    SHUNTI_TRACK(COPIES);

    if (t == pull->end)
        return false;
    nnext = collect(pull, t, next);
    for (; t < pull->end && nnext != NOT_HERE && work < most; t++) {
        swap = now;
        now = next;
        next = swap;
        n = nnext;
        nnext = t + 1 < pull->end ? collect(pull, t + 1, next) : 0;
        moe->rows->sum(
            now, n, next, nnext == NOT_HERE ? 0 : nnext,
            pull->what.bias ? (const unsigned char *)pull->what.bias + t * bytes
                            : NULL,
            (unsigned char *)pull->what.dst + t * bytes, moe->config.hidden);
        work += (n + 1) * bytes;
    }
    pull->cursor = t;
    return t < pull->end && nnext != NOT_HERE;
}

/* --- the operation --------------------------------------------------------------- */

/* Send and receive results between nodes. True: there may be more right now. */
static bool move_across(struct shunt_request *request)
{
    struct pull *pull = state_of(request);
    struct shunti_rail_sums *across = pull->across;
    const struct shunt_comm *comm = request->comm;
    const int *local = shunti_node_ranks(comm, comm->node);
    const uint64_t call = shunti_rail_call(request);
    bool sent;

    for (int i = 0; i < comm->local_size; i++)
        across->outs[i] = pull->peers[local[i]].rows;
    sent = shunti_rail_sums_send(across, call, pull->broken);
    if (sent)
        shunti_transports_progress(request->comm);
    shunti_rail_sums_look(across, call);
    if (across->broken && !pull->broken) {
        pull->broken = true;
        /* A note that says why may still arrive; its error then replaces this
         * one. */
        if (!request->error) {
            shunti_request_error(request, SHUNT_ERR_REMOTE,
                                 "%s: the call failed on a rank of another "
                                 "node, and its results are missing",
                                 pull->handshake.call->name);
            request->second_hand = true;
        }
    }
    return sent;
}

/* Give up all exchange with other nodes, because a local peer made a bad
 * call. */
static void give_up_across(struct pull *pull)
{
    for (int r = 0; r < pull->plan->moe->nranks; r++) {
        struct shunti_handshake_notes *notes = &pull->handshake.notes[r];

        if (notes->direct)
            continue;
        notes->received = notes->answered = pull->peers[r].bad = true;
        shunti_rail_sums_give_up(pull->across, r);
    }
}

/* Send notes to all peers, and look for theirs. *all: true if all notes have
 * been sent and have arrived. Returns true if the notes of all local peers have
 * arrived. */
static bool look_at_peers(struct shunt_request *request, bool *all)
{
    struct pull *pull = state_of(request);
    struct shunti_handshake *handshake = &pull->handshake;
    const int nranks = pull->plan->moe->nranks, rank = pull->plan->moe->rank;
    bool local = true;

    if (pull->across && handshake->local_received && handshake->alarmed)
        give_up_across(pull);
    *all = true;
    for (int i = 1; i < nranks; i++) {
        int r = (rank + i) % nranks;

        shunti_handshake_send(request, handshake, r);
        receive(request, r);
    }
    for (int r = 0; r < nranks; r++) {
        const struct shunti_handshake_notes *notes = &handshake->notes[r];

        local = local && (notes->received || !notes->direct);
        *all = *all && notes->received && notes->sent;
    }
    if (local && !handshake->local_received) {
        handshake->local_received = true;
        *all = false; /* no note was sent to other nodes yet */
        return look_at_peers(request, all);
    }
    return local;
}

static enum shunt_status step(struct shunt_request *request)
{
    struct pull *pull = state_of(request);
    const struct shunti_plan *plan = pull->plan;
    const int nranks = plan->moe->nranks, rank = plan->moe->rank;
    bool all_heard, all_done = true;

    if (!look_at_peers(request, &all_heard) || (!pull->across && !all_heard))
        return SHUNT_IN_PROGRESS;
    if (pull->across && move_across(request))
        shunti_wake_self(request->comm);
    if (!pull->broken && add(pull)) {
        shunti_wake_self(request->comm);
        return SHUNT_IN_PROGRESS;
    }
    if (!all_heard || (!pull->broken && pull->cursor < pull->end) ||
        (pull->across && (!shunti_rail_sums_sent(pull->across) ||
                          !pull->direction->lists.here)))
        return SHUNT_IN_PROGRESS;
    for (int i = 1; i < nranks; i++) {
        int r = (rank + i) % nranks;
        struct shunti_handshake_notes *notes = &pull->handshake.notes[r];

        /* A rank of another node that sent no sums here awaits no ack. */
        if (!pull->acked && !pull->peers[r].bad &&
            (notes->direct || shunti_rail_sends(pull->across->rails, r)))
            shunti_ack(request, r, SHUNT_OK);
        if (!notes->answered)
            notes->answered = shunti_acked(request, r);
        all_done = all_done && notes->answered;
    }
    pull->acked = true;
    return all_done ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static bool awaits(const struct shunt_request *request, int r)
{
    const struct pull *pull = state_of(request);
    const struct shunti_handshake_notes *notes = &pull->handshake.notes[r];

    /* Do not wait for other nodes before the notes of all local peers have
     * arrived. */
    if (!notes->direct && !pull->handshake.local_received)
        return false;
    return !notes->sent || !notes->received || !notes->answered ||
           (pull->across && !notes->direct &&
            (shunti_rail_sums_miss(pull->across, r) ||
             shunti_lists_await(&pull->direction->lists, r)));
}

static bool has_received(const struct shunt_request *request, int r)
{
    return state_of(request)->handshake.notes[r].received;
}

/* Free the memory of a pull that has ended, or that was never started. */
static void drop(void *state)
{
    struct pull *pull = state;

    free(pull->terms);
    if (pull->across)
        shunti_rail_sums_finish(pull->across);
    free(pull->across);
}

static void cleanup(struct shunt_request *request)
{
    struct pull *pull = state_of(request);

    if (pull->across)
        shunti_rail_leave_line(&pull->across->rails->sums_line,
                               &pull->across->turn);
    drop(pull);
    shunti_moe_call_end(pull->handshake.call, pull->plan, pull->what.cut,
                        pull->handshake.borrowed, request->status);
}

/* Bytes that others read of this rank's rows. */
static size_t sent_in_all(const struct shunt_request *request)
{
    return state_of(request)->bytes;
}

#define CLASS(call, mode)                                                \
    {                                                                    \
        .name = call, .algorithm = mode, .step = step, .awaits = awaits, \
        .received = has_received, .cleanup = cleanup,                    \
        .sent_in_all = sent_in_all,                                      \
    }

/* Index 1: the call. Index 2: true if rows go by rails. */
static const struct shunti_class classes[2][2] = {
    {CLASS("moe_combine", "direct"), CLASS("moe_combine", "two_level")},
    {CLASS("moe_dispatch_backward", "direct"),
     CLASS("moe_dispatch_backward", "two_level")},
};

/* --- starting --------------------------------------------------------------------- */

static struct shunti_rail_sums *make_across(struct shunti_direction *direction,
                                            const struct shunti_pull *what)
{
    struct shunti_rail_sums *across = calloc(1, sizeof(*across));

    if (!across)
        return NULL;
    across->cut = what->cut;
    across->weighted = what->weighted;
    if (shunti_rail_sums_init(across, direction))
        return across;
    free(across);
    return NULL;
}

static enum shunt_status allocate(struct pull *pull, bool two_level)
{
    const size_t topk = (size_t)pull->plan->moe->config.topk;

    pull->terms = calloc(2 * topk, sizeof(*pull->terms));
    if (two_level)
        pull->across = make_across(pull->direction, &pull->what);
    if (pull->terms && (pull->across || !two_level))
        return SHUNT_OK;
    return shunti_moe_call_refuse(pull->handshake.call, pull->plan,
                                  SHUNT_ERR_MEMORY, "no memory");
}

static void peers(struct shunt_request *request,
                  struct shunti_handshake_notes *notes)
{
    struct pull *pull = state_of(request);
    struct shunti_rails *rails = pull->across ? pull->across->rails : NULL;

    shunti_start_peers(&pull->handshake, notes, rails, shunti_rail_receives);
    pull->peers[request->comm->rank].rows = pull->what.src;
    if (rails)
        shunti_rail_line_up(&rails->sums_line, &pull->across->turn,
                            pull->what.cut);
    request->comm->stats.bytes_mapped += pull->bytes;
}

enum shunt_status shunti_pull_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_pull *what,
                                    bool two_level, struct shunt_request **out)
{
    struct shunti_plan *plan = direction->plan;
    struct pull begin = {
        .handshake = {.call = call, .plan = plan, .cut = what->cut},
        .plan = plan,
        .direction = direction,
        .bytes = shunti_parts_lent(plan, what->cut) * plan->moe->row_bytes,
        .what = *what,
        .cursor = shunti_parts_token(plan, what->cut.from),
        .end = shunti_parts_token(plan, what->cut.to),
    };
    enum shunt_status st = shunti_start_offer(
        &begin.handshake, what->src, what->staging,
        "whose rows are no window either", &begin.handshake.rows);

    if (!st)
        st = allocate(&begin, two_level);
    if (st) {
        drop(&begin);
        return st;
    }
    return shunti_start_launch(
        &(struct shunti_start){
            .class = &classes[call->kind != SHUNTI_KIND_MOE_COMBINE][two_level],
            .handshake = &begin.handshake,
            .state = &begin,
            .bytes = sizeof(begin),
            .peer_bytes = sizeof(begin.peers[0]),
            .peers = peers,
            .drop = drop,
        },
        out);
}
