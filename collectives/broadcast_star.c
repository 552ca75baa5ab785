// SPDX-License-Identifier: Apache-2.0
/*
 * Broadcast where all memory is mapped: a star. The root tells everyone where
 * the block is, or sends it along; the others, the leaves, take it from there all
 * at once. A leaf tells the root alone that it agrees, and nobody waits for that:
 * a leaf's call is over when it has the block, the root's when nobody needs the
 * root's memory any more. The root's operation goes on until it has heard from
 * all, and it may be as many calls ahead as there are slots for notes.
 *
 * Leaves tell each other nothing, or p ranks would write p * p notes for a
 * number. That a rank made another call is noticed nevertheless, by it and by the
 * root, and nobody waits in vain:
 *   - a leaf without its block looks at everybody's notes, and as soon as
 *     something is wrong it tells everyone what it called;
 *   - a rank that waits for a note of a leaf that has ended the operation
 *     without one sees that it has (note.h: shunti_note_arrived()).
 * Who waits for a root that is itself a leaf is helped by that root's root, and so
 * on: either one of them is its own root, and all hear of it, or they form a ring,
 * in which each gets the note of one that takes it for the root.
 */
#include "broadcast.h"

#include "comm.h"
#include "exchange.h"
#include "note.h"
#include "source.h"
#include "whole.h"

/* --- the root: an exchange in which the others have no blocks --------------- */

static bool settled(const struct shunt_request *request)
{
    const struct shunti_exchange *x =
        (const struct shunti_exchange *)(const void *)request->state;

    return !x->out_open;
}

static const struct shunti_class root_class = {
    .name = "broadcast",
    .algorithm = "star",
    .step = shunti_exchange_step,
    .awaits = shunti_exchange_awaits,
    .settled = settled,
    .sent = shunti_exchange_sent,
};

static enum shunt_status root(struct shunt_comm *comm, uint32_t signature,
                              const struct shunti_broadcast *a,
                              struct shunt_request **request)
{
    struct shunti_exchange *x;
    enum shunt_status st =
        shunti_exchange_create(comm, &root_class, signature, request, &x);

    if (st)
        return st;
    x->own_done = true;
    for (int r = 0; r < comm->nranks; r++) {
        x->peers[r].send = a->buffer;
        x->peers[r].send_bytes = a->bytes;
    }
    return SHUNT_OK;
}

/* --- a leaf ----------------------------------------------------------------- */

struct leaf {
    void *buffer;
    size_t bytes;
    int root;
    int warned; /* ranks below this one have been told, too */
    bool told;  /* the root has our note */
    bool met;   /* we have its */
    bool done;  /* and the block, if there is one for us */
    struct shunti_source source;
};

static struct leaf *leaf_of(const struct shunt_request *request)
{
    return (struct leaf *)(void *)(uintptr_t)request->state;
}

/* Our note has no block, so it need not wait for its turn among streams. */
static bool tell(struct shunt_request *request, const struct leaf *leaf,
                 int peer)
{
    uint64_t none;

    if (!shunti_note_room(request, peer))
        return false;
    (void)shunti_offer(request, peer, NULL, 0, leaf->bytes, &none);
    return true;
}

/* Something is wrong: others may wait for our note. */
SHUNTI_APART static bool warn(struct shunt_request *request, struct leaf *leaf)
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

/* The root's note has not come: has somebody made another call? */
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
        look_at_others(request, leaf);
        return;
    }
    leaf->met = true;
    if (shunti_note_bad(request, leaf->root)) {
        leaf->done = true;
    } else if (note->bytes != leaf->bytes) {
        /* It sees the same in our note, and keeps the block. */
        leaf->done = true;
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "broadcast: rank %d sent %llu B, this rank "
                             "expected %zu B",
                             leaf->root, (unsigned long long)note->bytes,
                             leaf->bytes);
    } else if (!shunti_source_open(
                   request, leaf->root, (enum shunti_way)note->way, note->word,
                   shunti_note_inline(note), request->comm->layout.eager,
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

SHUNTI_WHOLE static enum shunt_status step(struct shunt_request *request)
{
    struct leaf *leaf = leaf_of(request);
    size_t before;

    if (!leaf->met)
        meet(request, leaf);
    if (!leaf->told)
        leaf->told = tell(request, leaf, leaf->root);
    /* Nobody wakes us for work that we could have done: go on until there is
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

    return peer == leaf->root ? !leaf->done || !leaf->told
                              : request->error && peer == leaf->warned;
}

static const struct shunti_class leaf_class = {
    .name = "broadcast",
    .algorithm = "star",
    .step = step,
    .awaits = awaits,
};

static enum shunt_status leaf(struct shunt_comm *comm, uint32_t signature,
                              const struct shunti_broadcast *a,
                              struct shunt_request **request)
{
    enum shunt_status st = shunti_request_create(comm, &leaf_class, signature,
                                                 sizeof(struct leaf), request);

    if (st)
        return st;
    *leaf_of(*request) =
        (struct leaf){.buffer = a->buffer, .bytes = a->bytes, .root = a->root};
    return SHUNT_OK;
}

enum shunt_status shunti_broadcast_star(struct shunt_comm *comm,
                                        uint32_t signature,
                                        const struct shunti_broadcast *args,
                                        struct shunt_request **request)
{
    return comm->rank == args->root ? root(comm, signature, args, request)
                                    : leaf(comm, signature, args, request);
}
