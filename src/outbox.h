// SPDX-License-Identifier: Apache-2.0
/*
 * Outboxes: for each peer whose memory is not mapped, an image of what this rank
 * puts into that peer's control window. Those of one transport lie together and
 * are registered with it, so that a NIC need not register what is put.
 */
#ifndef SHUNTI_OUTBOX_H
#define SHUNTI_OUTBOX_H

#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunti_context;
struct shunt_transport_reg;

/* Each peer's outbox. Endpoints and layout are known. */
enum shunt_status shunti_outboxes_create(struct shunt_comm *comm);
/* Free them; the transports are closed: what a failure left on its way was being
 * sent from there. */
void shunti_outboxes_free(struct shunt_comm *comm);

/* The registration of memory in an outbox; NULL: it is elsewhere. */
struct shunt_transport_reg *
shunti_outbox_reg(const struct shunti_context *context, const void *memory);

#endif
