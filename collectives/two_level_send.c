// SPDX-License-Identifier: Apache-2.0
/* Sending control messages and payloads of operations in two levels; see
 * two_level_moves.h. */
#include "collectives/two_level_moves.h"

#include <string.h>

#include "collectives/exchange.h"
#include "collectives/two_level_peer.h"
#include "src/comm.h"
#include "src/op/payload_protocol.h"
#include "src/wire/window.h"

static bool is_remote(const struct shunt_comm *comm, int peer)
{
    return comm->peers[peer].node != comm->node;
}

/* Payloads that are sent in a control message, behind its header. */
struct behind {
    struct shunt_transport_piece piece[SHUNT_TRANSPORT_PIECES];
    int count;
    size_t bytes;
};

_Static_assert(SHUNTI_PAYLOADS <= SHUNT_TRANSPORT_PIECES,
               "each is a piece of a put");

static void copy_behind(struct shunti_note *note, const struct behind *behind)
{
    unsigned char *to = (unsigned char *)(note + 1);

    for (int i = 0; i < behind->count; i++) {
        memcpy(to, behind->piece[i].data, behind->piece[i].bytes);
        to += behind->piece[i].bytes;
    }
}

/* Add the addresses for the peer's payloads to this rank's control message.
 * Returns false if the communicator has failed. */
static bool name_places(struct shunt_request *request,
                        struct shunti_peer_state *peer_state, int peer,
                        struct shunti_note *note, size_t *behind)
{
    *behind = (*behind + 7) & ~(size_t)7;
    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        struct shunti_incoming *in = &peer_state->in[k];
        struct shunti_zcopy *z;
        size_t length;

        if (in->state != SHUNTI_INCOMING_OPEN ||
            !shunti_peer_state_zcopies(request, peer, k, in->bytes))
            continue;
        z = shunti_incoming_place(request, in)
                ? shunti_peer_state_zcopy(request, peer_state, peer, k)
                : NULL;
        length = z ? shunti_zcopy_name(z, in->to, in->bytes,
                                       (unsigned char *)(note + 1) + *behind)
                   : 0;
        if (!length)
            return false;
        note->names |= (uint8_t)(1u << k);
        *behind += length;
    }
    return true;
}

/* Bytes behind the header of a control message, without the zero-copy names. */
static size_t inline_bytes(const struct shunti_two_level *x,
                           const struct shunti_peer_state *peer_state,
                           const struct shunti_note *note)
{
    const size_t block =
        x->agreed ? peer_state->in[SHUNTI_BLOCK].bytes : (size_t)note->expects;

    return (note->way == SHUNTI_WAY_INLINE ? (size_t)note->bytes : 0) +
           (note->second_way == SHUNTI_WAY_INLINE ? block : 0);
}

void shunti_peer_state_aim(struct shunt_request *request,
                           struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    const struct shunti_note *note = shunti_note_arrived(request, peer);
    const size_t behind =
        note ? (inline_bytes(x, peer_state, note) + 7) & ~(size_t)7 : 0;
    const unsigned char *name = (const unsigned char *)(note + 1) + behind;

    if (!note)
        return;
    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        struct shunti_outgoing *out = &peer_state->out[k];
        const bool named = note->names >> k & 1 &&
                           behind <= request->comm->control.layout.eager;
        struct shunti_zcopy *z =
            named ? shunti_peer_state_zcopy(request, peer_state, peer, k)
                  : NULL;
        const bool aimed =
            z && shunti_zcopy_aim(z, out->data, out->bytes, &name);

        if (request->comm->failure.status)
            return;
        if (out->way == SHUNTI_WAY_ZCOPY && !aimed)
            shunti_outgoing_drop(out);
    }
}

/* Put a payload into the control message, or write its location there. Returns
 * the protocol. */
static uint8_t put_payload(struct shunt_request *request, int peer,
                           struct shunti_outgoing *out,
                           struct shunti_note *note, int k,
                           struct behind *behind)
{
    struct shunt_comm *comm = request->comm;
    const bool is_late = shunti_peer_state_is_late(request, peer, k);
    uint64_t *where = &note->word[2 * k];

    where[0] = where[1] = 0;
    if (shunti_peer_state_zcopies(request, peer, k, out->bytes)) {
        shunti_request_way(request, peer, SHUNTI_WAY_ZCOPY);
        return out->way = SHUNTI_WAY_ZCOPY;
    }
    if (!(is_late && out->bytes) &&
        behind->bytes + out->bytes <= shunti_eager(comm, peer) &&
        !(k == SHUNTI_BLOCK && out->bytes >= SHUNTI_WINDOW_MIN &&
          comm->peers[peer].control &&
          shunti_window_find(comm, out->data, out->bytes))) {
        if (out->bytes) {
            behind->piece[behind->count++] =
                (struct shunt_transport_piece){out->data, out->bytes};
            shunti_request_way(request, peer, SHUNTI_WAY_INLINE);
        }
        behind->bytes += out->bytes;
        comm->stats.bytes_inline += out->bytes;
        out->state = SHUNTI_OUTGOING_DONE;
        return SHUNTI_WAY_INLINE;
    }
    out->way =
        (uint8_t)(out->in_place ? shunti_locate_in_place : shunti_locate)(
            request, peer, out->data, out->bytes, where);
    if (out->way == SHUNTI_WAY_STREAM)
        out->tx =
            (struct shunti_stream){.start = where[0], .bytes = out->bytes};
    return out->way;
}

void shunti_peer_state_ack_ready(struct shunt_request *request,
                                 struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    const bool more = peer_state->out[SHUNTI_BLOCK].in_place &&
                      peer_state->acked_parts < x->ready_parts;
    const bool is_ready = shunti_peer_state_is_ready(request, peer);

    if (peer_state->sending != SHUNTI_SENDING_SENT ||
        !shunti_peer_state_is_late(request, peer, SHUNTI_BLOCK) ||
        !shunti_is_pulled(peer_state->out[SHUNTI_BLOCK].way) ||
        (!is_ready && !more) || peer_state->acked & SHUNTI_ACK_READY)
        return;
    peer_state->acked_parts = x->ready_parts;
    shunti_peer_state_ack(request, peer_state, peer,
                          is_ready ? SHUNTI_ACK_READY : 0);
}

static void send_message(struct shunt_request *request,
                         struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_note *note = shunti_note_compose(request, peer);
    struct behind behind = {.count = 0};

    if (is_remote(request->comm, peer))
        request->comm->stats.bytes_remote +=
            peer_state->payload + peer_state->out[SHUNTI_BLOCK].bytes;
    note->bytes = peer_state->out[SHUNTI_PACKAGE].bytes;
    note->expects = x->agreed ? x->argument ^ request->digest
                              : peer_state->out[SHUNTI_BLOCK].bytes;
    note->way = put_payload(request, peer, &peer_state->out[SHUNTI_PACKAGE],
                            note, SHUNTI_PACKAGE, &behind) &
                15;
    note->second_way =
        put_payload(request, peer, &peer_state->out[SHUNTI_BLOCK], note,
                    SHUNTI_BLOCK, &behind) &
        15;
    if (x->first_round) /* there is no block, whose place this word would be */
        note->word[2] = x->completed;
    if (!request->comm->peers[peer].control &&
        !name_places(request, peer_state, peer, note, &behind.bytes))
        return;
    if (!request->comm->peers[peer].control && !note->names) {
        shunti_note_send_far(request, peer, note, behind.piece);
    } else {
        copy_behind(note, &behind);
        shunti_note_send(request, peer, note, behind.bytes);
    }
    peer_state->sending = SHUNTI_SENDING_SENT;
    if (peer_state->receiving >= SHUNTI_RECEIVING_ARRIVED)
        shunti_peer_state_aim(request, x, peer);
    shunti_peer_state_ack_ready(request, x, peer);
}

static void send_alarm(struct shunt_request *request,
                       struct shunti_two_level *x, int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];

    shunti_note_alarm(request, peer, &x->blame);
    peer_state->sending = SHUNTI_SENDING_SENT;
    for (int k = 0; k < SHUNTI_PAYLOADS; k++)
        peer_state->out[k].state = SHUNTI_OUTGOING_DONE;
    shunti_peer_state_close(peer_state);
}

static bool is_turn_over(const struct shunti_peer_state *peer_state)
{
    return peer_state->sending == SHUNTI_SENDING_SKIPPED ||
           peer_state->sending == SHUNTI_SENDING_SENT;
}

/* Send to `peer` what can be sent now: the control message, or an alarm. */
static bool post_to(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    struct shunti_peer_state *peer_state = &x->peer_states[peer];
    struct shunti_peer *p = &request->comm->peers[peer];
    const bool alarmed = shunti_two_level_alarmed(x);
    const bool waits = peer_state->send_phase != SHUNTI_PHASE_DIRECT &&
                       peer_state->send_phase > x->complete + 1;
    bool skipped;

    if (peer_state->sending == SHUNTI_SENDING_NONE && p->turn == x->ticket) {
        shunti_turn_over(request, peer);
        peer_state->sending = SHUNTI_SENDING_SKIPPED;
    }
    if (peer_state->sending == SHUNTI_SENDING_SENT ||
        (!alarmed && (peer_state->sending != SHUNTI_SENDING_DUE || waits)))
        return false;
    /* After an alarm the peer may free the memory that this rank reads. */
    if (alarmed && !shunti_peer_state_stop_reads(request, peer_state))
        return false;
    /* An alarm reserves no chunks. But it replaces a control message that would
     * have reserved some, and later messages must not overtake it. */
    skipped = peer_state->sending == SHUNTI_SENDING_SKIPPED;
    if (skipped ? !shunti_note_room(request, peer)
                : !shunti_turn(request, peer, x->ticket))
        return false;
    if (alarmed)
        send_alarm(request, x, peer);
    else
        send_message(request, x, peer);
    if (!skipped)
        shunti_turn_over(request, peer);
    return true;
}

/* Send to this operation's peers first: they wait for the messages. */
bool shunti_two_level_post(struct shunt_request *request,
                           struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    bool moved = false;

    for (int i = 0; i < x->npeers; i++)
        moved |= post_to(request, x, x->order[i]);
    if (x->turns_over && !shunti_two_level_alarmed(x))
        return moved;
    x->turns_over = true;
    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank)
            continue;
        if (!shunti_is_in_order(&x->peer_states[r]))
            moved |= post_to(request, x, r);
        x->turns_over &= is_turn_over(&x->peer_states[r]);
    }
    return moved;
}

/* True if the peer has copied all payload that it wants of this rank. It sends
 * this ack only when it has the package. */
static bool answered(struct shunt_request *request, int peer)
{
    const unsigned stages = shunti_acked_stage(request, peer);

    if (stages & SHUNTI_ACK_UNREAD)
        shunti_request_error(request, SHUNT_ERR_REMOTE,
                             "%s: rank %d could not read this rank's memory "
                             "(its shunt_last_error says why)",
                             shunti_request_name(request), peer);
    return stages & SHUNTI_ACK_TAKEN;
}

/* Send by zero copy, once both control messages have been sent. A peer that
 * sent an address waits for the put, even if the payload is dropped. */
static bool put_straight(struct shunti_outgoing *out, struct shunti_zcopy *z)
{
    const size_t before = z ? z->done : 0;
    const bool done = z && z->remote ? shunti_zcopy_send(z)
                                     : out->state == SHUNTI_OUTGOING_DROPPED;

    if (done)
        out->state = SHUNTI_OUTGOING_DONE;
    return done || (z && z->done != before);
}

/* Send what the peer has not taken yet. Returns the new state. */
static uint8_t send_some(struct shunt_request *request, int peer,
                         struct shunti_outgoing *out)
{
    if (shunti_is_pulled(out->way))
        return answered(request, peer) ? SHUNTI_OUTGOING_DONE : out->state;
    if (out->state == SHUNTI_OUTGOING_DROPPED)
        return shunti_stream_skip(request, peer, &out->tx)
                   ? SHUNTI_OUTGOING_DONE
                   : SHUNTI_OUTGOING_DROPPED;
    if (shunti_stream_send(request, peer, &out->tx, out->data))
        return SHUNTI_OUTGOING_DONE;
    /* The peer acked before the end: it does not want the rest. */
    return answered(request, peer) ? SHUNTI_OUTGOING_DROPPED
                                   : SHUNTI_OUTGOING_OPEN;
}

static bool send_payload(struct shunt_request *request, int peer,
                         struct shunti_outgoing *out, struct shunti_zcopy *z)
{
    const size_t before = out->tx.done;
    const uint8_t state = out->state;

    if (out->way == SHUNTI_WAY_ZCOPY)
        return put_straight(out, z);
    out->state = send_some(request, peer, out);
    /* A dropped payload may still have to wait until its chunks are skipped. */
    return out->state != state || out->tx.done != before;
}

bool shunti_two_level_send(struct shunt_request *request,
                           struct shunti_two_level *x)
{
    bool moved = false;

    for (int i = 0; i < x->npeers; i++) {
        const int peer = x->order[i];
        struct shunti_peer_state *peer_state = &x->peer_states[peer];
        int payloads = SHUNTI_PAYLOADS;

        if (peer_state->sending != SHUNTI_SENDING_SENT)
            continue;
        if (!shunti_two_level_alarmed(x) &&
            shunti_peer_state_is_late(request, peer, SHUNTI_BLOCK) &&
            !shunti_peer_state_is_ready(request, peer))
            payloads = SHUNTI_BLOCK; /* the block is not made yet */
        for (int k = 0; k < payloads; k++)
            if (peer_state->out[k].state != SHUNTI_OUTGOING_DONE)
                moved |= send_payload(request, peer, &peer_state->out[k],
                                      peer_state->zcopy[k]);
    }
    return moved;
}
