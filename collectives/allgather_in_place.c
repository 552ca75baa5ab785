// SPDX-License-Identifier: Apache-2.0
/*
 * All-gather of large blocks in two levels. As in allgather_two_level.c, every
 * block is sent once to each other node, to the rail peer of its rank there.
 * But nothing is packed: a block arrives in the result of the rail peer, and
 * the local peers copy it from there to their own results.
 *
 *     to rail peer:   this rank's block
 *     to local peer:  this rank's block, as the package; and, late, the blocks
 *                     of the ranks whose rail peer this rank is: in its result,
 *                     or packed in rank order if that is not readable
 *
 * All ranks have the same result, so a local peer knows the offset of each
 * block in it. A rank whose displacements leave gaps offers a copy without
 * gaps.
 */
#include "collectives/allgather.h"
#include "collectives/allgather_create.h"
#include "collectives/coll_state.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/payload_protocol.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

/* The most parts that an ack can count (two_level.h). */
#define PARTS_MAX 255

struct state {
    const void *send;
    size_t largest;        /* bytes of the largest block */
    unsigned char *result; /* all blocks in order, without gaps */
    bool gaps; /* the caller's result has gaps, so local peers read `scratch` */
    unsigned char *scratch; /* the forwarded blocks, at the offsets `at`; or
                               NULL */
    unsigned char *packed;  /* the forwarded blocks, for local peers that cannot
                             * read `result`; or NULL */
    struct block {
        unsigned char *recv;
        size_t bytes, at; /* at: offset in `result` */
        struct cursor {
            size_t part;
            int rank;
        } cursor; /* what to copy next of the blocks that the rank of this entry
                     forwards */
    } blocks[];   /* (nranks) */
};

bool shunti_allgather_in_place_suits(const struct shunt_comm *comm,
                                     size_t total)
{
    return total / (size_t)comm->nranks >= shunti_coll_state(comm)->in_place;
}

/* The next rank, from `r` on, whose block rank `c` forwards to its node; nranks
 * if there is none. */
static int next_relayed(const struct shunt_comm *comm, const struct state *s,
                        int c, int r)
{
    const int node = comm->peers[c].node;

    while (r < comm->nranks &&
           (comm->peers[r].node == node || !s->blocks[r].bytes ||
            shunti_rail(comm, r, node) != c))
        r++;
    return r;
}

static size_t relayed_bytes(const struct shunt_comm *comm,
                            const struct state *s, int c)
{
    size_t bytes = 0;

    for (int r = next_relayed(comm, s, c, 0); r < comm->nranks;
         r = next_relayed(comm, s, c, r + 1))
        bytes += s->blocks[r].bytes;
    return bytes;
}

/* --- blocks for local peers ----------------------------------------------- */

static void *scratch(struct shunt_request *request, size_t bytes)
{
    void *memory = shunti_scratch_get(bytes);

    if (!memory)
        shunti_comm_fail(request->comm, SHUNT_ERR_MEMORY, request->comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), bytes);
    return memory;
}

/* Offer the blocks that this rank forwards, which have not arrived yet. */
static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    struct shunt_comm *comm = request->comm;
    const size_t relayed = relayed_bytes(comm, x->own, comm->rank);
    struct state *s = x->own;

    if (s->gaps && relayed) {
        s->result = s->scratch = scratch(request, x->in_place);
        if (!s->result)
            return;
    }
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_outgoing *out =
            &x->peer_states[x->order[i]].out[SHUNTI_BLOCK];

        if (x->peer_states[x->order[i]].phase != SHUNTI_PHASE_SECOND ||
            !relayed)
            continue;
        out->in_place =
            shunti_readable(comm, x->order[i], s->result, x->in_place);
        if (!out->in_place && !s->packed)
            s->packed = scratch(request, relayed);
        out->data = out->in_place ? s->result : s->packed;
        out->bytes = out->in_place ? x->in_place : relayed;
        if (!out->data)
            return;
    }
}

/* Count the parts that have arrived of every block that this rank forwards. */
static size_t parts(const struct shunti_two_level *x)
{
    const struct state *s = x->own;
    size_t least = SIZE_MAX;

    for (int i = 0; i < x->npeers; i++) {
        const struct shunti_peer_state *peer_state =
            &x->peer_states[x->order[i]];
        const struct shunti_incoming *in = &peer_state->in[SHUNTI_BLOCK];
        const struct shunti_zcopy *z = peer_state->zcopy[SHUNTI_BLOCK];
        size_t n = in->source.done / x->part;

        if (peer_state->phase != SHUNTI_PHASE_FIRST ||
            in->state != SHUNTI_INCOMING_OPEN)
            continue;
        if (in->source.way == SHUNTI_WAY_ZCOPY)
            n = z ? shunti_zcopy_arrived_parts(z) : 0;
        if (n > in->bytes / x->part) /* the peer's count is wrong */
            n = 0;
        least = n < least ? n : least;
    }
    return s->scratch ? 0 : least;
}

/* Copy the blocks that this rank forwards to `scratch` and `packed`, if these
 * are used. All of the blocks have arrived in the caller's result. */
static void ready(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct state *s = x->own;
    unsigned char *to = s->packed;

    for (int r = next_relayed(comm, s, comm->rank, 0); r < comm->nranks;
         r = next_relayed(comm, s, comm->rank, r + 1)) {
        const struct block *b = &s->blocks[r];

        if (s->scratch)
            shunti_copy_payload(s->scratch + b->at, b->recv, b->bytes);
        if (s->packed) {
            shunti_copy_payload(to, b->recv, b->bytes);
            to += b->bytes;
        }
    }
}

/* Copy part by part: one part of each block, then the next part of each. */
static bool take_parts(struct shunt_request *request,
                       struct shunti_two_level *x, int peer, size_t parts)
{
    const struct shunt_comm *comm = request->comm;
    struct shunti_source *source =
        &x->peer_states[peer].in[SHUNTI_BLOCK].source;
    struct state *s = x->own;
    struct cursor *at = &s->blocks[peer].cursor;

    for (; at->part < parts && at->part * x->part < s->largest; at->part++) {
        const size_t from = at->part * x->part;

        for (at->rank = next_relayed(comm, s, peer, at->rank);
             at->rank < comm->nranks;
             at->rank = next_relayed(comm, s, peer, at->rank + 1)) {
            const struct block *b = &s->blocks[at->rank];
            const size_t rest = b->bytes > from ? b->bytes - from : 0;

            if (rest && !shunti_source_pull_part(
                            request, peer, source, b->at + from,
                            rest < x->part ? rest : x->part, b->recv + from))
                return false;
        }
        at->rank = 0;
    }
    return at->part * x->part >= s->largest;
}

static void unpack(struct shunt_request *request, struct shunti_two_level *x,
                   int peer)
{
    const struct shunt_comm *comm = request->comm;
    const unsigned char *at = x->peer_states[peer].in[SHUNTI_BLOCK].to;
    const struct state *s = x->own;

    for (int r = next_relayed(comm, s, peer, 0); r < comm->nranks;
         r = next_relayed(comm, s, peer, r + 1)) {
        shunti_copy_payload(s->blocks[r].recv, at, s->blocks[r].bytes);
        at += s->blocks[r].bytes;
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
    .turn = turn,
    .ready = ready,
    .parts = parts,
    .take_parts = take_parts,
    .unpack = unpack,
    .finish = finish,
};

/* Bytes sent to a peer. A local peer is offered the whole result, but copies
 * only some blocks of it. */
static size_t sent(const struct shunt_request *request, int peer)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_two_level *x = shunti_two_level_of(request);
    const struct state *s = x->own;

    if (x->peer_states[peer].phase != SHUNTI_PHASE_SECOND)
        return shunti_two_level_sent(request, peer);
    return s->blocks[comm->rank].bytes + relayed_bytes(comm, s, comm->rank);
}

static void cleanup(struct shunt_request *request)
{
    struct state *s = shunti_two_level_of(request)->own;

    shunti_scratch_put(request->comm, s->scratch);
    shunti_scratch_put(request->comm, s->packed);
    shunti_two_level_cleanup(request);
}

static const struct shunti_class allgather_class = {
    .name = "allgather",
    .algorithm = "two_level_in_place",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

static const struct shunti_class allgatherv_class = {
    .name = "allgatherv",
    .algorithm = "two_level_in_place",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

/* --- the call ------------------------------------------------------------- */

/* Fill in the address and the offset of each block. */
static void place_blocks(struct state *s, const struct shunt_comm *comm,
                         const struct shunti_allgather *a)
{
    size_t packed = 0, at;

    for (int r = 0; r < comm->nranks; r++) {
        struct block *b = &s->blocks[r];

        b->at = packed;
        shunti_block_at(&a->blocks, r, &at, &b->bytes, &packed);
        b->recv = b->bytes ? a->recv + at : NULL;
        s->gaps |= b->bytes && at != b->at;
        s->largest = b->bytes > s->largest ? b->bytes : s->largest;
    }
    s->send = a->send == SHUNT_IN_PLACE ? s->blocks[comm->rank].recv : a->send;
    s->result = a->recv;
}

static void fill(struct shunti_two_level *x, const struct shunt_comm *comm)
{
    const struct state *s = x->own;
    const struct block *own = &s->blocks[comm->rank];

    for (int i = 0; i < x->npeers; i++) {
        const int peer = x->order[i];
        const struct block *b = &s->blocks[peer];
        struct shunti_peer_state *peer_state = &x->peer_states[peer];
        const bool local = peer_state->phase == SHUNTI_PHASE_SECOND;
        const int k = local ? SHUNTI_PACKAGE : SHUNTI_BLOCK;

        if (local) /* size of the block if it is packed */
            peer_state->in[SHUNTI_BLOCK].bytes = relayed_bytes(comm, s, peer);
        if (local ||
            shunti_rail(comm, comm->rank, comm->peers[peer].node) == peer) {
            peer_state->out[k].data = s->send;
            peer_state->out[k].bytes = own->bytes;
        }
        if (local || shunti_rail(comm, peer, comm->node) == comm->rank) {
            peer_state->in[k].to = b->recv;
            peer_state->in[k].bytes = b->bytes;
        }
    }
}

SHUNTI_NOINLINE enum shunt_status
shunti_allgather_in_place(const struct shunti_coll *call, uint32_t signature,
                          const struct shunti_allgather *a,
                          struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st = shunti_allgather_create(
        call, &allgather_class, &allgatherv_class, &hooks, signature,
        SHUNTI_RAILS_FIRST, a,
        sizeof(*s) + (size_t)comm->nranks * sizeof(s->blocks[0]), request, &x);

    if (st)
        return st;
    s = x->own;
    x->late = true;
    x->in_place = shunti_blocks_total(comm, &a->blocks);
    place_blocks(s, comm, a);
    for (x->part = shunti_coll_state(comm)->part;
         s->largest / x->part > PARTS_MAX;)
        x->part *= 2;
    fill(x, comm);
    return SHUNT_OK;
}
