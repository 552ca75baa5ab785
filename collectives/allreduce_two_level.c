// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce in two levels. The vector is cut into as many segments as the
 * smallest node has ranks. The ranks with local index l, one of each node, form
 * *lane* l, and reduce segment l. LANES:
 *
 *     package to local peer:     this rank's input of the peer's segment
 *     package to rail peer:      the node's partial of this rank's segment
 *                                (tree.h), if the peer is in the same lane
 *     late block to local peer:  this rank's segment of the result
 *
 * So a rank in a lane sends the partial of its segment once to each other node.
 *
 * SHARDS, for large vectors of three nodes or more: each segment is cut into a
 * *shard* for each node. A rank reduces only its node's shard of its segment,
 * and gets the other shards from the rest of its lane (Rabenseifner, 2004, with
 * messages to all ranks of the lane at once). So a node sends 2 (N - 1) / N
 * times the vector, where lanes send it N - 1 times.
 *
 *     package to rail peer:      the node's partial of the peer's shard
 *     late block to rail peer:   this rank's shard of the result
 *
 * WHOLE, for small vectors, where fewer phases are better: every rank gets the
 * whole vector of every local peer. From its rail peer on each other node it
 * gets that node's partial of the whole vector.
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
    enum shunti_algorithm variant;
    int lanes;              /* number of segments */
    size_t at, bytes;       /* this rank's segment; 0 bytes: this rank is in no
                              lane */
    unsigned char *partial; /* this node's partial of that segment */
    const void **operands;  /* (nranks) the inputs of one sum */
};

static struct state *state_of(const struct shunt_request *request)
{
    return shunti_two_level_of(request)->own;
}

/* Cut `bytes` into `n` pieces that begin at cache lines. Returns the bytes of
 * piece i. */
static size_t cut(size_t bytes, size_t n, size_t i, size_t *offset)
{
    const size_t lines = bytes / LINE + (bytes % LINE != 0);
    const size_t begin = i * lines / n * LINE, end = (i + 1) * lines / n * LINE;

    *offset = begin;
    return (end < bytes ? end : bytes) - begin;
}

/* Find the segment of the ranks with local index `local`. Returns its bytes. */
static size_t segment(const struct state *s, int local, size_t *offset)
{
    *offset = 0;
    if (s->variant == SHUNTI_ALLREDUCE_WHOLE)
        return s->call.bytes;
    if (local >= s->lanes)
        return 0;
    return cut(s->call.bytes, (size_t)s->lanes, (size_t)local, offset);
}

/* Find the part of this rank's segment that a node's rank in this lane reduces.
 * Returns its bytes. The offset is that in the segment. */
static size_t shard(const struct shunt_comm *comm, const struct state *s,
                    int node, size_t *offset)
{
    if (s->variant == SHUNTI_ALLREDUCE_SHARDS)
        return cut(s->bytes, (size_t)comm->nodes, (size_t)node, offset);
    *offset = 0;
    return s->bytes;
}

/* Bytes of the partial of so many bytes of the vector. */
static size_t partial_bytes(const struct state *s, size_t bytes)
{
    return bytes / shunt_dtype_size(s->call.dtype) *
           shunti_partial_size(s->call.dtype);
}

/* True if `from` sends its node's partial to `peer`, a rank of another node. */
static bool gets(const struct shunt_comm *comm, const struct state *s, int from,
                 int peer)
{
    if (s->variant == SHUNTI_ALLREDUCE_WHOLE)
        return shunti_rail(comm, peer, comm->peers[from].node) == from;
    return comm->peers[peer].local == comm->peers[from].local &&
           comm->peers[peer].local < s->lanes;
}

static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    struct shunt_comm *comm = request->comm;
    struct state *s = x->own;
    const size_t count = s->bytes / shunt_dtype_size(s->call.dtype);
    const size_t bytes = partial_bytes(s, s->bytes);
    int n;

    s->partial = shunti_scratch_get(bytes);
    if (!s->partial) {
        shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), bytes);
        return;
    }
    n = shunti_two_level_locals(comm, x, s->call.send + s->at, s->operands);
    shunti_partial(s->partial, s->operands, n, count, s->call.dtype,
                   s->call.op);
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];
        size_t at, length;

        if (peer_state->phase != SHUNTI_PHASE_SECOND ||
            !gets(comm, s, comm->rank, x->order[i]))
            continue;
        length = shard(comm, s, comm->peers[x->order[i]].node, &at);
        peer_state->out[SHUNTI_PACKAGE].data =
            s->partial + partial_bytes(s, at);
        peer_state->out[SHUNTI_PACKAGE].bytes = peer_state->payload =
            partial_bytes(s, length);
    }
}

/* The rank that sends this rank the partial of `node`. Call this only if this
 * rank is in a lane. */
static int bringer(const struct shunt_comm *comm, const struct state *s,
                   int node)
{
    if (s->variant == SHUNTI_ALLREDUCE_WHOLE)
        return shunti_rail(comm, comm->rank, node);
    return shunti_node_ranks(comm, node)[comm->local_rank];
}

static void join(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = x->own;
    size_t at, bytes;

    if (!s->bytes)
        return;
    bytes = shard(comm, s, comm->node, &at);
    for (int node = 0; node < comm->nodes; node++)
        s->operands[node] =
            node == comm->node
                ? s->partial + partial_bytes(s, at)
                : x->peer_states[bringer(comm, s, node)].in[SHUNTI_PACKAGE].at;
    shunti_join(s->call.recv + s->at + at, s->operands, comm->nodes,
                bytes / shunt_dtype_size(s->call.dtype), s->call.dtype,
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

static const struct shunti_two_level_hooks shard_hooks = {
    .turn = turn,
    .rails_ready = join,
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

static void fill_locals(struct shunti_two_level *x,
                        const struct shunt_comm *comm)
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
        if (!x->late)
            continue;
        peer_state->out[SHUNTI_BLOCK].data = s->call.recv + s->at;
        peer_state->out[SHUNTI_BLOCK].bytes = s->bytes;
        peer_state->in[SHUNTI_BLOCK].to = s->call.recv + at;
        peer_state->in[SHUNTI_BLOCK].bytes = bytes;
    }
}

/* turn() fills in the packages for rail peers. */
static void fill_rails(struct shunti_two_level *x,
                       const struct shunt_comm *comm)
{
    struct state *s = x->own;
    unsigned char *result = s->call.recv + s->at;
    size_t own_at, at, own, bytes;

    if (!s->bytes)
        return;
    own = shard(comm, s, comm->node, &own_at);
    for (int node = 0; node < comm->nodes; node++) {
        struct shunti_peer_state *peer_state =
            &x->peer_states[bringer(comm, s, node)];

        if (node == comm->node)
            continue;
        peer_state->in[SHUNTI_PACKAGE].bytes = partial_bytes(s, own);
        if (!x->late_rails)
            continue;
        bytes = shard(comm, s, node, &at);
        peer_state->out[SHUNTI_BLOCK].data = result + own_at;
        peer_state->out[SHUNTI_BLOCK].bytes = own;
        peer_state->in[SHUNTI_BLOCK].to = result + at;
        peer_state->in[SHUNTI_BLOCK].bytes = bytes;
    }
}

SHUNTI_NOINLINE enum shunt_status
shunti_allreduce_two_level(const struct shunti_coll *call, uint32_t signature,
                           const struct shunti_allreduce *a,
                           enum shunti_algorithm variant,
                           struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const struct shunti_two_level_hooks *hooks =
        variant == SHUNTI_ALLREDUCE_WHOLE   ? &whole_hooks
        : variant == SHUNTI_ALLREDUCE_LANES ? &lane_hooks
                                            : &shard_hooks;
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st = shunti_two_level_create(
        call, &two_level_class, hooks, signature, SHUNTI_LOCALS_FIRST,
        sizeof(*s) + (size_t)comm->nranks * sizeof(*s->operands), request, &x);

    if (st)
        return st;
    x->agreed = true;
    x->argument = a->bytes;
    x->late = variant != SHUNTI_ALLREDUCE_WHOLE;
    x->late_rails = variant == SHUNTI_ALLREDUCE_SHARDS;
    s = x->own;
    s->call = *a;
    s->variant = variant;
    s->lanes = smallest_node(comm);
    s->operands = (const void **)(void *)(s + 1);
    s->bytes = segment(s, comm->local_rank, &s->at);
    fill_locals(x, comm);
    fill_rails(x, comm);
    return SHUNT_OK;
}
