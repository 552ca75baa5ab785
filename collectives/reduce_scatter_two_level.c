// SPDX-License-Identifier: Apache-2.0
/*
 * Reduce-scatter in two levels: a node's contributions to a rank of another
 * node are reduced inside the node and sent to that rank as one partial
 * (tree.h).
 *
 *     package to local peer c:  this rank's blocks for c, and for every rank of
 *                               another node whose rail peer c is, by rank
 *     package to rail peer d:   this node's partial for d, if this rank is the
 *                               rail peer of d
 */
#include <string.h>

#include "collectives/reduce_scatter.h"
#include "collectives/tree.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

struct state {
    const unsigned char *send;
    unsigned char *recv;
    enum shunt_dtype dtype;
    enum shunt_op op;
    void *partials;        /* this node's partials: first for this rank, then
                            * for rail peers */
    const void **operands; /* (nranks) the inputs of one sum */
    struct block {
        size_t at, bytes; /* offset in `send`; size */
    } blocks[];           /* (nranks) */
};

static struct state *state_of(const struct shunt_request *request)
{
    return shunti_two_level_of(request)->own;
}

/* True if `c`, a rank of this node, reduces this node's blocks for `r`. */
static bool adds(const struct shunt_comm *comm, int c, int r)
{
    return shunti_rail(comm, r, comm->node) == c;
}

static size_t partial_bytes(const struct state *s, int r)
{
    return s->blocks[r].bytes / shunt_dtype_size(s->dtype) *
           shunti_partial_size(s->dtype);
}

static size_t aligned(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

/* --- inside the node ------------------------------------------------------ */

/* The offset of the block for `r` in a package for this rank. */
static size_t offset_for(const struct shunt_comm *comm, const struct state *s,
                         int r)
{
    size_t at = 0;

    for (int i = 0; i < r; i++)
        if (adds(comm, comm->rank, i))
            at += s->blocks[i].bytes;
    return at;
}

/* Make this node's partial for `r`. Blocks are added in rank order. */
static void add_up(struct shunt_request *request,
                   const struct shunti_two_level *x, int r, void *to)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = state_of(request);
    const size_t at = offset_for(comm, s, r);
    int n = 0;

    for (int i = 0; i < comm->nranks; i++) {
        if (comm->peers[i].node != comm->node)
            continue;
        s->operands[n++] = i == comm->rank
                               ? s->send + s->blocks[r].at
                               : x->peer_states[i].in[SHUNTI_PACKAGE].at + at;
    }
    shunti_partial(to, s->operands, n,
                   s->blocks[r].bytes / shunt_dtype_size(s->dtype), s->dtype,
                   s->op);
}

static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    struct shunt_comm *comm = request->comm;
    struct state *s = x->own;
    size_t total = 0;
    unsigned char *to;

    for (int r = 0; r < comm->nranks; r++)
        if (adds(comm, comm->rank, r))
            total += aligned(partial_bytes(s, r));
    s->partials = shunti_scratch_get(total);
    if (!s->partials) {
        shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), total);
        return;
    }
    to = s->partials;
    add_up(request, x, comm->rank, to);
    to += aligned(partial_bytes(s, comm->rank));
    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_peer_state *peer_state = &x->peer_states[r];

        if (r == comm->rank || !adds(comm, comm->rank, r))
            continue;
        add_up(request, x, r, to);
        peer_state->out[SHUNTI_PACKAGE].data = to;
        peer_state->out[SHUNTI_PACKAGE].bytes = peer_state->payload =
            partial_bytes(s, r);
        to += aligned(peer_state->payload);
    }
}

/* --- between nodes -------------------------------------------------------- */

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = x->own;

    for (int node = 0; node < comm->nodes; node++)
        s->operands[node] =
            node == comm->node
                ? s->partials
                : x->peer_states[shunti_rail(comm, comm->rank, node)]
                      .in[SHUNTI_PACKAGE]
                      .at;
    shunti_join(s->recv, s->operands, comm->nodes,
                s->blocks[comm->rank].bytes / shunt_dtype_size(s->dtype),
                s->dtype, s->op, comm->nranks);
}

static const struct shunti_two_level_hooks hooks = {
    .turn = turn,
    .finish = finish,
};

static void cleanup(struct shunt_request *request)
{
    shunti_scratch_put(request->comm, state_of(request)->partials);
    shunti_two_level_cleanup(request);
}

static const struct shunti_class reduce_scatter_class = {
    .name = "reduce_scatter",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

static const struct shunti_class reduce_scatterv_class = {
    .name = "reduce_scatterv",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = cleanup,
};

/* --- the call ------------------------------------------------------------- */

/* Set the sizes of the packages that this rank receives from local peers, and
 * of the partials from rail peers. */
static void expect(struct shunti_two_level *x, const struct shunt_comm *comm)
{
    const struct state *s = x->own;
    const size_t whole = offset_for(comm, s, comm->nranks);

    for (int i = 0; i < x->npeers; i++) {
        const int peer = x->order[i];
        struct shunti_incoming *in = &x->peer_states[peer].in[SHUNTI_PACKAGE];

        if (comm->peers[peer].node == comm->node)
            in->bytes = whole;
        else if (shunti_rail(comm, comm->rank, comm->peers[peer].node) == peer)
            in->bytes = partial_bytes(s, comm->rank);
    }
}

/* Make the packages for local peers. */
static void pack(struct shunt_request *request, struct shunti_two_level *x)
{
    struct shunt_comm *comm = request->comm;
    const struct state *s = x->own;
    size_t total = 0;
    unsigned char *to;

    for (int r = 0; r < comm->nranks; r++)
        total += s->blocks[r].bytes;
    to = x->owned = shunti_scratch_get(total);
    if (!to) {
        shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), total);
        return;
    }
    for (int i = 0; i < comm->local_size; i++) {
        int local_peer = shunti_node_ranks(comm, comm->node)[i];
        struct shunti_outgoing *out =
            &x->peer_states[local_peer].out[SHUNTI_PACKAGE];

        if (local_peer == comm->rank)
            continue;
        out->data = to;
        for (int r = 0; r < comm->nranks; r++) {
            if (!adds(comm, local_peer, r) || !s->blocks[r].bytes)
                continue;
            shunti_copy_payload(to, s->send + s->blocks[r].at,
                                s->blocks[r].bytes);
            to += s->blocks[r].bytes;
            out->bytes += s->blocks[r].bytes;
        }
    }
}

SHUNTI_NOINLINE enum shunt_status shunti_reduce_scatter_two_level(
    const struct shunti_coll *call, uint32_t signature,
    const struct shunti_reduce_scatter *a, struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const bool v = signature >> 24 == SHUNTI_KIND_REDUCE_SCATTERV;
    const size_t n = (size_t)comm->nranks;
    struct shunti_two_level *x;
    size_t packed = 0;
    struct state *s;
    enum shunt_status st = shunti_two_level_create(
        call, v ? &reduce_scatterv_class : &reduce_scatter_class, &hooks,
        signature, SHUNTI_LOCALS_FIRST,
        sizeof(*s) + n * (sizeof(s->blocks[0]) + sizeof(*s->operands)), request,
        &x);

    if (st)
        return st;
    x->agreed = true;
    x->argument = v ? shunti_blocks_digest(comm, &a->blocks)
                    : a->blocks.count * shunt_dtype_size(a->blocks.dtype);
    s = x->own;
    s->send = a->send == SHUNT_IN_PLACE ? a->recv : a->send;
    s->recv = a->recv;
    s->dtype = a->blocks.dtype;
    s->op = a->op;
    s->operands = (const void **)(void *)(s->blocks + n);
    for (int r = 0; r < comm->nranks; r++)
        shunti_block_at(&a->blocks, r, &s->blocks[r].at, &s->blocks[r].bytes,
                        &packed);
    expect(x, comm);
    pack(*request, x);
    return SHUNT_OK;
}
