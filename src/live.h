// SPDX-License-Identifier: Apache-2.0
/*
 * Which communicators exist, so that one is not destroyed twice; and what is
 * left of those that were destroyed last.
 *
 * Languages that collect garbage destroy objects in any order, and more than
 * once. What a destroyed communicator had is freed, but the structure itself
 * stays for as long as it is one of the last SHUNTI_LIVE_RUINS: calls on it
 * fail, and its requests can still be waited for, which gives an error.
 */
#ifndef SHUNTI_LIVE_H
#define SHUNTI_LIVE_H

#include <stdbool.h>

struct shunt_comm;

#define SHUNTI_LIVE_RUINS 64

/* `comm` exists from now on. Any thread, as all of these. */
void shunti_live_add(struct shunt_comm *comm);
/* It exists no more. False: nor did it before. Does not look at its memory. */
bool shunti_live_remove(struct shunt_comm *comm);
/* Keep the structure of one that was removed, with all freed but its requests,
 * none of which is active. */
void shunti_live_keep_ruin(struct shunt_comm *comm);

#endif
