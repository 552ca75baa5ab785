// SPDX-License-Identifier: Apache-2.0
/*
 * Alarms: a bad call anywhere is an error everywhere. A rank that notices one
 * sends alarms in the place of its notes that are still to come, or acks with
 * SHUNTI_ACK_ALARM where they are out.
 */
#ifndef SHUNTI_TWO_LEVEL_ALARM_H
#define SHUNTI_TWO_LEVEL_ALARM_H

#include <stdbool.h>

#include "collectives/two_level.h"

/* There is an alarm; the first one stays. */
void shunti_two_level_alarm(struct shunti_two_level *x,
                            const struct shunti_blame *blame);

/* One of `rank`, which could not read what it needed. */
void shunti_two_level_own_alarm(struct shunt_request *request,
                                struct shunti_two_level *x, int rank);

/* Tell the peers that no note of ours can tell any more. */
void shunti_two_level_say_alarm(struct shunt_request *request,
                                struct shunti_two_level *x);

/* Has a peer told us so? */
bool shunti_two_level_hear_alarm(struct shunt_request *request,
                                 struct shunti_two_level *x);

#endif
