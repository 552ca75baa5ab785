// SPDX-License-Identifier: Apache-2.0
/*
 * The open transports of a communicator, all at once: let them progress, ask
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
    struct shunt_transport_reg *control_reg; /* of our control window */
    unsigned char *outboxes; /* of its peers: outbox.h; NULL: none */
    size_t outbox_bytes;
    struct shunt_transport_reg *outbox_reg; /* NULL: not registered */
};

/* Those of a communicator. init_connect.c opens them; contexts.c counts, and
 * window_alloc.c where it makes one of them progress by itself. */
struct shunti_contexts {
    struct shunti_context *all; /* (count) */
    size_t count;
    uint64_t events; /* that their progress has reported */
    uint64_t looks;  /* calls of shunti_transports_progress() */
};

/* Let all transports progress. */
void shunti_transports_progress(struct shunt_comm *comm);

/* Has every put left this rank for good, needing nothing more of it? */
bool shunti_all_sent(const struct shunt_comm *comm);

/* Keep the answer in aside.unsent: while something is left, this rank has to
 * step the communicator even if no operation is under way there. */
void shunti_note_unsent(struct shunt_comm *comm);

/* Interrupt a sleeping wait of this communicator; from any thread. */
void shunti_wake_self(struct shunt_comm *comm);

/* Register a segment with an open transport, which then counts as a user. */
enum shunt_status shunti_context_register(struct shunti_context *context,
                                          struct shunti_segment *segment,
                                          void *key, size_t *key_len,
                                          struct shunt_transport_reg **reg);

#endif
