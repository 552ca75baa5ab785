// SPDX-License-Identifier: Apache-2.0
/*
 * Refresh: copies of experts get the state of their homes, along the paths of
 * expert_traffic.h. A home sends the state to its relays on other nodes, and
 * each relay sends it to the copies on its node. Notes carry at most a table,
 * and are sent at once. So later calls need not wait for the payload of this
 * one.
 *
 *     to rail peer:   the experts that the peer passes on, as a block
 *     to local peer:  the peer's copies of this rank's experts, and of experts
 *                     that this rank relays. With several nodes this is a late
 *                     block, made when all that this rank relays has arrived.
 *
 * On one node there are no relays. A copy reads the state from its home's
 * memory straight into its own, while the home computes. It begins once all
 * ranks are known to have made the same call. The block is then the range of
 * memory in which the home's experts lie. The package says where in that range
 * each piece is. State that cannot be read in this way is packed in the call.
 */
#include "moe/state/state_call.h"

#include <string.h>

#include "src/comm.h"
#include "src/op/payload_protocol.h"
#include "src/trace/track.h"

static bool is_local(const struct shunt_comm *comm, int rank)
{
    return comm->peers[rank].node == comm->node;
}

/* The packed state of an expert that this rank relays. */
static const unsigned char *relayed(const struct shunti_state_own *own,
                                    int home, int32_t expert)
{
    const size_t i = shunti_traffic_find(&own->traffic.in, home, expert);

    return own->in + (own->traffic.in.first[home] + i) * own->state.bytes;
}

/* Pack the experts that go to `peer`: those whose home is this rank, and those
 * that it relays. */
static void pack(const struct shunt_request *request, int peer)
{
    const struct shunti_state_own *own = shunti_state_own(request);
    const struct shunti_traffic_experts *out = &own->traffic.out;

    for (size_t i = out->first[peer]; i < out->first[peer + 1]; i++) {
        const int32_t e = out->expert[i];
        const int home = own->placement->home[e];
        unsigned char *to = own->out + i * own->state.bytes;

        if (home == request->comm->rank)
            shunti_state_pack(&own->state, e, to);
        else if (own->state.bytes)
            shunti_copy_payload(to, relayed(own, home, e), own->state.bytes);
    }
}

/* --- from memory to memory ---------------------------------------------------------- */

/* In a table, in place of an offset: the block is packed, so experts lie in it
 * one behind the other. */
#define PACKED UINT64_MAX

/* own->more, on one node. First, by peer, the number of pieces of the peer's
 * experts that have arrived. A piece is an expert's part of an array. Behind
 * these are the tables that are sent: for each outgoing piece, its offset in
 * the block. */
static size_t *pieces_here(const struct shunti_state_own *own)
{
    return own->more;
}

static uint64_t *tables(const struct shunt_comm *comm,
                        const struct shunti_state_own *own)
{
    return (uint64_t *)(void *)(pieces_here(own) + comm->nranks);
}

static size_t table_bytes(const struct shunti_state_own *own, size_t experts)
{
    return experts * (size_t)own->state.arrays * sizeof(uint64_t);
}

/* The range of memory that contains all experts that go to a peer. */
struct range {
    const unsigned char *at;
    size_t bytes;
};

static struct range range_of(const struct shunti_state *state,
                             const int32_t *experts, size_t count)
{
    uintptr_t low = UINTPTR_MAX, high = 0;

    for (size_t i = 0; i < count; i++)
        for (int a = 0; a < state->arrays; a++) {
            const size_t bytes = state->array[a].bytes;
            const uintptr_t at =
                bytes ? (uintptr_t)shunti_state_at(state, experts[i], a) : 0;

            if (bytes && at < low)
                low = at;
            if (bytes && at + bytes > high)
                high = at + bytes;
        }
    return (struct range){(const unsigned char *)low, high - low};
}

/* True if `peer` may read its experts from this rank's memory. Short state is
 * in the control message instead. */
static bool is_readable(const struct shunt_comm *comm, int peer, size_t bytes,
                        const struct range *range)
{
    return comm->peers[peer].control && bytes > shunti_eager(comm, peer) &&
           shunti_readable(comm, peer, range->at, range->bytes);
}

/* Fill in the package and the block of a local peer. */
static void offer(struct shunt_request *request, struct shunti_two_level *x,
                  int peer)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const struct shunti_state *state = &own->state;
    const size_t first = own->traffic.out.first[peer];
    const size_t count = shunti_traffic_count(&own->traffic.out, peer);
    const size_t bytes = count * state->bytes;
    const int32_t *experts = own->traffic.out.expert + first;
    struct range range = range_of(state, experts, count);
    const bool lies = is_readable(comm, peer, bytes, &range);
    uint64_t *table = tables(comm, own) + first * (size_t)state->arrays;

    x->peer_states[peer].out[SHUNTI_PACKAGE].data = table;
    x->peer_states[peer].out[SHUNTI_PACKAGE].bytes = table_bytes(own, count);
    for (size_t i = 0; i < count; i++)
        for (int a = 0; a < state->arrays; a++)
            *table++ = !lies ? PACKED
                       : !state->array[a].bytes
                           ? 0
                           : (uint64_t)(shunti_state_at(state, experts[i], a) -
                                        range.at);
    if (!lies) {
        pack(request, peer);
        range.at = own->out + first * state->bytes;
        range.bytes = bytes;
    }
    shunti_two_level_send_block(request, peer, range.at, range.bytes);
    x->peer_states[peer].payload = bytes;
    /* The peer reads the block, so this rank may compute meanwhile. */
    x->peer_states[peer].out[SHUNTI_BLOCK].in_place =
        shunti_readable(comm, peer, range.at, range.bytes);
}

static uint64_t offset_of(const struct shunti_two_level *x, int peer,
                          size_t piece)
{
    uint64_t offset;

    memcpy(&offset,
           x->peer_states[peer].in[SHUNTI_PACKAGE].at + piece * sizeof(offset),
           sizeof(offset));
    return offset;
}

static bool arrived(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    const struct shunti_state_own *own = x->own;

    (void)request;
    x->peer_states[peer].in[SHUNTI_BLOCK].in_pieces =
        !x->late && x->peer_states[peer].in[SHUNTI_PACKAGE].bytes &&
        own->state.bytes && offset_of(x, peer, 0) != PACKED;
    return true;
}

/* Read pieces from a peer's memory. No piece is read before all ranks are known
 * to have made the same call. */
static bool take_pieces(struct shunt_request *request,
                        struct shunti_two_level *x, int peer)
{
    const struct shunti_state_own *own = x->own;
    const struct shunti_state *state = &own->state;
    const int32_t *experts =
        own->traffic.in.expert + own->traffic.in.first[peer];
    const size_t arrays = (size_t)state->arrays;
    const size_t all = shunti_traffic_count(&own->traffic.in, peer) * arrays;
    struct shunti_source *source =
        &x->peer_states[peer].in[SHUNTI_BLOCK].source;
    size_t *here = &pieces_here(own)[peer];

    if (shunti_two_level_alarmed(x))
        return true;
    for (; x->stage == SHUNTI_STAGE_READY && *here < all && !source->failed;
         ++*here) {
        const int a = (int)(*here % arrays);
        const size_t bytes = state->array[a].bytes;

        if (bytes &&
            !shunti_source_pull_part(
                request, peer, source, offset_of(x, peer, *here), bytes,
                shunti_state_at(state, experts[*here / arrays], a)))
            return false;
    }
    return *here == all || source->failed;
}

/* --- the operation ------------------------------------------------------------------ */

static void begin(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const size_t each = own->state.bytes;

    x->late = comm->nodes > 1;
    for (int r = 0; r < comm->nranks; r++) {
        const size_t out = shunti_traffic_count(&own->traffic.out, r);
        const size_t in = shunti_traffic_count(&own->traffic.in, r);

        if (out && each && !x->late) {
            offer(request, x, r);
        } else if (out && each) {
            if (!is_local(comm, r))
                pack(request, r);
            shunti_two_level_send_block(
                request, r, own->out + own->traffic.out.first[r] * each,
                out * each);
        }
        if (in && each && !x->late)
            x->peer_states[r].in[SHUNTI_PACKAGE].bytes = table_bytes(own, in);
        if (in && each)
            shunti_two_level_recv_block(
                request, r, own->in + own->traffic.in.first[r] * each,
                in * each);
    }
}

static void ready(struct shunt_request *request, struct shunti_two_level *x)
{
    for (int r = 0; r < request->comm->nranks && x->late; r++)
        if (r != request->comm->rank && is_local(request->comm, r))
            pack(request, r);
}

/* Unpack the experts that have arrived. A relay may have no copy itself. */
static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunti_state_own *own = x->own;
    const struct shunti_traffic_experts *in = &own->traffic.in;

    if (request->error)
        return;
    for (int r = 0; r < request->comm->nranks; r++)
        for (size_t i = in->first[r]; i < in->first[r + 1]; i++)
            if (!x->peer_states[r].in[SHUNTI_BLOCK].in_pieces &&
                shunti_state_has(&own->state, in->expert[i]))
                shunti_state_unpack(&own->state, in->expert[i],
                                    own->in + i * own->state.bytes);
}

/* Bytes sent to a peer. On one node, count the experts and not the block: the
 * peer may read only little of that range. */
static size_t sent(const struct shunt_request *request, int peer)
{
    const struct shunti_two_level *x = shunti_two_level_of(request);

    return x->late ? shunti_two_level_sent(request, peer)
                   : x->peer_states[peer].payload;
}

static const struct shunti_class class =
    SHUNTI_STATE_CLASS("moe_replicas_refresh", sent);

static const struct shunti_two_level_hooks hooks = {
    .arrived = arrived,
    .take_pieces = take_pieces,
    .ready = ready,
    .finish = finish,
};

static const struct shunti_state_call refresh = {
    .name = "moe_replicas_refresh",
    .kind = SHUNTI_KIND_MOE_REFRESH,
    .class = &class,
    .hooks = &hooks,
    .phases = SHUNTI_RAILS_FIRST,
    .begin = begin,
};

static enum shunt_status call(struct shunt_moe *moe,
                              const struct shunt_moe_state *state, bool start,
                              struct shunt_request **request)
{
    struct shunti_state_attempt attempt;
    SHUNTI_TRACK(LIBRARY);

    if (!shunti_state_attempt(&attempt, &refresh, moe, start, request))
        return attempt.status;
    shunti_state_attempt_copies(&attempt, state, 1);
    if (!attempt.status && attempt.moe->nodes == 1) {
        const struct shunti_state_own *own = &attempt.own;
        const size_t ranks = (size_t)attempt.moe->nranks;

        attempt.own.more_bytes =
            ranks * sizeof(size_t) +
            table_bytes(own, own->traffic.out.first[ranks]);
    }
    return shunti_state_launch(&attempt, attempt.own.state.bytes,
                               attempt.own.state.bytes);
}

enum shunt_status
shunt_moe_replicas_refresh(struct shunt_moe *moe,
                           const struct shunt_moe_state *state)
{
    return call(moe, state, false, NULL);
}

enum shunt_status
shunt_moe_replicas_refresh_start(struct shunt_moe *moe,
                                 const struct shunt_moe_state *state,
                                 struct shunt_request **request)
{
    return call(moe, state, true, request);
}
