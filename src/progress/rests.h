// SPDX-License-Identifier: Apache-2.0
/* Calls that rest while their caller is away: shunti_class.rests. */
#ifndef SHUNTI_RESTS_H
#define SHUNTI_RESTS_H

#include <stdbool.h>

struct shunt_comm;

/* Does anybody gain if the communicator is stepped while its caller is away? */
bool shunti_wants_steps(const struct shunt_comm *comm);

#endif
