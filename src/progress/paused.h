// SPDX-License-Identifier: Apache-2.0
/* Calls that pause while their caller is away: shunti_class.pauses. */
#ifndef SHUNTI_PAUSED_H
#define SHUNTI_PAUSED_H

#include <stdbool.h>

struct shunt_comm;

/* Is it of use to step the communicator while its caller is away? It is not if
 * all operations under way pause or trail. */
bool shunti_wants_steps(const struct shunt_comm *comm);

#endif
