// SPDX-License-Identifier: Apache-2.0
/*
 * Which communicators exist, so that none is destroyed twice; and the
 * structures of those that were destroyed last.
 *
 * Languages that collect garbage destroy objects in any order, and more than
 * once. All that a destroyed communicator had is freed, but the structure
 * itself stays for as long as it is one of the last SHUNTI_REGISTRY_DESTROYED:
 * calls on it fail, and its requests can still be waited for, which returns an
 * error.
 */
#ifndef SHUNTI_REGISTRY_H
#define SHUNTI_REGISTRY_H

#include <stdbool.h>

struct shunt_comm;

#define SHUNTI_REGISTRY_DESTROYED 64

/* `comm` exists from now on. Any thread may call this, and the functions
 * below. */
void shunti_registry_add(struct shunt_comm *comm);
/* `comm` no longer exists. False: it did not exist before either. Does not look
 * at its memory. */
bool shunti_registry_remove(struct shunt_comm *comm);
/* Keep the structure of a communicator that was removed. All of it has been
 * freed but its peers and its requests, none of which is active. */
void shunti_registry_keep(struct shunt_comm *comm);
/* Keep one that was removed as it is: of the parent of this process
 * (inherited.h). */
void shunti_registry_leave(struct shunt_comm *comm);

#endif
