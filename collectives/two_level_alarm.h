// SPDX-License-Identifier: Apache-2.0
/*
 * Alarms: a bad call anywhere is an error everywhere. A rank that notices one
 * sends alarms in place of the control messages that it has not sent yet, and
 * acks with SHUNTI_ACK_ALARM to peers that have its message.
 */
#ifndef SHUNTI_TWO_LEVEL_ALARM_H
#define SHUNTI_TWO_LEVEL_ALARM_H

#include <stdbool.h>

#include "collectives/two_level.h"

/* Record an alarm; the first one is kept. */
void shunti_two_level_alarm(struct shunt_request *request,
                            struct shunti_two_level *x,
                            const struct shunti_blame *blame);

/* Record the alarm of `rank`, which could not read what it needed. */
void shunti_two_level_own_alarm(struct shunt_request *request,
                                struct shunti_two_level *x, int rank);

/* Ack a failed read to the peers that have our control message already. */
void shunti_two_level_say_alarm(struct shunt_request *request,
                                struct shunti_two_level *x);

/* Has a peer acked an alarm? Then record it. */
bool shunti_two_level_hear_alarm(struct shunt_request *request,
                                 struct shunti_two_level *x);

#endif
