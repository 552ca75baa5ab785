// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce by recursive doubling, between a power of two of nodes. The ranks
 * of a node exchange their vectors, and each makes the node's partial (tree.h).
 * In round k = 0, 1, ... two nodes whose numbers differ in bit k exchange the
 * partials of the 2^k nodes around each, and combine them in the order of the
 * nodes. That is the order of tree.h, so the bits are those of the other
 * algorithms. (Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.)
 *
 *     package to local peer:  this rank's vector
 *     package to rail peer:   the partial so far, if this rank is the peer's
 *                             rail peer
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
    /* (rounds, bytes) What this rank sends in each round. It must stay until
     * the peer has it. */
    unsigned char *partials;
    const void **operands; /* (nranks) the inputs of this node */
};

static struct state *state_of(const struct shunti_two_level *x)
{
    return x->own;
}

static unsigned char *partial_of(const struct state *s, int round)
{
    return s->partials + (size_t)round * s->bytes;
}

/* Find the operands of a round, in the order of their nodes. */
static void operands_of(const struct shunt_comm *comm,
                        const struct shunti_two_level *x, int round,
                        const void *pair[2])
{
    const int upper = comm->node >> round & 1;
    const int peer = shunti_rail(comm, comm->rank, comm->node ^ 1 << round);

    pair[upper] = partial_of(state_of(x), round);
    pair[!upper] = x->peer_states[peer].in[SHUNTI_PACKAGE].at;
}

static void add_node(const struct shunt_comm *comm, struct shunti_two_level *x)
{
    struct state *s = state_of(x);
    const int n = shunti_two_level_locals(comm, x, s->call.send, s->operands);

    shunti_partial(partial_of(s, 0), s->operands, n, s->call.count,
                   s->call.dtype, s->call.op);
}

static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = state_of(x);
    const int round = x->complete - SHUNTI_PHASE_SECOND;
    const void *pair[2];

    if (round < 0) {
        add_node(comm, x);
        return;
    }
    operands_of(comm, x, round, pair);
    shunti_combine(partial_of(s, round + 1), pair, s->call.count, s->call.dtype,
                   s->call.op);
}

/* In place, the result overwrites input that local peers may read until the
 * end. */
static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct state *s = state_of(x);
    const void *pair[2];

    operands_of(comm, x, x->phases - SHUNTI_PHASE_SECOND, pair);
    shunti_join(s->call.recv, pair, 2, s->call.count, s->call.dtype, s->call.op,
                comm->nranks);
}

static const struct shunti_two_level_hooks hooks = {.turn = turn,
                                                    .finish = finish};

static const struct shunti_class doubling_class = {
    .name = "allreduce",
    .algorithm = "doubling",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

static void fill(struct shunti_two_level *x, const struct shunt_comm *comm,
                 int peer)
{
    const struct state *s = state_of(x);
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_outgoing *out = &peer_state->out[SHUNTI_PACKAGE];
    struct shunti_incoming *in = &peer_state->in[SHUNTI_PACKAGE];

    if (comm->peers[peer].node == comm->node) {
        out->data = s->call.send;
        out->bytes = in->bytes = s->call.bytes;
        return;
    }
    /* turn() makes the partial before the phase in which it is sent. */
    if (shunti_rail(comm, peer, comm->node) == comm->rank) {
        out->data = partial_of(s, peer_state->phase - SHUNTI_PHASE_SECOND);
        out->bytes = peer_state->payload = s->bytes;
    }
    if (shunti_rail(comm, comm->rank, comm->peers[peer].node) == peer)
        in->bytes = s->bytes;
}

SHUNTI_NOINLINE enum shunt_status
shunti_allreduce_doubling(const struct shunti_coll *call, uint32_t signature,
                          const struct shunti_allreduce *a,
                          struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const size_t partial = a->count * shunti_partial_size(a->dtype);
    struct shunti_two_level *x;
    struct state *s;
    size_t bytes = 0;
    bool fits = true;
    void *memory;
    enum shunt_status st;

    for (int distance = 1; distance < comm->nodes; distance *= 2)
        fits &= !__builtin_add_overflow(bytes, partial, &bytes);
    memory = fits ? shunti_scratch_get(bytes) : NULL;
    *request = NULL;
    if (!memory)
        return shunti_request_no_memory(comm, &doubling_class, signature,
                                        bytes);
    st = shunti_two_level_create(
        call, &doubling_class, &hooks, signature, SHUNTI_LOCALS_THEN_PAIRS,
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
        fill(x, comm, x->order[i]);
    return SHUNT_OK;
}
