// SPDX-License-Identifier: Apache-2.0
/* Operations inside nodes and between them, in phases; see two_level.h. */
#include "collectives/two_level.h"

#include "collectives/coll_call.h"
#include "collectives/exchange.h"
#include "collectives/two_level_alarm.h"
#include "collectives/two_level_moves.h"
#include "collectives/two_level_peer.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/wire/nodes.h"

static void add_to_order(struct shunti_two_level *x, int peer)
{
    if (!shunti_is_in_order(&x->peer_states[peer]))
        x->order[x->npeers++] = peer;
}

/* This rank sends `peer` a package in this phase. */
static void add_sending(struct shunti_two_level *x, int peer, int phase)
{
    add_to_order(x, peer);
    x->peer_states[peer].send_phase = (uint8_t)phase;
    x->peer_states[peer].sending = SHUNTI_SENDING_DUE;
}

/* A package of `peer` arrives in this phase. */
static void add_receiving(struct shunti_two_level *x, int peer, int phase)
{
    add_to_order(x, peer);
    x->peer_states[peer].phase = (uint8_t)phase;
    x->peer_states[peer].receiving = SHUNTI_RECEIVING_AWAITED;
    x->missing[phase]++;
}

static void add_peer(struct shunti_two_level *x, int peer, int phase)
{
    add_sending(x, peer, phase);
    add_receiving(x, peer, phase);
}

int shunti_nth_of_node(const struct shunt_comm *comm, int node, int i)
{
    int size = shunti_node_size(comm, node);

    return shunti_node_ranks(comm, node)[(comm->local_rank + i) % size];
}

static void add_local_peers(struct shunti_two_level *x,
                            const struct shunt_comm *comm, int phase)
{
    for (int i = 1; i < comm->local_size; i++)
        add_peer(x, shunti_nth_of_node(comm, comm->node, i), phase);
}

/* Add the rail peers on one node by `add`. */
static void
add_rail_peers_of(struct shunti_two_level *x, const struct shunt_comm *comm,
                  int node, int phase,
                  void (*add)(struct shunti_two_level *x, int peer, int phase))
{
    for (int i = 0; i < shunti_node_size(comm, node); i++) {
        int peer = shunti_nth_of_node(comm, node, i);

        if (shunti_is_rail_peer(comm, comm->rank, peer))
            add(x, peer, phase);
    }
}

static void add_rail_peers(struct shunti_two_level *x,
                           const struct shunt_comm *comm,
                           enum shunti_phase phase)
{
    for (int n = 1; n < comm->nodes; n++)
        add_rail_peers_of(x, comm, (comm->node + n) % comm->nodes, phase,
                          add_peer);
}

/* Add a phase for each round, from phase `first` on. */
static void add_rounds(struct shunti_two_level *x,
                       const struct shunt_comm *comm, enum shunti_phase first)
{
    const int64_t nodes = comm->nodes;

    x->first_round = (uint8_t)first;
    x->phases = (uint8_t)(first - 1);
    for (int64_t distance = 1; distance < nodes; distance *= 2) {
        const int to = (int)((comm->node + distance) % nodes);
        const int from = (int)((comm->node + nodes - distance) % nodes);

        x->phases++;
        add_rail_peers_of(x, comm, to, x->phases, add_sending);
        add_rail_peers_of(x, comm, from, x->phases, add_receiving);
    }
}

/* Add a phase for each round in pairs, from phase `first` on. */
static void add_pairs(struct shunti_two_level *x, const struct shunt_comm *comm,
                      enum shunti_phase first)
{
    x->first_round = (uint8_t)first;
    x->phases = (uint8_t)(first - 1);
    for (int distance = 1; distance < comm->nodes; distance *= 2)
        add_rail_peers_of(x, comm, comm->node ^ distance, ++x->phases,
                          add_peer);
}

int shunti_round_distance(const struct shunti_two_level *x, int phase)
{
    const bool local = x->first_round > SHUNTI_PHASE_FIRST
                           ? phase == SHUNTI_PHASE_FIRST
                           : phase == x->phases;

    return local ? 0 : (int)(1u << (phase - x->first_round));
}

int shunti_round_nodes(const struct shunt_comm *comm, int distance)
{
    const int others = comm->nodes - distance;

    return distance < others ? distance : others;
}

enum shunt_status shunti_two_level_create(
    const struct shunti_coll *call, const struct shunti_class *class,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    enum shunti_phases phases, size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **out)
{
    struct shunt_comm *comm = call->comm;
    const size_t n = (size_t)comm->nranks;
    const size_t own = sizeof(struct shunti_two_level) +
                       n * (sizeof(struct shunti_peer_state) + sizeof(int));
    const size_t own_aligned = (own + 15) & ~(size_t)15;
    struct shunti_two_level *x;
    enum shunt_status st =
        shunti_request_create(comm, class, signature | SHUNTI_TWO_LEVEL,
                              call->options, own_aligned + own_bytes, request);

    if (st)
        return st;
    x = *out = shunti_two_level_of(*request);
    x->hooks = hooks;
    x->ticket = shunti_ticket(*request);
    x->order = (int *)(void *)(x->peer_states + n);
    x->own = (*request)->state + own_aligned;
    x->completed = comm->operations.completed;
    x->phases = SHUNTI_PHASE_SECOND;
    switch (phases) {
    case SHUNTI_LOCALS_FIRST:
        add_local_peers(x, comm, SHUNTI_PHASE_FIRST);
        add_rail_peers(x, comm, SHUNTI_PHASE_SECOND);
        break;
    case SHUNTI_RAILS_FIRST:
        add_rail_peers(x, comm, SHUNTI_PHASE_FIRST);
        add_local_peers(x, comm, SHUNTI_PHASE_SECOND);
        break;
    case SHUNTI_LOCALS_THEN_ROUNDS:
        add_local_peers(x, comm, SHUNTI_PHASE_FIRST);
        add_rounds(x, comm, SHUNTI_PHASE_SECOND);
        break;
    case SHUNTI_ROUNDS_THEN_LOCALS:
        add_rounds(x, comm, SHUNTI_PHASE_FIRST);
        add_local_peers(x, comm, ++x->phases);
        break;
    case SHUNTI_LOCALS_THEN_PAIRS:
        add_local_peers(x, comm, SHUNTI_PHASE_FIRST);
        add_pairs(x, comm, SHUNTI_PHASE_SECOND);
    }
    return SHUNT_OK;
}

static struct shunti_peer_state *peer_with(struct shunt_request *request,
                                           int peer)
{
    struct shunti_two_level *x = shunti_two_level_of(request);

    if (!shunti_is_in_order(&x->peer_states[peer])) {
        add_to_order(x, peer);
        x->peer_states[peer].phase = SHUNTI_PHASE_DIRECT;
        x->peer_states[peer].send_phase = SHUNTI_PHASE_DIRECT;
    }
    return &x->peer_states[peer];
}

void shunti_two_level_send_block(struct shunt_request *request, int peer,
                                 const void *data, size_t bytes)
{
    struct shunti_peer_state *peer_state = peer_with(request, peer);

    peer_state->sending = SHUNTI_SENDING_DUE;
    peer_state->out[SHUNTI_BLOCK].data = data;
    peer_state->out[SHUNTI_BLOCK].bytes = bytes;
    if (shunti_peer_state_zcopies(request, peer, SHUNTI_BLOCK, bytes))
        /* the peer's message says where the block goes */
        peer_state->receiving = SHUNTI_RECEIVING_AWAITED;
}

void shunti_two_level_recv_block(struct shunt_request *request, int peer,
                                 void *to, size_t bytes)
{
    struct shunti_peer_state *peer_state = peer_with(request, peer);

    peer_state->receiving = SHUNTI_RECEIVING_AWAITED;
    peer_state->in[SHUNTI_BLOCK].to = to;
    peer_state->in[SHUNTI_BLOCK].bytes = bytes;
    if (shunti_peer_state_zcopies(request, peer, SHUNTI_BLOCK, bytes))
        /* this rank's message says where the block goes */
        peer_state->sending = SHUNTI_SENDING_DUE;
}

int shunti_two_level_locals(const struct shunt_comm *comm,
                            const struct shunti_two_level *x, const void *own,
                            const void **out)
{
    int n = 0;

    for (int r = 0; r < comm->nranks; r++)
        if (comm->peers[r].node == comm->node)
            out[n++] =
                r == comm->rank ? own : x->peer_states[r].in[SHUNTI_PACKAGE].at;
    return n;
}

static bool peer_is_open(const struct shunti_peer_state *peer_state)
{
    if (peer_state->sending >= SHUNTI_SENDING_DUE)
        for (int k = 0; k < SHUNTI_PAYLOADS; k++)
            if (peer_state->out[k].state != SHUNTI_OUTGOING_DONE)
                return true;
    return peer_state->receiving == SHUNTI_RECEIVING_AWAITED ||
           peer_state->receiving == SHUNTI_RECEIVING_ARRIVED;
}

static bool all_done(const struct shunt_request *request,
                     const struct shunti_two_level *x)
{
    if (!x->turns_over)
        return false;
    for (int i = 0; i < x->npeers; i++)
        if (peer_is_open(&x->peer_states[x->order[i]]))
            return false;
    for (int r = 0; r < request->comm->nranks && shunti_two_level_alarmed(x);
         r++)
        if (x->peer_states[r].sending != SHUNTI_SENDING_SENT &&
            r != request->comm->rank)
            return false;
    return x->stage >= SHUNTI_STAGE_READY;
}

/* True if all blocks of rail peers, from which late blocks may be made, have
 * arrived. */
static bool rail_blocks_here(const struct shunt_request *request,
                             const struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;

    for (int i = 0; i < x->npeers && x->late; i++)
        if (comm->peers[x->order[i]].node != comm->node &&
            x->peer_states[x->order[i]].in[SHUNTI_BLOCK].state ==
                SHUNTI_INCOMING_OPEN)
            return false;
    return true;
}

/* Ack to the peers that their late blocks, or parts of them, are ready. If a
 * peer's control message has not been sent yet, send_message() sends this ack
 * after it. */
static void ack_ready(struct shunt_request *request, struct shunti_two_level *x)
{
    for (int i = 0; i < x->npeers; i++)
        shunti_peer_state_ack_ready(request, x, x->order[i]);
}

/* Start the next phases if the packages that they need have arrived. */
static void advance(struct shunt_request *request, struct shunti_two_level *x)
{
    while (x->stage == SHUNTI_STAGE_FIRST && !x->missing[x->complete + 1]) {
        x->complete++;
        if (x->hooks->turn)
            x->hooks->turn(request, x);
        if (x->complete + 1 == x->phases)
            x->stage = SHUNTI_STAGE_SECOND;
        if (request->comm->failure.status) /* no memory for the packages */
            return;
    }
    if (x->stage == SHUNTI_STAGE_SECOND && !x->missing[x->phases]) {
        if (x->hooks->rails_ready)
            x->hooks->rails_ready(request, x);
        x->stage = SHUNTI_STAGE_RAILS_READY;
        ack_ready(request, x);
    }
    if (x->stage == SHUNTI_STAGE_RAILS_READY && rail_blocks_here(request, x)) {
        if (x->hooks->ready)
            x->hooks->ready(request, x);
        x->stage = SHUNTI_STAGE_READY;
        ack_ready(request, x);
    }
}

/* If more parts of late blocks are ready, ack that to the local peers. */
static void count_parts(struct shunt_request *request,
                        struct shunti_two_level *x)
{
    const size_t parts = x->hooks->parts(x);

    if (parts <= x->ready_parts)
        return;
    x->ready_parts = parts < UINT8_MAX ? (uint8_t)parts : UINT8_MAX;
    ack_ready(request, x);
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    if (shunti_two_level_alarmed(x))
        return;
    if (x->first_round)
        shunti_note_all_completed(request->comm, x->completed);
    if (x->hooks->finish)
        x->hooks->finish(request, x);
}

enum shunt_status shunti_two_level_step(struct shunt_request *request)
{
    struct shunti_two_level *x = shunti_two_level_of(request);
    bool moved;

    do {
        if (!shunti_two_level_alarmed(x))
            advance(request, x);
        if (request->comm->failure.status)
            return SHUNT_IN_PROGRESS;
        moved = shunti_two_level_post(request, x);
        moved |= shunti_two_level_send(request, x);
        moved |= shunti_two_level_receive(request, x);
        if (x->in_place && (x->stage == SHUNTI_STAGE_SECOND ||
                            x->stage == SHUNTI_STAGE_RAILS_READY))
            count_parts(request, x);
        if (x->stage == SHUNTI_STAGE_ALARM)
            shunti_two_level_ack_alarm(request, x);
        if (all_done(request, x)) {
            finish(request, x);
            return SHUNT_OK;
        }
        if (!moved && !shunti_two_level_alarmed(x))
            moved = shunti_two_level_receive_alarm(request, x);
    } while (moved && !request->comm->failure.status);
    return SHUNT_IN_PROGRESS;
}

bool shunti_two_level_awaits(const struct shunt_request *request, int peer)
{
    return peer_is_open(&shunti_two_level_of(request)->peer_states[peer]);
}

/* True also for a rank that sends this rank no message, since this rank does
 * not wait for one. */
bool shunti_two_level_received(const struct shunt_request *request, int peer)
{
    const uint8_t receiving =
        shunti_two_level_of(request)->peer_states[peer].receiving;

    return receiving != SHUNTI_RECEIVING_AWAITED &&
           receiving != SHUNTI_RECEIVING_CLOSED;
}

/* True if `rank` has no local peers. Other ranks hold up their local peers
 * while they lack a package of the first phase, or input of late blocks: they
 * cannot send them anything of the second phase, or of later calls. So only a
 * rank that is alone may receive a package much later, and only if no other node
 * waits for what it sends next: not in rounds, and not if blocks between rail
 * peers are late. */
static bool alone_on_node(const struct shunt_comm *comm, int rank)
{
    return shunti_node_size(comm, comm->peers[rank].node) == 1;
}

/* True if this rank has nothing more to do to send the payload. */
static bool is_sent(const struct shunti_outgoing *out)
{
    return out->state == SHUNTI_OUTGOING_DONE || shunti_is_pulled(out->way);
}

bool shunti_two_level_must_send(const struct shunt_request *request)
{
    const struct shunti_two_level *x = shunti_two_level_of(request);

    for (int i = 0; i < x->npeers; i++) {
        const struct shunti_peer_state *peer_state =
            &x->peer_states[x->order[i]];
        /* Late blocks are made of what this rank sends to that peer. */
        const bool feeds_late = x->late &&
                                peer_state->send_phase != SHUNTI_PHASE_DIRECT &&
                                !shunti_is_local(request->comm, x->order[i]);
        bool sent = is_sent(&peer_state->out[SHUNTI_PACKAGE]);

        if (feeds_late)
            sent &= is_sent(&peer_state->out[SHUNTI_BLOCK]);
        if (peer_state->sending >= SHUNTI_SENDING_DUE &&
            (peer_state->send_phase < x->phases || feeds_late) && !sent &&
            (x->phases > SHUNTI_PHASE_SECOND || x->late_rails ||
             !alone_on_node(request->comm, x->order[i])))
            return true;
    }
    return false;
}

size_t shunti_two_level_sent(const struct shunt_request *request, int peer)
{
    const struct shunti_peer_state *peer_state =
        &shunti_two_level_of(request)->peer_states[peer];

    return peer_state->out[SHUNTI_PACKAGE].bytes +
           peer_state->out[SHUNTI_BLOCK].bytes;
}

void shunti_two_level_cleanup(struct shunt_request *request)
{
    struct shunti_two_level *x = shunti_two_level_of(request);

    for (int i = 0; i < x->npeers; i++)
        for (int k = 0; k < SHUNTI_PAYLOADS; k++)
            shunti_scratch_put(request->comm,
                               x->peer_states[x->order[i]].in[k].owned);
    shunti_scratch_put(request->comm, x->owned);
}
