// SPDX-License-Identifier: Apache-2.0
/* Peers of operations in two levels; see two_level_peer.h. */
#include "collectives/two_level_peer.h"

#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/wire/failure.h"

struct shunti_two_level *
shunti_two_level_of(const struct shunt_request *request)
{
    return (struct shunti_two_level *)(void *)(uintptr_t)request->state;
}

bool shunti_is_pulled(uint8_t way)
{
    return way == SHUNTI_WAY_WINDOW || way == SHUNTI_WAY_READ;
}

bool shunti_is_local(const struct shunt_comm *comm, int peer)
{
    return comm->peers[peer].node == comm->node;
}

bool shunti_peer_state_is_late(const struct shunt_request *request, int peer,
                               int k)
{
    const struct shunti_two_level *x = shunti_two_level_of(request);

    return k == SHUNTI_BLOCK && x->late &&
           (x->late_rails || shunti_is_local(request->comm, peer));
}

bool shunti_peer_state_is_ready(const struct shunt_request *request, int peer)
{
    return shunti_two_level_of(request)->stage == SHUNTI_STAGE_READY ||
           (shunti_two_level_of(request)->stage == SHUNTI_STAGE_RAILS_READY &&
            !shunti_is_local(request->comm, peer));
}

void shunti_peer_state_ack(struct shunt_request *request,
                           struct shunti_peer_state *peer_state, int peer,
                           unsigned stage)
{
    peer_state->acked |= (uint8_t)stage;
    shunti_ack_stage(request, peer,
                     peer_state->acked | (unsigned)peer_state->acked_parts
                                             << 8);
}

/* Do this rank and the peer send each other a package in the same phase? */
static bool has_packages_both_ways(const struct shunti_peer_state *peer_state)
{
    return peer_state->phase == peer_state->send_phase &&
           peer_state->phase != SHUNTI_PHASE_DIRECT;
}

bool shunti_peer_state_zcopies(const struct shunt_request *request, int peer,
                               int k, size_t bytes)
{
    const struct shunti_two_level *x = shunti_two_level_of(request);

    return !request->streams &&
           shunti_zcopy_suits(request->comm, peer, bytes) &&
           (k == SHUNTI_BLOCK
                ? !shunti_peer_state_is_late(request, peer, k)
                : !x->varies && has_packages_both_ways(&x->peer_states[peer]));
}

struct shunti_zcopy *
shunti_peer_state_zcopy(struct shunt_request *request,
                        struct shunti_peer_state *peer_state, int peer, int k)
{
    if (peer_state->zcopy[k])
        return peer_state->zcopy[k];
    peer_state->zcopy[k] = shunti_zcopy_create(request, peer, k);
    if (peer_state->zcopy[k])
        peer_state->zcopy[k]->part = shunti_two_level_of(request)->part;
    return peer_state->zcopy[k];
}

bool shunti_incoming_place(struct shunt_request *request,
                           struct shunti_incoming *in)
{
    if (!in->to)
        in->to = in->room;
    if (!in->to)
        in->to = in->owned = shunti_scratch_get(in->bytes);
    if (!in->to)
        shunti_comm_fail(request->comm, SHUNT_ERR_MEMORY, request->comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), in->bytes);
    return in->to;
}

void shunti_outgoing_drop(struct shunti_outgoing *out)
{
    if (shunti_is_pulled(out->way))
        out->state = SHUNTI_OUTGOING_DONE;
    else if (out->state == SHUNTI_OUTGOING_OPEN)
        out->state = SHUNTI_OUTGOING_DROPPED;
}

bool shunti_peer_state_stop_reads(struct shunt_request *request,
                                  struct shunti_peer_state *peer_state)
{
    bool stopped = true;

    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        struct shunti_source *source = &peer_state->in[k].source;

        if (source->way == SHUNTI_WAY_READ)
            stopped &= shunti_read_stop(request, &source->read);
    }
    return stopped;
}

void shunti_peer_state_close(struct shunti_peer_state *peer_state)
{
    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        shunti_outgoing_drop(&peer_state->out[k]);
        peer_state->in[k].state = SHUNTI_INCOMING_DONE;
    }
    if (peer_state->receiving == SHUNTI_RECEIVING_AWAITED)
        peer_state->receiving = SHUNTI_RECEIVING_CLOSED;
    else if (peer_state->receiving == SHUNTI_RECEIVING_ARRIVED)
        peer_state->receiving = SHUNTI_RECEIVING_DONE;
}

/* Stop waiting for the message of `peer` if this rank does not need it. Only a
 * peer that is neither a local peer nor a rail peer can leave its message out.
 * This rank needs the message for the peer's block, or for the remote address
 * of this rank's own block. A message that is not needed is still checked when
 * it arrives, because it may be bad. */
static void expect_less(struct shunt_request *request, int peer)
{
    struct shunti_peer_state *peer_state =
        &shunti_two_level_of(request)->peer_states[peer];
    const struct shunti_incoming *in = &peer_state->in[SHUNTI_BLOCK];
    const struct shunti_outgoing *out = &peer_state->out[SHUNTI_BLOCK];
    const bool needs_block = in->bytes && in->state == SHUNTI_INCOMING_OPEN;
    const bool needs_place =
        out->state != SHUNTI_OUTGOING_DROPPED &&
        shunti_peer_state_zcopies(request, peer, SHUNTI_BLOCK, out->bytes);

    if (peer_state->phase == SHUNTI_PHASE_DIRECT &&
        peer_state->receiving == SHUNTI_RECEIVING_AWAITED && !needs_block &&
        !needs_place)
        peer_state->receiving = SHUNTI_RECEIVING_NONE;
}

void shunti_two_level_drop_out(struct shunt_request *request, int peer)
{
    shunti_outgoing_drop(
        &shunti_two_level_of(request)->peer_states[peer].out[SHUNTI_BLOCK]);
    expect_less(request, peer);
}

void shunti_two_level_drop_in(struct shunt_request *request, int peer)
{
    struct shunti_incoming *in =
        &shunti_two_level_of(request)->peer_states[peer].in[SHUNTI_BLOCK];

    if (in->state == SHUNTI_INCOMING_OPEN)
        in->state = SHUNTI_INCOMING_DONE;
    expect_less(request, peer);
}
