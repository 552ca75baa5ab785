// SPDX-License-Identifier: Apache-2.0
/*
 * Alarms: a bad call on any rank becomes an error on every rank. A rank that
 * notices a bad call sends alarms in place of the control messages that it has
 * not sent yet. To peers that have its message it acks with SHUNTI_ACK_ALARM,
 * if the reason is a failed read.
 */
#ifndef SHUNTI_TWO_LEVEL_ALARM_H
#define SHUNTI_TWO_LEVEL_ALARM_H

#include <stdbool.h>

#include "collectives/two_level.h"

/* Record an alarm. Only the first one is kept. */
void shunti_two_level_alarm(struct shunt_request *request,
                            struct shunti_two_level *x,
                            const struct shunti_blame *blame);

/* Record an alarm about `rank`, which could not read a payload that it
 * needed. */
void shunti_two_level_own_alarm(struct shunt_request *request,
                                struct shunti_two_level *x, int rank);

/* Ack the alarm to the peers that have this rank's control message already, if
 * the reason is a failed read. */
void shunti_two_level_ack_alarm(struct shunt_request *request,
                                struct shunti_two_level *x);

/* If a peer has acked an alarm, record it and return true. */
bool shunti_two_level_receive_alarm(struct shunt_request *request,
                                    struct shunti_two_level *x);

#endif
