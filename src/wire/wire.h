// SPDX-License-Identifier: Apache-2.0
/*
 * Writing to a peer's memory, and reading it, by the peer's transport. The only
 * calls of a transport's put() and get() are here. Copies by an engine are in
 * engine.h.
 */
#ifndef SHUNTI_WIRE_H
#define SHUNTI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

struct shunt_comm;
struct shunti_deferred_put;

/* Part of a communicator: puts to control windows that a transport had no room
 * for yet, in order. wire.c writes it. */
struct shunti_deferred {
    struct shunti_deferred_put *first, **tail;
};

/* Put. False: the transport has no room now, and the caller must try again. If
 * the peer is lost, this sets peers[peer].lost, and an operation that waits for
 * the peer fails later. Other errors end the communicator. */
bool shunti_put(struct shunt_comm *comm, int peer,
                const struct shunt_transport_put *put);

/* Get. SHUNT_IN_PROGRESS: the transport has no room now; try again. Errors are
 * returned, or set in get->status. The caller handles both, because an error
 * may concern one operation only. */
enum shunt_status shunti_get(struct shunt_comm *comm, int peer,
                             const struct shunt_transport_get *get);

/* The reason why a peer was lost: a text of the peer's transport, valid until
 * the next call of that transport. NULL: no reason is known. */
const char *shunti_why_lost(const struct shunt_comm *comm, int peer);

/* Write `bytes` at `offset` of the peer's control window, then raise the word
 * at `signal_offset` to `value`. `local` must not change until an answer of the
 * peer shows that it has read the bytes. */
void shunti_control_put(struct shunt_comm *comm, int peer, size_t offset,
                        const void *local, size_t bytes, size_t signal_offset,
                        uint64_t value);
/* The same for `bytes` at `local`, followed in the window by the
 * SHUNT_TRANSPORT_PIECES of `tail`. The pieces may change when this returns.
 * Those that cannot be sent yet are copied behind `local`, which must have room
 * for them. */
void shunti_control_put_tail(struct shunt_comm *comm, int peer, size_t offset,
                             void *local, size_t bytes,
                             const struct shunt_transport_piece *tail,
                             size_t signal_offset, uint64_t value);

/* As shunti_control_put(), but marked `rare` (shunt_transport_put): the put is
 * no reason to connect two ranks that exchange nothing else. */
void shunti_control_put_rare(struct shunt_comm *comm, int peer, size_t offset,
                             const void *local, size_t bytes,
                             size_t signal_offset, uint64_t value);

/* Try again the puts for which a transport had no room. */
void shunti_control_retry(struct shunt_comm *comm);
/* Drop the puts that were not sent. Called at the end of the communicator. */
void shunti_control_forget(struct shunt_comm *comm);

#endif
