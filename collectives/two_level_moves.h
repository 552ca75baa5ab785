// SPDX-License-Identifier: Apache-2.0
/*
 * Sending and receiving in two-level operations. Each function does what can be
 * done now, and returns whether something moved.
 */
#ifndef SHUNTI_TWO_LEVEL_MOVES_H
#define SHUNTI_TWO_LEVEL_MOVES_H

#include <stdbool.h>

#include "collectives/two_level.h"

/* Send control messages, or alarms (two_level_send.c). */
bool shunti_two_level_post(struct shunt_request *request,
                           struct shunti_two_level *x);

/* Send payloads that are not inline, and look for acks (two_level_send.c). */
bool shunti_two_level_send(struct shunt_request *request,
                           struct shunti_two_level *x);

/* Ack to `peer` that its late block is ready, or how many parts of it are. This
 * is done only if the peer copies the block from this rank's memory, because a
 * streamed block needs no such ack. */
void shunti_peer_state_ack_ready(struct shunt_request *request,
                                 struct shunti_two_level *x, int peer);

/* Find the addresses to which this rank puts its zero-copy payloads for `peer`.
 * Call this when both control messages of the pair have been sent. A payload
 * that the peer does not want, or expects in another size, is dropped. */
void shunti_peer_state_aim(struct shunt_request *request,
                           struct shunti_two_level *x, int peer);

/* Receive control messages and payloads (two_level_receive.c). */
bool shunti_two_level_receive(struct shunt_request *request,
                              struct shunti_two_level *x);

#endif
