// SPDX-License-Identifier: Apache-2.0
/*
 * All-gather in two levels. Every block is sent once to each other node: to the
 * rail peer of its rank there (src/wire/nodes.h). The rail peer forwards it to
 * its local peers, together with its own block. A flat exchange would send the
 * block to each rank of the other node.
 *
 *     package to rail peer:   this rank's block, if the peer is the rail peer
 *                             of this rank
 *     package to local peer:  this rank's own block, then those of the ranks
 *                             whose rail peer this rank is, in rank order
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/allgather.h"
#include "collectives/allgather_create.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

struct state {
    const void *send;
    unsigned char *package; /* the same for all local peers */
    size_t package_bytes;
    struct block {
        unsigned char *recv;
        size_t bytes;
    } blocks[]; /* (nranks) */
};

/* True if `c` receives the block of `r` for its node. (The block of `c` itself
 * is always first in the package of `c`.) */
static bool relays(const struct shunt_comm *comm, int c, int r)
{
    return c != r && shunti_rail(comm, r, comm->peers[c].node) == c;
}

static bool arrived(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    const struct shunt_comm *comm = request->comm;
    const unsigned char *at = x->peer_states[peer].in[SHUNTI_PACKAGE].at;
    const struct state *s = x->own;

    if (comm->peers[peer].node != comm->node)
        return true; /* the block was received at its final address */
    if (s->blocks[peer].bytes)
        shunti_copy_payload(s->blocks[peer].recv, at, s->blocks[peer].bytes);
    at += s->blocks[peer].bytes;
    for (int r = 0; r < comm->nranks; r++) {
        if (!relays(comm, peer, r))
            continue;
        if (s->blocks[r].bytes)
            shunti_copy_payload(s->blocks[r].recv, at, s->blocks[r].bytes);
        at += s->blocks[r].bytes;
    }
    return true;
}

/* Bytes of the package that `c` sends to its local peers. */
static size_t package_bytes(const struct shunt_comm *comm,
                            const struct state *s, int c)
{
    size_t bytes = s->blocks[c].bytes;

    for (int r = 0; r < comm->nranks; r++)
        if (relays(comm, c, r))
            bytes += s->blocks[r].bytes;
    return bytes;
}

static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    struct shunt_comm *comm = request->comm;
    const struct state *s = x->own;
    unsigned char *package = s->package;
    size_t at = s->blocks[comm->rank].bytes;

    if (comm->local_size == 1)
        return;
    if (at)
        shunti_copy_payload(package, s->send, at);
    for (int r = 0; r < comm->nranks; r++) {
        if (!relays(comm, comm->rank, r) || !s->blocks[r].bytes)
            continue;
        shunti_copy_payload(package + at, s->blocks[r].recv,
                            s->blocks[r].bytes);
        at += s->blocks[r].bytes;
    }
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_outgoing *out =
            &x->peer_states[x->order[i]].out[SHUNTI_PACKAGE];

        if (x->peer_states[x->order[i]].phase != SHUNTI_PHASE_SECOND)
            continue;
        out->data = package;
        out->bytes = s->package_bytes;
    }
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct state *s = x->own;
    const struct block *own = &s->blocks[request->comm->rank];

    if (own->bytes && own->recv != s->send)
        shunti_copy_payload(own->recv, s->send, own->bytes);
}

static const struct shunti_two_level_hooks hooks = {
    .arrived = arrived,
    .turn = turn,
    .finish = finish,
};

static const struct shunti_class allgather_class = {
    .name = "allgather",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

static const struct shunti_class allgatherv_class = {
    .name = "allgatherv",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

/* Fill in the addresses of blocks, and which blocks are exchanged with rail
 * peers. Packages of local peers are stored in x->owned, behind this rank's
 * package. */
static void fill(struct shunti_two_level *x, const struct shunt_comm *comm,
                 const struct shunti_allgather *a)
{
    struct state *s = x->own;
    size_t packed = 0, at;
    unsigned char *room;

    for (int r = 0; r < comm->nranks; r++) {
        struct block *b = &s->blocks[r];

        shunti_block_at(&a->blocks, r, &at, &b->bytes, &packed);
        b->recv = b->bytes ? a->recv + at : NULL;
    }
    s->send = a->send == SHUNT_IN_PLACE ? s->blocks[comm->rank].recv : a->send;
    s->package = room = x->owned;
    s->package_bytes = package_bytes(comm, s, comm->rank);
    if (room)
        room += s->package_bytes;
    for (int i = 0; i < x->npeers; i++) {
        int peer = x->order[i];
        struct shunti_peer_state *peer_state = &x->peer_states[peer];

        if (peer_state->phase != SHUNTI_PHASE_FIRST) {
            peer_state->in[SHUNTI_PACKAGE].room = room;
            peer_state->in[SHUNTI_PACKAGE].bytes = package_bytes(comm, s, peer);
            room += peer_state->in[SHUNTI_PACKAGE].bytes;
            continue;
        }
        if (relays(comm, peer, comm->rank)) {
            peer_state->out[SHUNTI_PACKAGE].data = s->send;
            peer_state->out[SHUNTI_PACKAGE].bytes = s->blocks[comm->rank].bytes;
            peer_state->payload = s->blocks[comm->rank].bytes;
        }
        if (relays(comm, comm->rank, peer)) {
            peer_state->in[SHUNTI_PACKAGE].to = s->blocks[peer].recv;
            peer_state->in[SHUNTI_PACKAGE].bytes = s->blocks[peer].bytes;
        }
    }
}

SHUNTI_NOINLINE enum shunt_status
shunti_allgather_two_level(const struct shunti_coll *call, uint32_t signature,
                           const struct shunti_allgather *a,
                           struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const bool local = comm->local_size > 1;
    /* Each block is in the package of exactly one rank of this node. */
    const size_t bytes = local ? shunti_blocks_total(comm, &a->blocks) : 0;
    void *memory = local ? shunti_scratch_get(bytes) : NULL;
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st;

    *request = NULL;
    if (local && !memory)
        return shunti_request_no_memory(comm, &allgather_class, signature,
                                        bytes);
    st = shunti_allgather_create(
        call, &allgather_class, &allgatherv_class, &hooks, signature,
        SHUNTI_RAILS_FIRST, a,
        sizeof(*s) + (size_t)comm->nranks * sizeof(s->blocks[0]), request, &x);
    if (st) {
        shunti_scratch_put(comm, memory);
        return st;
    }
    x->owned = memory;
    fill(x, comm, a);
    return SHUNT_OK;
}
