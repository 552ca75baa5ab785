// SPDX-License-Identifier: Apache-2.0
/*
 * A peer of a two-level operation, and the payloads that are exchanged with it.
 * Used only by two_level.c and two_level_*.c.
 */
#ifndef SHUNTI_TWO_LEVEL_PEER_H
#define SHUNTI_TWO_LEVEL_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/two_level.h"

/* Stages of this rank's ack to a peer, as bits (shunti_ack_stage()). */
enum {
    SHUNTI_ACK_TAKEN = 0x01,  /* this rank has all payload that it wants of the
                                 peer */
    SHUNTI_ACK_READY = 0x02,  /* this rank's late block for the peer is ready */
    SHUNTI_ACK_UNREAD = 0x10, /* this rank cannot read the peer's payload */
    SHUNTI_ACK_ALARM = 0x20,  /* an alarm after the control message */
};

/* True if the receiver copies the payload from the sender's memory. */
bool shunti_is_pulled(uint8_t way);

/* Is the peer in x->order? */
static inline bool
shunti_is_in_order(const struct shunti_peer_state *peer_state)
{
    return peer_state->phase != SHUNTI_PHASE_NONE ||
           peer_state->send_phase != SHUNTI_PHASE_NONE;
}

/* Is `peer` on this rank's node? */
bool shunti_is_local(const struct shunt_comm *comm, int peer);

/* True if payload `k` to and from `peer` is late (two_level.h). */
bool shunti_peer_state_is_late(const struct shunt_request *request, int peer,
                               int k);

/* True if this rank's late blocks for `peer` are made. */
bool shunti_peer_state_is_ready(const struct shunt_request *request, int peer);

/* The number of ready parts of the late block in the stages of an ack. */
#define SHUNTI_ACKED_PARTS(stages) ((stages) >> 8)

void shunti_peer_state_ack(struct shunt_request *request,
                           struct shunti_peer_state *peer_state, int peer,
                           unsigned stage);

/* True if a payload of `bytes` to or from `peer` is sent by zero copy. Both
 * ranks must know its size, and it must be ready when it is offered, because
 * after an alarm a late block may never be made. */
bool shunti_peer_state_zcopies(const struct shunt_request *request, int peer,
                               int k, size_t bytes);

/* The zero copy of payload `k`; the first call creates it. */
struct shunti_zcopy *
shunti_peer_state_zcopy(struct shunt_request *request,
                        struct shunti_peer_state *peer_state, int peer, int k);

/* Find memory for a package that has no destination of its own. Returns false,
 * and the communicator has failed, if memory runs out. */
bool shunti_incoming_place(struct shunt_request *request,
                           struct shunti_incoming *in);

/* Stop sending this payload. Parts on which the peer relies, such as reserved
 * chunks, are still sent. */
void shunti_outgoing_drop(struct shunti_outgoing *out);

/* Stop reading from the peer. Returns true once no read is under way. */
bool shunti_peer_state_stop_reads(struct shunt_request *request,
                                  struct shunti_peer_state *peer_state);

/* Neither send nor receive payload any more, because of an alarm. */
void shunti_peer_state_close(struct shunti_peer_state *peer_state);

#endif
