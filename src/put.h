// SPDX-License-Identifier: Apache-2.0
/*
 * Writing to a peer's memory by its transport: the only callers of a transport's
 * put are here.
 */
#ifndef SHUNTI_PUT_H
#define SHUNTI_PUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

struct shunt_comm;

/* Put; false: no room now, try again. That a peer is lost is noted, and found by
 * whatever awaits something of it; other errors end the communicator. */
bool shunti_put(struct shunt_comm *comm, int peer,
                const struct shunt_transport_put *put);

/* Write `bytes` at `offset` of the peer's control window, then raise the word
 * at `signal_offset` to `value`. `local` stays unchanged until the peer has
 * reacted. */
void shunti_control_put(struct shunt_comm *comm, int peer, size_t offset,
                        const void *local, size_t bytes, size_t signal_offset,
                        uint64_t value);

/* Try again what the transport had no room for. */
void shunti_control_retry(struct shunt_comm *comm);
/* Forget what could not be put; at the end. */
void shunti_control_forget(struct shunt_comm *comm);

#endif
