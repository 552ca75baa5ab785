// SPDX-License-Identifier: Apache-2.0
/* Registrations and remotes. The owner finds memory by a number (regions.h). */
#include <stdlib.h>
#include <string.h>

#include "transports/tcp/tcp.h"

static const char key_magic[8] = "tcpmem1";

enum shunt_status tcp_reg(struct shunt_transport_ctx *ctx,
                          const struct shunt_transport_memory *memory,
                          void *blob, size_t *len,
                          struct shunt_transport_reg **out)
{
    struct shunt_transport_reg *reg;
    struct transport_key key;

    if (*len < sizeof(key))
        return tcp_fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes %zu bytes",
                        sizeof(key));
    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY)
        return tcp_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                        "only the host's memory can be registered");
    reg = calloc(1, sizeof(*reg));
    if (reg)
        reg->region.memory = *memory;
    if (!reg || !transport_region_add(&ctx->regs, &reg->region)) {
        free(reg);
        return tcp_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    }
    transport_region_key(&reg->region, key_magic, &key);
    memcpy(blob, &key, sizeof(key));
    *len = sizeof(key);
    *out = reg;
    return SHUNT_OK;
}

void tcp_reg_hold(struct shunt_transport_reg *reg)
{
    if (reg)
        reg->region.refs++;
}

/* Drop a reference. Dropping the last one returns the memory to its owner. */
void tcp_reg_drop(struct shunt_transport_reg *reg)
{
    if (!reg || --reg->region.refs > 0)
        return;
    if (reg->region.memory.done && !reg->region.memory.brief)
        reg->region.memory.done(reg->region.memory.arg);
    free(reg);
}

void tcp_dereg(struct shunt_transport_ctx *ctx, struct shunt_transport_reg *reg)
{
    transport_region_remove(&ctx->regs, &reg->region);
    tcp_reg_drop(reg);
}

struct shunt_transport_reg *tcp_reg_find(struct shunt_transport_ctx *ctx,
                                         uint64_t id)
{
    return (struct shunt_transport_reg *)(void *)transport_region_find(
        &ctx->regs, id);
}

enum shunt_status tcp_import(struct shunt_transport_ep *ep, const void *key,
                             size_t len, struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote = calloc(1, sizeof(*remote));

    if (!remote)
        return tcp_fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    if (!transport_far_read(&remote->far, key_magic, key, len)) {
        free(remote);
        return tcp_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "rank %d: malformed memory key", ep->peer);
    }
    transport_link_add(&ep->remotes, &remote->far.link);
    *out = remote;
    return SHUNT_OK;
}

void tcp_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote)
{
    transport_link_remove(&ep->remotes, &remote->far.link);
    free(remote);
}
