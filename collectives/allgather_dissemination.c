// SPDX-License-Identifier: Apache-2.0
/*
 * All-gather of small blocks by dissemination, between nodes of equal size. The
 * blocks of the ranks with one local index are gathered in ceil(log2(nodes))
 * rounds (two_level.h): in round k a rank sends its rail peer 2^k nodes behind
 * the blocks of its own node and of the 2^k - 1 nodes before it. Then each rank
 * sends all of these blocks to its local peers. (Bruck, Ho, Kipnis, Upfal,
 * Weathersby, 1997.)
 *
 *     package to rail peer:   this rank's block, that of its rail peer on the
 *                             node before its own, and so on
 *     package to local peer:  the same, of all nodes
 */
#include "collectives/allgather.h"
#include "collectives/allgather_create.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/trace/track.h"
#include "src/wire/nodes.h"

struct state {
    /* Blocks of the ranks with this rank's local index: at offset at[i] that of
     * the node i nodes before this one. */
    unsigned char *gathered;
    size_t *at; /* (nodes + 1) */
    struct block {
        unsigned char *recv;
        size_t bytes;
    } blocks[]; /* (nranks) */
};

static struct state *state_of(const struct shunti_two_level *x)
{
    return x->own;
}

/* The rank with the local index of `rank` on the node i nodes before its own. */
static int rank_before(const struct shunt_comm *comm, int rank, int i)
{
    const int nodes = comm->nodes;
    const int node = (comm->peers[rank].node + nodes - i) % nodes;

    return shunti_node_ranks(comm, node)[comm->peers[rank].local];
}

/* Copy the blocks that `local`, a rank of this node, has gathered to their place
 * in the result. */
static void unpack(const struct shunt_comm *comm, const struct state *s,
                   int local, const unsigned char *package)
{
    for (int i = 0; i < comm->nodes; i++) {
        const struct block *block = &s->blocks[rank_before(comm, local, i)];

        if (block->bytes)
            shunti_copy_payload(block->recv, package, block->bytes);
        package += block->bytes;
    }
}

static bool arrived(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    const struct shunt_comm *comm = request->comm;

    /* The packages of rail peers are received in `gathered`. */
    if (comm->peers[peer].node == comm->node)
        unpack(comm, state_of(x), peer,
               x->peer_states[peer].in[SHUNTI_PACKAGE].at);
    return true;
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct state *s = state_of(x);

    unpack(request->comm, s, request->comm->rank, s->gathered);
}

static const struct shunti_two_level_hooks hooks = {.arrived = arrived,
                                                    .finish = finish};

#define DISSEMINATION(kind)                                                   \
    {                                                                         \
        .name = kind, .algorithm = "dissemination",                           \
        .step = shunti_two_level_step, .awaits = shunti_two_level_awaits,     \
        .sent = shunti_two_level_sent, .received = shunti_two_level_received, \
        .must_send = shunti_two_level_must_send,                              \
        .cleanup = shunti_two_level_cleanup,                                  \
    }

static const struct shunti_class allgather_class = DISSEMINATION("allgather");
static const struct shunti_class allgatherv_class = DISSEMINATION("allgatherv");

static void fill_blocks(struct state *s, const struct shunt_comm *comm,
                        const struct shunti_allgather *a)
{
    size_t packed = 0, at;

    for (int r = 0; r < comm->nranks; r++) {
        struct block *block = &s->blocks[r];

        shunti_block_at(&a->blocks, r, &at, &block->bytes, &packed);
        block->recv = block->bytes ? a->recv + at : NULL;
    }
    s->at[0] = 0;
    for (int i = 0; i < comm->nodes; i++)
        s->at[i + 1] =
            s->at[i] + s->blocks[rank_before(comm, comm->rank, i)].bytes;
}

/* The blocks that are sent to `peer` arrive before the phase in which they are
 * sent. */
static void fill_rail(struct shunti_two_level *x, const struct shunt_comm *comm,
                      int peer)
{
    const struct state *s = state_of(x);
    struct shunti_peer_state *peer_state = &x->peer_states[peer];

    if (peer_state->send_phase) {
        const int distance = shunti_round_distance(x, peer_state->send_phase);
        struct shunti_outgoing *out = &peer_state->out[SHUNTI_PACKAGE];

        out->data = s->gathered;
        out->bytes = s->at[shunti_round_nodes(comm, distance)];
        peer_state->payload = out->bytes;
    }
    if (peer_state->phase) {
        const int distance = shunti_round_distance(x, peer_state->phase);
        const int end = distance + shunti_round_nodes(comm, distance);
        struct shunti_incoming *in = &peer_state->in[SHUNTI_PACKAGE];

        in->to = s->gathered + s->at[distance];
        in->bytes = s->at[end] - s->at[distance];
    }
}

/* The package of `peer` is received at `room`. Returns its size. */
static size_t fill_local(struct shunti_two_level *x,
                         const struct shunt_comm *comm, int peer,
                         unsigned char *room)
{
    const struct state *s = state_of(x);
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_incoming *in = &peer_state->in[SHUNTI_PACKAGE];

    peer_state->out[SHUNTI_PACKAGE].data = s->gathered;
    peer_state->out[SHUNTI_PACKAGE].bytes = s->at[comm->nodes];
    in->room = room;
    for (int i = 0; i < comm->nodes; i++)
        in->bytes += s->blocks[rank_before(comm, peer, i)].bytes;
    return in->bytes;
}

static void fill(struct shunti_two_level *x, const struct shunt_comm *comm,
                 const struct shunti_allgather *a)
{
    struct state *s = state_of(x);
    const struct block *own = &s->blocks[comm->rank];
    unsigned char *room;

    s->gathered = x->owned;
    s->at = (size_t *)(void *)(s->blocks + comm->nranks);
    fill_blocks(s, comm, a);
    room = s->gathered + s->at[comm->nodes];
    if (own->bytes)
        shunti_copy_payload(s->gathered,
                            a->send == SHUNT_IN_PLACE ? own->recv : a->send,
                            own->bytes);
    for (int i = 0; i < x->npeers; i++)
        if (comm->peers[x->order[i]].node == comm->node)
            room += fill_local(x, comm, x->order[i], room);
        else
            fill_rail(x, comm, x->order[i]);
}

SHUNTI_NOINLINE enum shunt_status shunti_allgather_dissemination(
    const struct shunti_coll *call, uint32_t signature,
    const struct shunti_allgather *a, struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    /* Each block is in the package of exactly one rank of this node. */
    const size_t bytes = shunti_blocks_total(comm, &a->blocks);
    void *memory = shunti_scratch_get(bytes);
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st;

    *request = NULL;
    if (!memory)
        return shunti_request_no_memory(comm, &allgather_class, signature,
                                        bytes);
    st = shunti_allgather_create(
        call, &allgather_class, &allgatherv_class, &hooks, signature,
        SHUNTI_ROUNDS_THEN_LOCALS, a,
        sizeof(*s) + (size_t)comm->nranks * sizeof(s->blocks[0]) +
            ((size_t)comm->nodes + 1) * sizeof(*s->at),
        request, &x);
    if (st) {
        shunti_scratch_put(comm, memory);
        return st;
    }
    x->owned = memory;
    fill(x, comm, a);
    return SHUNT_OK;
}
