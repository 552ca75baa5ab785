// SPDX-License-Identifier: Apache-2.0
/* A star: one root and its leaves; see star.h. */
#include "collectives/star.h"

#include "collectives/coll_call.h"
#include "collectives/exchange.h"
#include "collectives/payload_source.h"
#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/payload_protocol.h"

/* For a small block, a leaf looks this many times for the root's message before
 * it sends its own. The number is less than that of looks before a rank
 * sleeps. */
#define LOOKS 32

/* --- the root: an exchange in which the leaves have no blocks ------------- */

static struct shunti_exchange *exchange_of(const struct shunt_request *request)
{
    return (struct shunti_exchange *)(void *)(uintptr_t)request->state;
}

static bool settled(const struct shunt_request *request)
{
    return !exchange_of(request)->out_open;
}

/* Send an alarm to all ranks, in place of the message that completes the
 * barrier. A rank has made another call, or a bad one. */
SHUNTI_NOINLINE static void raise_alarm(struct shunt_request *request,
                                        struct shunti_exchange *x)
{
    const struct shunt_comm *comm = request->comm;
    struct shunti_blame blame;
    int bad = 0;

    while (bad < comm->nranks - 1 && !x->peers[bad].bad)
        bad++;
    blame = shunti_note_blame(request, bad);
    for (; x->posted < comm->nranks - 1; x->posted++) {
        int peer = shunti_nth_out(comm, x->posted);

        if (!shunti_turn(request, peer, x->ticket))
            break;
        shunti_note_alarm(request, peer, &blame);
        shunti_turn_over(request, peer);
        x->peers[peer].out = SHUNTI_OUT_DONE;
        x->out_open--;
    }
}

static enum shunt_status gather_step(struct shunt_request *request)
{
    struct shunti_exchange *x = exchange_of(request);
    const int peers = request->comm->nranks - 1;

    for (int i = 0; i < peers && x->in_unmet; i++)
        shunti_exchange_meet(request, x, shunti_nth_in(request->comm, i));
    if (request->error && x->posted < peers)
        raise_alarm(request, x);
    if (x->in_unmet || (request->error && x->posted < peers))
        return SHUNT_IN_PROGRESS;
    return shunti_exchange_step(request);
}

static bool has_entered(const struct shunt_request *request, int peer)
{
    return exchange_of(request)->peers[peer].in != SHUNTI_IN_NOTE;
}

static const struct shunti_class root_classes[] = {
    {
        .name = "broadcast",
        .algorithm = "star",
        .step = shunti_exchange_step,
        .awaits = shunti_exchange_awaits,
        .settled = settled,
        .sent = shunti_exchange_sent,
    },
    {
        .name = "barrier",
        .algorithm = "star",
        .step = gather_step,
        .awaits = shunti_exchange_awaits,
        .received = has_entered,
    },
};

static enum shunt_status root(const struct shunti_coll *call,
                              uint32_t signature,
                              const struct shunti_star *star,
                              struct shunt_request **request)
{
    struct shunti_exchange *x;
    enum shunt_status st = shunti_exchange_create(
        call, &root_classes[star->gathers], signature, request, &x);

    if (st)
        return st;
    x->own_done = true;
    for (int r = 0; r < call->comm->nranks; r++) {
        x->peers[r].send = star->buffer;
        x->peers[r].send_bytes = star->bytes;
    }
    return SHUNT_OK;
}

/* --- the root of a small broadcast ---------------------------------------- */

/* The block is in the root's messages, so a leaf needs nothing more of the root
 * once its message has been sent. A root that broadcasts without pause does
 * little more than write messages. This code saves half of the root's time,
 * because it skips the rest of an exchange. */
struct small_root {
    const void *block;
    size_t bytes;
    uint64_t ticket;
    int posted; /* number of messages sent, in the order of shunti_nth_out() */
    int answered; /* number of leaves that have answered, in the order of
                     shunti_nth_in() */
};

static struct small_root *small_root_of(const struct shunt_request *request)
{
    return (struct small_root *)(void *)(uintptr_t)request->state;
}

static bool small_post(struct shunt_request *request, struct small_root *root)
{
    const int peers = request->comm->nranks - 1;
    uint64_t none;

    for (; root->posted < peers; root->posted++) {
        int peer = shunti_nth_out(request->comm, root->posted);

        if (!shunti_turn(request, peer, root->ticket))
            return false;
        (void)shunti_offer(request, peer, root->block, root->bytes, 0, &none);
        if (root->bytes > SHUNTI_NOTE_BODY)
            shunti_note_claim_behind(request, peer, root->bytes);
        shunti_turn_over(request, peer);
    }
    return true;
}

/* A leaf answers with an ack if it has the block, and with its control message
 * otherwise. */
static bool small_answered(struct shunt_request *request,
                           const struct small_root *root, int peer)
{
    const struct shunti_note *note;

    if (shunti_acked(request, peer))
        return true;
    note = shunti_note_arrived(request, peer);
    if (note && !shunti_note_bad(request, peer)) {
        (void)shunti_agree_received(request, peer, note, 0);
        (void)shunti_agree_sent(request, peer, note, root->bytes);
    }
    return note != NULL;
}

/* Look for the answers in order, since the operation ends with the last one.
 * While an answer is missing, its leaf may be in another call, and another
 * rank's message may say so. */
static bool count_answers(struct shunt_request *request,
                          struct small_root *root)
{
    const struct shunt_comm *comm = request->comm;
    const int peers = comm->nranks - 1;

    while (root->answered < peers &&
           small_answered(request, root, shunti_nth_in(comm, root->answered)))
        root->answered++;
    for (int i = root->answered + 1; i < peers && !request->error; i++)
        shunti_note_look(request, shunti_nth_in(comm, i));
    return root->answered == peers;
}

SHUNTI_FLATTEN static enum shunt_status
small_step(struct shunt_request *request)
{
    struct small_root *root = small_root_of(request);
    const int peers = request->comm->nranks - 1;

    /* If an older operation is active, this one cannot end yet. Looking for
     * answers now would take the cache line of the acks from a leaf that is
     * about to write them. */
    if (root->posted < peers && small_post(request, root) &&
        request->comm->operations.active != request)
        return SHUNT_IN_PROGRESS;
    return count_answers(request, root) && root->posted == peers
               ? SHUNT_OK
               : SHUNT_IN_PROGRESS;
}

static bool small_settled(const struct shunt_request *request)
{
    return small_root_of(request)->posted == request->comm->nranks - 1;
}

static bool small_awaits(const struct shunt_request *request, int peer)
{
    const struct small_root *root = small_root_of(request);
    const struct shunt_comm *comm = request->comm;

    for (int i = root->posted; i < comm->nranks - 1; i++)
        if (shunti_nth_out(comm, i) == peer)
            return true;
    for (int i = root->answered; i < comm->nranks - 1; i++)
        if (shunti_nth_in(comm, i) == peer)
            return !shunti_answer_is_there(request, peer);
    return false;
}

static size_t small_sent(const struct shunt_request *request, int peer)
{
    (void)peer;
    return small_root_of(request)->bytes;
}

static const struct shunti_class small_root_class = {
    .name = "broadcast",
    .algorithm = "star",
    .step = small_step,
    .awaits = small_awaits,
    .settled = small_settled,
    .sent = small_sent,
    .from_notes = true,
};

static enum shunt_status small_root(const struct shunti_coll *call,
                                    uint32_t signature,
                                    const struct shunti_star *star,
                                    struct shunt_request **request)
{
    struct small_root *state;
    enum shunt_status st = shunti_request_create(
        call->comm, &small_root_class, signature, call->options,
        sizeof(struct small_root), request);

    if (st)
        return st;
    state = small_root_of(*request);
    state->block = star->buffer;
    state->bytes = star->bytes;
    state->ticket = shunti_ticket(*request);
    return SHUNT_OK;
}

/* --- a leaf --------------------------------------------------------------- */

struct leaf {
    void *buffer;
    size_t bytes;
    int root;
    int warned; /* all ranks below this number have this leaf's message, too */
    int looks;  /* how often this leaf looked in vain for the root's small
                   block */
    bool small; /* the block is small: the root sends it in its message */
    bool gathers;  /* a barrier: this rank waits for all ranks */
    bool answered; /* a message or an ack was sent to the root */
    bool received; /* the root's message has arrived */
    bool done;     /* the root's block, if there is one, has been copied */
    struct shunti_source source;
};

static struct leaf *leaf_of(const struct shunt_request *request)
{
    return (struct leaf *)(void *)(uintptr_t)request->state;
}

/* Send this leaf's control message, which has no block, so it need not wait for
 * its turn (exchange.h). */
static bool send_note(struct shunt_request *request, const struct leaf *leaf,
                      int peer)
{
    uint64_t none;

    if (!shunti_note_room(request, peer))
        return false;
    (void)shunti_offer(request, peer, NULL, 0, leaf->bytes, &none);
    return true;
}

/*
 * Answer the root. A small block that has arrived as expected is only acked.
 * Eight acks share a cache line, which a root that is ahead fetches once. So
 * the leaf waits a moment for the block. If the block does not arrive, the root
 * or another rank may be in another call. Such a rank needs the leaf's message
 * to notice that.
 */
static bool answer(struct shunt_request *request, struct leaf *leaf)
{
    if (leaf->small && !request->error) {
        if (leaf->received) {
            shunti_ack(request, leaf->root, SHUNT_OK);
            return true;
        }
        if (++leaf->looks < LOOKS)
            return false;
    }
    return send_note(request, leaf, leaf->root);
}

/* Send this leaf's message to all ranks, because something is wrong, and they
 * may wait for it. */
SHUNTI_NOINLINE static bool warn(struct shunt_request *request,
                                 struct leaf *leaf)
{
    const struct shunt_comm *comm = request->comm;

    for (; leaf->warned < comm->nranks; leaf->warned++) {
        if (leaf->warned == comm->rank || leaf->warned == leaf->root)
            continue;
        if (!send_note(request, leaf, leaf->warned))
            return false;
    }
    return true;
}

/* Look whether another rank has made another call, since the root's message has
 * not arrived. */
static void look_at_others(struct shunt_request *request,
                           const struct leaf *leaf)
{
    for (int r = 0; r < request->comm->nranks && !request->error; r++)
        if (r != request->comm->rank && r != leaf->root)
            shunti_note_look(request, r);
}

static void receive_note(struct shunt_request *request, struct leaf *leaf)
{
    const struct shunti_note *note = shunti_note_arrived(request, leaf->root);

    if (!note) {
        if (leaf->answered)
            look_at_others(request, leaf);
        return;
    }
    leaf->received = true;
    if (shunti_note_bad(request, leaf->root)) {
        leaf->done = true;
    } else if (!shunti_agree_received(request, leaf->root, note, leaf->bytes)) {
        /* The root sees the disagreement in this leaf's message, and does not
         * wait for its ack. */
        leaf->done = true;
    } else if (!shunti_source_open(request, leaf->root,
                                   (enum shunti_way)note->way, note->word,
                                   shunti_note_inline(note),
                                   request->comm->control.layout.eager,
                                   leaf->bytes, &leaf->source)) {
        leaf->done = true;
    }
}

static void copy_block(struct shunt_request *request, struct leaf *leaf)
{
    const struct shunti_source *source = &leaf->source;

    if (!shunti_source_pull(request, leaf->root, &leaf->source, leaf->buffer))
        return;
    if (source->way == SHUNTI_WAY_WINDOW || source->way == SHUNTI_WAY_READ)
        shunti_ack(request, leaf->root,
                   source->failed ? SHUNT_ERR_REMOTE : SHUNT_OK);
    leaf->done = true;
}

SHUNTI_FLATTEN static enum shunt_status step(struct shunt_request *request)
{
    struct leaf *leaf = leaf_of(request);
    size_t before;

    if (!leaf->received)
        receive_note(request, leaf);
    if (!leaf->answered)
        leaf->answered = answer(request, leaf);
    /* Continue as long as there is work that this rank can already do, because
     * no peer wakes it for that work. */
    if (leaf->received && !leaf->done) {
        do {
            before = leaf->source.done;
            copy_block(request, leaf);
        } while (!leaf->done && leaf->source.done != before);
    }
    if (request->error && !warn(request, leaf))
        return SHUNT_IN_PROGRESS;
    return leaf->done && leaf->answered ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static bool awaits(const struct shunt_request *request, int peer)
{
    const struct leaf *leaf = leaf_of(request);

    if (peer == leaf->root || leaf->gathers)
        return !leaf->done || !leaf->answered;
    return request->error && peer == leaf->warned;
}

/* False for the root, so that a timeout names the root before any leaf. True
 * for another leaf: leaves send each other no messages, so this leaf does not
 * know whether the other one has entered. */
static bool may_have_entered(const struct shunt_request *request, int peer)
{
    return peer != leaf_of(request)->root;
}

static const struct shunti_class leaf_classes[] = {
    {
        .name = "broadcast",
        .algorithm = "star",
        .step = step,
        .awaits = awaits,
    },
    {
        .name = "barrier",
        .algorithm = "star",
        .step = step,
        .awaits = awaits,
        .received = may_have_entered,
        .follows = true,
    },
};

static enum shunt_status leaf(const struct shunti_coll *call,
                              uint32_t signature,
                              const struct shunti_star *star,
                              struct shunt_request **request)
{
    struct leaf *state;
    enum shunt_status st = shunti_request_create(
        call->comm, &leaf_classes[star->gathers], signature, call->options,
        sizeof(struct leaf), request);

    if (st)
        return st;
    state = leaf_of(*request);
    state->buffer = star->buffer;
    state->bytes = star->bytes;
    state->root = star->root;
    state->gathers = star->gathers;
    state->small =
        !star->gathers && shunti_always_inline(call->comm, star->bytes);
    return SHUNT_OK;
}

enum shunt_status shunti_star_create(const struct shunti_coll *call,
                                     uint32_t signature,
                                     const struct shunti_star *star,
                                     struct shunt_request **request)
{
    if (call->comm->rank != star->root)
        return leaf(call, signature, star, request);
    if (!star->gathers && shunti_always_inline(call->comm, star->bytes))
        return small_root(call, signature, star, request);
    return root(call, signature, star, request);
}
