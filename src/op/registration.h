// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of the caller that it has registered: shunt_mem_register(). Only
 * transports that put straight from a rank's memory are told of it.
 */
#ifndef SHUNTI_REGISTRATION_H
#define SHUNTI_REGISTRATION_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunt_transport_reg;

/* The registration with the transport of `peer` of the window or registered
 * memory that holds all of [memory, memory + bytes); NULL: there is none. */
struct shunt_transport_reg *
shunti_registration_of(const struct shunt_comm *comm, int peer,
                       const void *memory, size_t bytes);

/* Tell the transports of `bytes` at `ptr`. The text of an error is the
 * communicator's. */
enum shunt_status shunti_registration_add(struct shunt_comm *comm, void *ptr,
                                          size_t bytes);
/* False: no memory at `ptr` is registered. */
bool shunti_registration_remove(struct shunt_comm *comm, const void *ptr);

/* Deregister all of it, with the communicator. */
void shunti_registrations_finish(struct shunt_comm *comm);

#endif
