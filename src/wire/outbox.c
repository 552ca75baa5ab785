// SPDX-License-Identifier: Apache-2.0
/* Outboxes; see outbox.h. */
#include "src/wire/outbox.h"

#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm.h"

static bool has_outbox(const struct shunt_comm *comm, int peer,
                       const struct shunti_context *context)
{
    return comm->peers[peer].context == context && !comm->peers[peer].control;
}

/* Register the outboxes. A failure is only logged, because puts work without a
 * registration. */
static void register_outboxes(struct shunti_context *context)
{
    const struct shunt_transport_memory memory = {
        .addr = context->outboxes,
        .bytes = context->outbox_bytes,
        .fd = -1,
    };
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t key_bytes = sizeof(key);
    enum shunt_status st = context->transport->reg(
        context->ctx, &memory, key, &key_bytes, &context->outbox_reg);

    if (st)
        context->outbox_reg = NULL;
    if (st && st != SHUNT_ERR_UNSUPPORTED)
        shunti_info("comm", "outboxes of %zu bytes are not registered: %s",
                    context->outbox_bytes,
                    context->transport->error(context->ctx));
}

static enum shunt_status create(struct shunt_comm *comm,
                                struct shunti_context *context, size_t stride)
{
    size_t count = 0;
    unsigned char *next;

    for (int r = 0; r < comm->nranks; r++)
        count += has_outbox(comm, r, context);
    if (!count)
        return SHUNT_OK;
    context->outbox_bytes = count * stride;
    context->outboxes = calloc(count, stride);
    if (!context->outboxes)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    next = context->outboxes;
    for (int r = 0; r < comm->nranks; r++) {
        if (!has_outbox(comm, r, context))
            continue;
        comm->peers[r].outbox = next;
        next += stride;
    }
    register_outboxes(context);
    return SHUNT_OK;
}

enum shunt_status shunti_outboxes_create(struct shunt_comm *comm)
{
    const size_t stride =
        comm->control.layout.inbox_stride + comm->control.layout.ring_stride;
    enum shunt_status st = SHUNT_OK;

    for (size_t i = 0; !st && i < comm->contexts.count; i++)
        st = create(comm, &comm->contexts.all[i], stride);
    return st;
}

void shunti_outboxes_free(struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->contexts.count; i++)
        free(comm->contexts.all[i].outboxes);
}

struct shunt_transport_reg *
shunti_outbox_reg(const struct shunti_context *context, const void *memory)
{
    const uintptr_t at = (uintptr_t)memory, from = (uintptr_t)context->outboxes;

    return at - from < context->outbox_bytes ? context->outbox_reg : NULL;
}
