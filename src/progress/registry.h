// SPDX-License-Identifier: Apache-2.0
/*
 * The registry: which communicators exist, so that none is destroyed twice; and
 * the structures of the communicators that were destroyed last.
 *
 * Languages that collect garbage destroy objects in any order, and more than
 * once. Destroying a communicator frees all its memory but the structure
 * itself. The structure stays as long as it is one of the last
 * SHUNTI_REGISTRY_DESTROYED. Calls on it fail. Its requests can still be waited
 * for, and then return an error.
 */
#ifndef SHUNTI_REGISTRY_H
#define SHUNTI_REGISTRY_H

#include <stdbool.h>

struct shunt_comm;

#define SHUNTI_REGISTRY_DESTROYED 64

/* Add `comm`, which exists from now on. Any thread may call this, and the
 * functions below. */
void shunti_registry_add(struct shunt_comm *comm);
/* Remove `comm`, which no longer exists. False: it was not in the registry.
 * Does not look at the memory of `comm`. */
bool shunti_registry_remove(struct shunt_comm *comm);
/* Keep the structure of a communicator that was removed. Everything has been
 * freed but its peers and its requests. No request is active. */
void shunti_registry_keep(struct shunt_comm *comm);
/* Keep a communicator that was removed, unchanged. It belongs to the parent of
 * this process (inherited.h). */
void shunti_registry_leave(struct shunt_comm *comm);

#endif
