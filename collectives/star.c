// SPDX-License-Identifier: Apache-2.0
/* One rank and all others; see star.h. */
#include "collectives/star.h"

#include "collectives/exchange.h"
#include "collectives/source.h"
#include "src/comm.h"
#include "src/inline.h"
#include "src/note.h"
#include "src/offer.h"

/* --- the root: an exchange in which the others have no blocks ------------- */

static struct shunti_exchange *exchange_of(const struct shunt_request *request)
{
    return (struct shunti_exchange *)(void *)(uintptr_t)request->state;
}

static bool settled(const struct shunt_request *request)
{
    return !exchange_of(request)->out_open;
}

/* A rank made another or a bad call: tell all ranks, in place of the message
 * that says that all have come. */
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

static bool has_come(const struct shunt_request *request, int peer)
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
        .heard = has_come,
    },
};

static enum shunt_status root(struct shunt_comm *comm, uint32_t signature,
                              const struct shunti_star *star,
                              struct shunt_request **request)
{
    struct shunti_exchange *x;
    enum shunt_status st = shunti_exchange_create(
        comm, &root_classes[star->gathers], signature, request, &x);

    if (st)
        return st;
    x->own_done = true;
    for (int r = 0; r < comm->nranks; r++) {
        x->peers[r].send = star->buffer;
        x->peers[r].send_bytes = star->bytes;
    }
    return SHUNT_OK;
}

/* --- a leaf --------------------------------------------------------------- */

struct leaf {
    void *buffer;
    size_t bytes;
    int root;
    int warned;   /* ranks below this one have our message, too */
    bool gathers; /* a barrier: the root waits for all ranks, and so do we */
    bool told;    /* our message to the root has been sent */
    bool met;     /* the root's message has arrived */
    bool done;    /* and its block, if it has one, has been taken */
    struct shunti_source source;
};

static struct leaf *leaf_of(const struct shunt_request *request)
{
    return (struct leaf *)(void *)(uintptr_t)request->state;
}

/* Our control message has no block, so it need not wait for its turn
 * (exchange.h). */
static bool tell(struct shunt_request *request, const struct leaf *leaf,
                 int peer)
{
    uint64_t none;

    if (!shunti_note_room(request, peer))
        return false;
    (void)shunti_offer(request, peer, NULL, 0, leaf->bytes, &none);
    return true;
}

/* Something is wrong: other ranks may wait for our message. */
SHUNTI_NOINLINE static bool warn(struct shunt_request *request,
                                 struct leaf *leaf)
{
    const struct shunt_comm *comm = request->comm;

    for (; leaf->warned < comm->nranks; leaf->warned++) {
        if (leaf->warned == comm->rank || leaf->warned == leaf->root)
            continue;
        if (!tell(request, leaf, leaf->warned))
            return false;
    }
    return true;
}

/* The root's message has not arrived: has a rank made another call? */
static void look_at_others(struct shunt_request *request,
                           const struct leaf *leaf)
{
    for (int r = 0; r < request->comm->nranks && !request->error; r++)
        if (r != request->comm->rank && r != leaf->root)
            shunti_note_look(request, r);
}

static void meet(struct shunt_request *request, struct leaf *leaf)
{
    const struct shunti_note *note = shunti_note_arrived(request, leaf->root);

    if (!note) {
        if (leaf->told)
            look_at_others(request, leaf);
        return;
    }
    leaf->met = true;
    if (shunti_note_bad(request, leaf->root)) {
        leaf->done = true;
    } else if (note->bytes != leaf->bytes) {
        /* The root sees the same in our message, and does not wait for our
         * ack. */
        leaf->done = true;
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d sent %llu B, this rank expected "
                             "%zu B",
                             shunti_request_name(request), leaf->root,
                             (unsigned long long)note->bytes, leaf->bytes);
    } else if (!shunti_source_open(request, leaf->root,
                                   (enum shunti_way)note->way, note->word,
                                   shunti_note_inline(note),
                                   request->comm->control.layout.eager,
                                   leaf->bytes, &leaf->source)) {
        leaf->done = true;
    }
}

static void take(struct shunt_request *request, struct leaf *leaf)
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

    if (!leaf->met)
        meet(request, leaf);
    if (!leaf->told)
        leaf->told = tell(request, leaf, leaf->root);
    /* No peer wakes us for work that we can already do: continue until there is
     * none. */
    if (leaf->met && !leaf->done) {
        do {
            before = leaf->source.done;
            take(request, leaf);
        } while (!leaf->done && leaf->source.done != before);
    }
    if (request->error && !warn(request, leaf))
        return SHUNT_IN_PROGRESS;
    return leaf->done && leaf->told ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static bool awaits(const struct shunt_request *request, int peer)
{
    const struct leaf *leaf = leaf_of(request);

    if (peer == leaf->root || leaf->gathers)
        return !leaf->done || !leaf->told;
    return request->error && peer == leaf->warned;
}

/* A leaf gets no message from other leaves, so it does not know whether they
 * have come. */
static bool may_have_come(const struct shunt_request *request, int peer)
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
        .heard = may_have_come,
        .follows = true,
    },
};

static enum shunt_status leaf(struct shunt_comm *comm, uint32_t signature,
                              const struct shunti_star *star,
                              struct shunt_request **request)
{
    struct leaf *state;
    enum shunt_status st =
        shunti_request_create(comm, &leaf_classes[star->gathers], signature,
                              sizeof(struct leaf), request);

    if (st)
        return st;
    state = leaf_of(*request);
    state->buffer = star->buffer;
    state->bytes = star->bytes;
    state->root = star->root;
    state->gathers = star->gathers;
    return SHUNT_OK;
}

enum shunt_status shunti_star_create(struct shunt_comm *comm,
                                     uint32_t signature,
                                     const struct shunti_star *star,
                                     struct shunt_request **request)
{
    return comm->rank == star->root ? root(comm, signature, star, request)
                                    : leaf(comm, signature, star, request);
}
