// SPDX-License-Identifier: Apache-2.0
/*
 * The door to the wire: writing to a peer's memory, and reading it, by its
 * transport. The only callers of a transport's put() and get() are here; copies
 * by an engine are in engine.h.
 */
#ifndef SHUNTI_WIRE_H
#define SHUNTI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

struct shunt_comm;
struct shunti_deferred_put;

/* Of a communicator: puts to control windows that a transport had no room for
 * yet, in order. wire.c writes it. */
struct shunti_deferred {
    struct shunti_deferred_put *first, **tail;
};

/* Put; false: no room now, try again. That a peer is lost is noted, and found
 * by whatever awaits something of it; other errors end the communicator. */
bool shunti_put(struct shunt_comm *comm, int peer,
                const struct shunt_transport_put *put);

/* Get; SHUNT_IN_PROGRESS: no room now, try again. An error, here or in
 * get->status, is the caller's to tell: it may concern one operation alone. */
enum shunt_status shunti_get(struct shunt_comm *comm, int peer,
                             const struct shunt_transport_get *get);

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
