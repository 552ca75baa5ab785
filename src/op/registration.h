// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that the caller has registered by shunt_mem_register(). It is
 * registered only with transports that put straight from a rank's memory.
 */
#ifndef SHUNTI_REGISTRATION_H
#define SHUNTI_REGISTRATION_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_transport_reg;

/* The registration of [memory, memory + bytes) with the transport of `peer`.
 * The registered memory, or window, holds the whole range. NULL: there is
 * none. */
struct shunt_transport_reg *
shunti_registration_of(const struct shunt_comm *comm, int peer,
                       const void *memory, size_t bytes);

/* Register `bytes` at `ptr` with the transports. Sets the communicator's error
 * text on an error. */
enum shunt_status shunti_registration_add(struct shunt_comm *comm, void *ptr,
                                          size_t bytes);
/* Remove the registration of the memory at `ptr`. False: there is none. */
bool shunti_registration_remove(struct shunt_comm *comm, const void *ptr);

/* Remove all registrations, when the communicator is destroyed. */
void shunti_registrations_finish(struct shunt_comm *comm);

#endif
