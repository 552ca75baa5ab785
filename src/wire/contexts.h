// SPDX-License-Identifier: Apache-2.0
/*
 * The open transports of a communicator, all at once: drive their progress, ask
 * whether they still have something to send, interrupt a sleep on them.
 */
#ifndef SHUNTI_CONTEXTS_H
#define SHUNTI_CONTEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>
#include <shunt/transport.h>

struct shunt_comm;
struct shunti_segment;

/* An open transport. */
struct shunti_context {
    const struct shunt_transport *transport;
    struct shunt_transport_ctx *ctx;
    /* registration of this rank's control window */
    struct shunt_transport_reg *control_reg;
    /* outboxes of the peers that this transport reaches (outbox.h); NULL: it
     * has none */
    unsigned char *outboxes;
    size_t outbox_bytes;
    struct shunt_transport_reg *outbox_reg; /* NULL: not registered */
};

/* Part of a communicator: its open transports. init_connect.c opens them.
 * contexts.c writes the counters, and so does window_alloc.c, which drives some
 * transports itself. wire.c sets `full`, and wait.c clears it. */
struct shunti_contexts {
    struct shunti_context *all; /* (count) */
    size_t count;
    /* number of events that calls of progress() have reported */
    uint64_t events;
    uint64_t looks; /* number of calls of shunti_transports_progress() */
    /* a transport had no room for a put or get; the caller must try it again
     * soon */
    bool full;
    /* latest timeline entry: the bytes sent, and the time of the entry */
    uint64_t counted, counted_ns;
};

/* Call the progress() of all transports. */
void shunti_transports_progress(struct shunt_comm *comm);

/* Has this rank sent every put? Then no transport needs further calls of
 * progress() to send. */
bool shunti_all_sent(const struct shunt_comm *comm);

/* Set parked.unsent: is something left to send? Then this rank must step the
 * communicator even if no operation is under way. */
void shunti_note_unsent(struct shunt_comm *comm);

/* Interrupt a wait that sleeps on this communicator. Any thread may call
 * this. */
void shunti_wake_self(struct shunt_comm *comm);

/* Register a segment with an open transport. The registration then holds the
 * segment, until the transport is done with it. */
enum shunt_status shunti_context_register(struct shunti_context *context,
                                          struct shunti_segment *segment,
                                          void *key, size_t *key_len,
                                          struct shunt_transport_reg **reg);

#endif
