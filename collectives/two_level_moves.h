// SPDX-License-Identifier: Apache-2.0
/*
 * What operations in two levels send and receive. Each function does what can
 * be done now, and returns whether something moved.
 */
#ifndef SHUNTI_TWO_LEVEL_MOVES_H
#define SHUNTI_TWO_LEVEL_MOVES_H

#include <stdbool.h>

#include "collectives/two_level.h"

/* Send control messages, or alarms (two_level_send.c). */
bool shunti_two_level_post(struct shunt_request *request,
                           struct shunti_two_level *x);

/* Send payloads that are not inline, and look for acks. */
bool shunti_two_level_send(struct shunt_request *request,
                           struct shunti_two_level *x);

/* Tell the peer that its late block is ready, or how many parts of it are, if
 * it copies the block from our memory. (A streamed block needs no such ack.) */
void shunti_peer_state_ack_ready(struct shunt_request *request,
                                 struct shunti_two_level *x, int peer);

/* Both control messages of a peer have been sent: find where our payloads go by
 * zero copy. A payload that the peer does not want, or expects in another size,
 * is dropped. */
void shunti_peer_state_aim(struct shunt_request *request,
                           struct shunti_two_level *x, int peer);

/* Take control messages and payloads (two_level_receive.c). */
bool shunti_two_level_receive(struct shunt_request *request,
                              struct shunti_two_level *x);

#endif
