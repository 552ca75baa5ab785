// SPDX-License-Identifier: Apache-2.0
/*
 * Reduce: gradients of copies go home, along the paths of expert_traffic.h in
 * reverse. The copies of a node send them to their relay. The relay adds them
 * up, and sends the sum to the home.
 *
 *     package to local peer:  this rank's gradients of experts that the peer
 *                             relays, or whose home the peer is
 *     package to rail peer:   this node's partial sums of the peer's experts
 *
 * The order of the additions is that of all sums (collectives/tree.h): first
 * over the ranks of a node, ascending and with the home among them, then over
 * the nodes.
 */
#include <stdio.h>

#include "collectives/tree.h"
#include "moe/state/state_call.h"
#include "src/base/fnv.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/kernels/reduce.h"
#include "src/trace/track.h"
#include "src/wire/nodes.h"

static bool is_local(const struct shunt_comm *comm, int rank)
{
    return comm->peers[rank].node == comm->node;
}

static size_t elements(const struct shunti_state_own *own, size_t bytes)
{
    return bytes / shunti_dtype_bytes(own->dtype);
}

/* Bytes of a packed partial sum of an expert. */
static size_t partial_bytes(const struct shunti_state_own *own)
{
    return elements(own, own->state.bytes) * shunti_partial_size(own->dtype);
}

/* --- what is added ------------------------------------------------------------------ */

/* own->more has pointers to the operands of a sum: (nranks) pointers to
 * gradients of ranks, then (nodes) pointers to partial sums of nodes. Behind
 * these is memory for a partial sum of this node. */
static const void **operands_of(const struct shunti_state_own *own)
{
    return own->more;
}

/* Find the gradients of an expert's part of array `i` on the ranks of this
 * node. `at` is the offset of that part in the packed state. Returns the number
 * of gradients. */
static int gather(const struct shunt_request *request, int32_t expert, int i,
                  size_t at)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_two_level *x = shunti_two_level_of(request);
    const struct shunti_state_own *own = x->own;
    int n = 0;

    for (int r = 0; r < comm->nranks; r++) {
        size_t place;

        if (!is_local(comm, r))
            continue;
        if (r == comm->rank) {
            if (shunti_state_has(&own->state, expert))
                operands_of(own)[n++] = shunti_state_at(&own->state, expert, i);
            continue;
        }
        place = shunti_traffic_find(&own->traffic.in, r, expert);
        if (place != SIZE_MAX)
            operands_of(own)[n++] = x->peer_states[r].in[SHUNTI_PACKAGE].at +
                                    place * own->state.bytes + at;
    }
    return n;
}

/* Make this node's partial sums of an expert, packed. */
static void add_node(const struct shunt_request *request, int32_t expert,
                     unsigned char *to)
{
    const struct shunti_state_own *own = shunti_state_own(request);
    size_t at = 0;

    for (int i = 0; i < own->state.arrays; i++) {
        const size_t bytes = own->state.array[i].bytes;
        const size_t count = elements(own, bytes);
        const int n = gather(request, expert, i, at);

        shunti_partial(to, operands_of(own), n, count, own->dtype, SHUNT_SUM);
        to += count * shunti_partial_size(own->dtype);
        at += bytes;
    }
}

/* Find the partial sums of an expert in the order of the nodes. `ours` is this
 * node's partial sum. Returns the number of sums. */
static int gather_nodes(const struct shunt_request *request, int32_t expert,
                        const unsigned char *ours, const void **nodes)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_two_level *x = shunti_two_level_of(request);
    const struct shunti_state_own *own = x->own;
    int n = 0;

    for (int node = 0; node < comm->nodes; node++) {
        const int relay = shunti_rail(comm, comm->rank, node);
        size_t place;

        if (node == comm->node) {
            nodes[n++] = ours;
            continue;
        }
        place = shunti_traffic_find(&own->traffic.in, relay, expert);
        if (place != SIZE_MAX)
            nodes[n++] = x->peer_states[relay].in[SHUNTI_PACKAGE].at +
                         place * partial_bytes(own);
    }
    return n;
}

/* Add up all gradients of an expert whose home is this rank, into the home's
 * gradients. */
static void add_up(const struct shunt_request *request, int32_t expert)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = shunti_state_own(request);
    const void **nodes = operands_of(own) + comm->nranks;
    unsigned char *ours = (unsigned char *)(nodes + comm->nodes);
    const int n = gather_nodes(request, expert, ours, nodes);
    size_t at = 0;

    if (n > 1)
        add_node(request, expert, ours);
    for (int i = 0; i < own->state.arrays; i++) {
        const size_t bytes = own->state.array[i].bytes;
        const size_t count = elements(own, bytes);
        unsigned char *to = shunti_state_at(&own->state, expert, i);

        if (n == 1) {
            const int ranks = gather(request, expert, i, at);

            if (ranks > 1 && count)
                shunti_reduce(to, operands_of(own), ranks, count, own->dtype,
                              SHUNT_SUM, 1);
        } else {
            shunti_join(to, nodes, n, count, own->dtype, SHUNT_SUM,
                        comm->nranks);
            for (int k = 0; k < n; k++)
                nodes[k] = (const unsigned char *)nodes[k] +
                           count * shunti_partial_size(own->dtype);
        }
        at += bytes;
    }
}

/* --- the operation ------------------------------------------------------------------- */

/* The gradients for `peer`, if they lie in memory as if packed; otherwise
 * NULL. */
static const void *as_they_lie(const struct shunti_state_own *own, int peer)
{
    const struct shunti_traffic_experts *out = &own->traffic.out;

    return shunti_state_in_one_piece(&own->state,
                                     out->expert + out->first[peer],
                                     shunti_traffic_count(out, peer));
}

static void begin(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const size_t each = own->state.bytes, partial = partial_bytes(own);
    const size_t most = each > partial ? each : partial;

    for (int r = 0; r < comm->nranks; r++) {
        const size_t first = own->traffic.out.first[r];
        const size_t out = shunti_traffic_count(&own->traffic.out, r);
        const size_t in = shunti_traffic_count(&own->traffic.in, r);
        struct shunti_peer_state *peer_state = &x->peer_states[r];

        if (!out && !in)
            continue;
        if (in && most)
            peer_state->in[SHUNTI_PACKAGE].room =
                own->in + own->traffic.in.first[r] * most;
        peer_state->in[SHUNTI_PACKAGE].bytes =
            in * (is_local(comm, r) ? each : partial);
        if (!is_local(comm, r))
            continue;
        peer_state->out[SHUNTI_PACKAGE].data = as_they_lie(own, r);
        peer_state->out[SHUNTI_PACKAGE].bytes = out * each;
        if (peer_state->out[SHUNTI_PACKAGE].data)
            continue;
        peer_state->out[SHUNTI_PACKAGE].data = own->out + first * most;
        for (size_t i = 0; i < out; i++)
            shunti_state_pack(&own->state, own->traffic.out.expert[first + i],
                              own->out + first * most + i * each);
    }
}

/* Make this node's partial sums for other nodes. The gradients of all copies on
 * this node have arrived. */
static void turn(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const size_t each = own->state.bytes, partial = partial_bytes(own);
    const size_t most = each > partial ? each : partial;

    for (int r = 0; r < comm->nranks; r++) {
        const size_t first = own->traffic.out.first[r];
        const size_t out = shunti_traffic_count(&own->traffic.out, r);
        struct shunti_peer_state *peer_state = &x->peer_states[r];

        if (is_local(comm, r) || !out)
            continue;
        for (size_t i = 0; i < out; i++)
            add_node(request, own->traffic.out.expert[first + i],
                     own->out + first * most + i * partial);
        peer_state->out[SHUNTI_PACKAGE].data = own->out + first * most;
        peer_state->out[SHUNTI_PACKAGE].bytes = peer_state->payload =
            out * partial;
    }
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const struct shunti_placement *p = own->placement;
    const int32_t *expert = shunti_placement_local(p, comm->rank);

    if (request->error)
        return;
    for (int i = 0; i < shunti_placement_count(p, comm->rank); i++)
        if (p->home[expert[i]] == comm->rank)
            add_up(request, expert[i]);
}

static const struct shunti_class class =
    SHUNTI_STATE_CLASS("moe_replicas_reduce", shunti_two_level_sent);

static const struct shunti_two_level_hooks hooks = {
    .turn = turn,
    .finish = finish,
};

static const struct shunti_state_call reduce = {
    .name = "moe_replicas_reduce",
    .kind = SHUNTI_KIND_MOE_REDUCE,
    .class = &class,
    .hooks = &hooks,
    .phases = SHUNTI_LOCALS_FIRST,
    .begin = begin,
};

static enum shunt_status call(struct shunt_moe *moe,
                              const struct shunt_moe_state *state,
                              enum shunt_dtype dtype, bool start,
                              struct shunt_request **request)
{
    struct shunti_state_attempt attempt;
    struct shunti_state_own *own = &attempt.own;
    struct shunti_expert_traffic traffic;
    size_t partial = 0, most;
    SHUNTI_TRACK(LIBRARY);

    if (!shunti_state_attempt(&attempt, &reduce, moe, start, request))
        return attempt.status;
    if (!attempt.status && dtype != SHUNT_F32 && dtype != SHUNT_BF16) {
        snprintf(attempt.why, sizeof(attempt.why),
                 "dtype is %s; gradients are f32 or bf16",
                 shunti_dtype_name(dtype));
        attempt.status = SHUNT_ERR_INVALID;
    }
    own->dtype = dtype;
    shunti_state_attempt_copies(&attempt, state, shunti_dtype_bytes(dtype));
    traffic = own->traffic;
    own->traffic =
        (struct shunti_expert_traffic){.out = traffic.in, .in = traffic.out};
    attempt.digest = shunti_fnv(attempt.digest, &dtype, sizeof(dtype));
    if (!attempt.status) {
        partial = partial_bytes(own);
        own->more_bytes = (size_t)(attempt.moe->nranks + attempt.moe->nodes) *
                              sizeof(void *) +
                          partial;
    }
    most = partial > own->state.bytes ? partial : own->state.bytes;
    return shunti_state_launch(&attempt, most, most);
}

enum shunt_status
shunt_moe_replicas_reduce(struct shunt_moe *moe,
                          const struct shunt_moe_state *gradients,
                          enum shunt_dtype dtype)
{
    return call(moe, gradients, dtype, false, NULL);
}

enum shunt_status shunt_moe_replicas_reduce_start(
    struct shunt_moe *moe, const struct shunt_moe_state *gradients,
    enum shunt_dtype dtype, struct shunt_request **request)
{
    return call(moe, gradients, dtype, true, request);
}
