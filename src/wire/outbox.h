// SPDX-License-Identifier: Apache-2.0
/*
 * Outboxes: for each peer whose memory is not mapped, a copy of what this rank
 * puts to that peer's control window. The outboxes of one transport are
 * contiguous, and registered with it. So the memory of a put need not be
 * registered each time.
 */
#ifndef SHUNTI_OUTBOX_H
#define SHUNTI_OUTBOX_H

#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunti_context;
struct shunt_transport_reg;

/* Create each peer's outbox. Call this when the endpoints are connected and the
 * layout of control windows is computed. */
enum shunt_status shunti_outboxes_create(struct shunt_comm *comm);
/* Free the outboxes. The transports must be closed, because puts that are still
 * under way after a failure read from the outboxes. */
void shunti_outboxes_free(struct shunt_comm *comm);

/* The registration of memory in an outbox. NULL if the memory is in no outbox,
 * or the outboxes are not registered. */
struct shunt_transport_reg *
shunti_outbox_reg(const struct shunti_context *context, const void *memory);

#endif
