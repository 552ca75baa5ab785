// SPDX-License-Identifier: Apache-2.0
/*
 * A peer of an operation in two levels: what goes to one peer and comes from it.
 * For the parts of two_level.c only.
 */
#ifndef SHUNTI_TWO_LEVEL_PEER_H
#define SHUNTI_TWO_LEVEL_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/two_level.h"

/* Acks of a peer, as bits (shunti_ack_stage()). */
enum {
    SHUNTI_ACK_TAKEN = 0x01,  /* we have all that we want of the peer */
    SHUNTI_ACK_READY = 0x02,  /* our late block for it is ready */
    SHUNTI_ACK_UNREAD = 0x10, /* what we want of it cannot be read */
    SHUNTI_ACK_ALARM = 0x20,  /* there is an alarm, and our message was sent */
};

/* Does the receiver copy the payload from the sender's memory? */
bool shunti_is_pulled(uint8_t way);

/* Is payload `k` to and from `peer` made later than it is offered? */
bool shunti_peer_state_is_late(const struct shunt_request *request, int peer,
                               int k);

/* Parts of the late block that an ack counts. */
#define SHUNTI_ACKED_PARTS(stages) ((stages) >> 8)

void shunti_peer_state_ack(struct shunt_request *request,
                           struct shunti_peer_state *peer_state, int peer,
                           unsigned stage);

/* Does a payload of `bytes` to or from `peer` go by zero copy? Only one whose
 * size both ranks know and that is ready when it is offered: after an alarm a
 * late block may never be made. */
bool shunti_peer_state_zcopies(const struct shunt_request *request, int peer,
                               int k, size_t bytes);

/* The zero copy of payload `k`; made by the first call. */
struct shunti_zcopy *
shunti_peer_state_zcopy(struct shunt_request *request,
                        struct shunti_peer_state *peer_state, int peer, int k);

/* Memory for a package that may come to any place. False: none; the
 * communicator has failed. */
bool shunti_incoming_place(struct shunt_request *request,
                           struct shunti_incoming *in);

/* This payload is no longer sent, as far as the peer does not rely on it. */
void shunti_outgoing_drop(struct shunti_outgoing *out);

/* Read nothing more of the peer. True once no read is under way. */
bool shunti_peer_state_still(struct shunt_request *request,
                             struct shunti_peer_state *peer_state);

/* Nothing more is sent or taken. */
void shunti_peer_state_close(struct shunti_peer_state *peer_state);

#endif
