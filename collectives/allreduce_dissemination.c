// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce of small vectors by dissemination. The ranks of a node exchange
 * their vectors, and each makes the node's partial (tree.h). Then the partials
 * of all nodes are gathered in ceil(log2(nodes)) rounds (two_level.h): in round
 * k a rank sends its rail peer 2^k nodes behind the partials of its own node
 * and of the 2^k - 1 nodes before it. At the end every rank has all partials,
 * and combines them in the order of the nodes. So the bits are those of the
 * other algorithms. (Gathering in rounds: Bruck, Ho, Kipnis, Upfal, Weathersby,
 * 1997.)
 *
 *     package to local peer:  this rank's vector
 *     package to rail peer:   partials of this node, of the one before it, ...,
 *                             if this rank is the peer's rail peer
 */
#include "collectives/allreduce.h"
#include "collectives/coll_call.h"
#include "collectives/tree.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/wire/nodes.h"

struct state {
    struct shunti_allreduce call;
    size_t bytes; /* of one partial */
    /* (nodes * bytes) The partial of the node that is i nodes before this one is
     * at i * bytes. */
    unsigned char *partials;
    const void **operands; /* (nranks) the inputs of one sum */
};

static struct state *state_of(const struct shunti_two_level *x)
{
    return x->own;
}

/* When the vectors of all local peers have arrived: make the node's partial. */
static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = state_of(x);
    int n;

    if (x->complete != SHUNTI_PHASE_FIRST)
        return;
    n = shunti_two_level_locals(comm, x, s->call.send, s->operands);
    shunti_partial(s->partials, s->operands, n, s->call.count, s->call.dtype,
                   s->call.op);
}

/* In place, the result overwrites input that local peers may read until the
 * end. */
static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = state_of(x);

    for (int i = 0; i < comm->nodes; i++) {
        const int node = (comm->node + comm->nodes - i) % comm->nodes;

        s->operands[node] = s->partials + (size_t)i * s->bytes;
    }
    shunti_join(s->call.recv, s->operands, comm->nodes, s->call.count,
                s->call.dtype, s->call.op, comm->nranks);
}

static const struct shunti_two_level_hooks hooks = {.turn = turn,
                                                    .finish = finish};

static const struct shunti_class dissemination_class = {
    .name = "allreduce",
    .algorithm = "dissemination",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

static void fill_local(struct shunti_peer_state *peer_state,
                       const struct state *s)
{
    peer_state->out[SHUNTI_PACKAGE].data = s->call.send;
    peer_state->out[SHUNTI_PACKAGE].bytes = s->call.bytes;
    peer_state->in[SHUNTI_PACKAGE].bytes = s->call.bytes;
}

/* The partials that are sent to `peer` are made, or arrive, in earlier phases
 * than that in which they are sent. */
static void fill_rail(struct shunti_two_level *x, const struct shunt_comm *comm,
                      int peer)
{
    const struct state *s = state_of(x);
    struct shunti_peer_state *peer_state = &x->peer_states[peer];

    if (peer_state->send_phase &&
        shunti_rail(comm, peer, comm->node) == comm->rank) {
        const int distance = shunti_round_distance(x, peer_state->send_phase);
        struct shunti_outgoing *out = &peer_state->out[SHUNTI_PACKAGE];

        out->data = s->partials;
        out->bytes = (size_t)shunti_round_nodes(comm, distance) * s->bytes;
        peer_state->payload = out->bytes;
    }
    if (peer_state->phase &&
        shunti_rail(comm, comm->rank, comm->peers[peer].node) == peer) {
        const int distance = shunti_round_distance(x, peer_state->phase);
        struct shunti_incoming *in = &peer_state->in[SHUNTI_PACKAGE];

        in->to = s->partials + (size_t)distance * s->bytes;
        in->bytes = (size_t)shunti_round_nodes(comm, distance) * s->bytes;
    }
}

SHUNTI_NOINLINE enum shunt_status shunti_allreduce_dissemination(
    const struct shunti_coll *call, uint32_t signature,
    const struct shunti_allreduce *a, struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const size_t partial = a->count * shunti_partial_size(a->dtype);
    const size_t bytes = (size_t)comm->nodes * partial;
    const bool fits = partial <= PTRDIFF_MAX / (size_t)comm->nodes;
    void *memory = fits ? shunti_scratch_get(bytes) : NULL;
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st;

    *request = NULL;
    if (!memory)
        return shunti_request_no_memory(comm, &dissemination_class, signature,
                                        bytes);
    st = shunti_two_level_create(
        call, &dissemination_class, &hooks, signature,
        SHUNTI_LOCALS_THEN_ROUNDS,
        sizeof(*s) + (size_t)comm->nranks * sizeof(*s->operands), request, &x);
    if (st) {
        shunti_scratch_put(comm, memory);
        return st;
    }
    x->agreed = true;
    x->argument = a->bytes;
    x->owned = memory;
    s = state_of(x);
    s->call = *a;
    s->bytes = partial;
    s->partials = memory;
    s->operands = (const void **)(void *)(s + 1);
    for (int i = 0; i < x->npeers; i++)
        if (comm->peers[x->order[i]].node == comm->node)
            fill_local(&x->peer_states[x->order[i]], s);
        else
            fill_rail(x, comm, x->order[i]);
    return SHUNT_OK;
}
