// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce in two levels. The vector is cut into as many segments as the
 * smallest node has ranks. The ranks with local index l, one of each node, form
 * *lane* l, and reduce segment l:
 *
 *     package to local peer:     this rank's input of the peer's segment
 *     package to rail peer:      the node's partial of this rank's segment
 *                                (tree.h), if the peer is in the same lane
 *     late block to local peer:  this rank's segment of the result
 *
 * So a rank in a lane sends the partial of its segment once to each other node.
 *
 * For small vectors fewer phases are better. Every rank gets the whole vector
 * of every local peer. From its rail peer on each other node it gets that
 * node's partial of the whole vector.
 */
#include <string.h>

#include "collectives/allreduce.h"
#include "collectives/coll_call.h"
#include "collectives/tree.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

/* Segments start at multiples of a cache line. */
#define LINE 64

struct state {
    struct shunti_allreduce call;
    bool whole;            /* the variant for small vectors */
    int lanes;             /* number of segments */
    size_t at, bytes;      /* this rank's segment; 0 bytes: this rank is in no
                              lane */
    void *partial;         /* this node's partial of that segment */
    const void **operands; /* (nranks) the inputs of one sum */
};

static struct state *state_of(const struct shunt_request *request)
{
    return shunti_two_level_of(request)->own;
}

/* Find the segment of the ranks with local index `local`. Returns its bytes. */
static size_t segment(const struct state *s, int local, size_t *offset)
{
    const size_t lanes = (size_t)s->lanes, l = (size_t)local;
    const size_t lines = s->call.bytes / LINE + (s->call.bytes % LINE != 0);
    size_t begin = l * lines / lanes * LINE,
           end = (l + 1) * lines / lanes * LINE;

    *offset = 0;
    if (s->whole)
        return s->call.bytes;
    if (local >= s->lanes)
        return 0;
    *offset = begin;
    return (end < s->call.bytes ? end : s->call.bytes) - begin;
}

/* True if `from` sends its node's partial to `peer`, a rank of another node. */
static bool gets(const struct shunt_comm *comm, const struct state *s, int from,
                 int peer)
{
    if (s->whole)
        return shunti_rail(comm, peer, comm->peers[from].node) == from;
    return comm->peers[peer].local == comm->peers[from].local &&
           comm->peers[peer].local < s->lanes;
}

/* Bytes of the partial of this rank's segment. */
static size_t partial_bytes(const struct state *s)
{
    return s->bytes / shunt_dtype_size(s->call.dtype) *
           shunti_partial_size(s->call.dtype);
}

static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    struct shunt_comm *comm = request->comm;
    struct state *s = x->own;
    const size_t count = s->bytes / shunt_dtype_size(s->call.dtype);
    const size_t bytes = partial_bytes(s);
    int n = 0;

    s->partial = shunti_scratch_get(bytes);
    if (!s->partial) {
        shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), bytes);
        return;
    }
    for (int i = 0; i < comm->nranks; i++)
        if (comm->peers[i].node == comm->node)
            s->operands[n++] = i == comm->rank
                                   ? s->call.send + s->at
                                   : x->peer_states[i].in[SHUNTI_PACKAGE].at;
    shunti_partial(s->partial, s->operands, n, count, s->call.dtype,
                   s->call.op);
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (peer_state->phase != SHUNTI_PHASE_SECOND ||
            !gets(comm, s, comm->rank, x->order[i]))
            continue;
        peer_state->out[SHUNTI_PACKAGE].data = s->partial;
        peer_state->out[SHUNTI_PACKAGE].bytes = peer_state->payload = bytes;
    }
}

/* The rank that sends this rank the partial of `node`. Call this only if this
 * rank is in a lane. */
static int bringer(const struct shunt_comm *comm, const struct state *s,
                   int node)
{
    if (s->whole)
        return shunti_rail(comm, comm->rank, node);
    return shunti_node_ranks(comm, node)[comm->local_rank];
}

static void join(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = x->own;

    if (!s->bytes)
        return;
    for (int node = 0; node < comm->nodes; node++)
        s->operands[node] =
            node == comm->node
                ? s->partial
                : x->peer_states[bringer(comm, s, node)].in[SHUNTI_PACKAGE].at;
    shunti_join(s->call.recv + s->at, s->operands, comm->nodes,
                s->bytes / shunt_dtype_size(s->call.dtype), s->call.dtype,
                s->call.op, comm->nranks);
}

/* In place, the result overwrites input that local peers may still be reading.
 * So the result is written in finish(), when all peers have read the input. */
static const struct shunti_two_level_hooks whole_hooks = {
    .turn = turn,
    .finish = join,
};

/* In place, the result can be written early. No other rank reads this rank's
 * segment of its own input. A local peer's result implies that the peer has
 * read this rank's input of the peer's segment. */
static const struct shunti_two_level_hooks lane_hooks = {
    .turn = turn,
    .ready = join,
};

static void cleanup(struct shunt_request *request)
{
    shunti_scratch_put(request->comm, state_of(request)->partial);
    shunti_two_level_cleanup(request);
}

static const struct shunti_class two_level_class = {
    .name = "allreduce",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

static int smallest_node(const struct shunt_comm *comm)
{
    int least = comm->nranks;

    for (int node = 0; node < comm->nodes; node++)
        if (shunti_node_size(comm, node) < least)
            least = shunti_node_size(comm, node);
    return least;
}

static void fill(struct shunti_two_level *x, const struct shunt_comm *comm)
{
    struct state *s = x->own;

    for (int i = 0; i < comm->local_size; i++) {
        int local_peer = shunti_node_ranks(comm, comm->node)[i];
        struct shunti_peer_state *peer_state = &x->peer_states[local_peer];
        size_t at, bytes = segment(s, i, &at);

        if (local_peer == comm->rank)
            continue;
        peer_state->out[SHUNTI_PACKAGE].data = s->call.send + at;
        peer_state->out[SHUNTI_PACKAGE].bytes = bytes;
        peer_state->in[SHUNTI_PACKAGE].bytes = s->bytes;
        if (s->whole)
            continue;
        peer_state->out[SHUNTI_BLOCK].data = s->call.recv + s->at;
        peer_state->out[SHUNTI_BLOCK].bytes = s->bytes;
        peer_state->in[SHUNTI_BLOCK].to = s->call.recv + at;
        peer_state->in[SHUNTI_BLOCK].bytes = bytes;
    }
    for (int node = 0; node < comm->nodes && s->bytes; node++)
        if (node != comm->node)
            x->peer_states[bringer(comm, s, node)].in[SHUNTI_PACKAGE].bytes =
                partial_bytes(s);
}

SHUNTI_NOINLINE enum shunt_status
shunti_allreduce_two_level(const struct shunti_coll *call, uint32_t signature,
                           const struct shunti_allreduce *a, bool whole,
                           struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st = shunti_two_level_create(
        call, &two_level_class, whole ? &whole_hooks : &lane_hooks, signature,
        SHUNTI_LOCALS_FIRST,
        sizeof(*s) + (size_t)comm->nranks * sizeof(*s->operands), request, &x);

    if (st)
        return st;
    x->agreed = true;
    x->argument = a->bytes;
    x->late = !whole;
    s = x->own;
    s->call = *a;
    s->whole = whole;
    s->lanes = smallest_node(comm);
    s->operands = (const void **)(void *)(s + 1);
    s->bytes = segment(s, comm->local_rank, &s->at);
    fill(x, comm);
    return SHUNT_OK;
}
