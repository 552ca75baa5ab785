// SPDX-License-Identifier: Apache-2.0
/*
 * Registrations and remotes. The owner finds memory by a number (regions.h).
 * The memory is mapped with UCP before the first put, because some fabrics need
 * that.
 */
#include <stdlib.h>
#include <string.h>

#include "transports/ucx/ucx.h"

static const char key_magic[8] = "ucxmem1";

enum shunt_status ucx_reg(struct shunt_transport_ctx *ctx,
                          const struct shunt_transport_memory *memory,
                          void *blob, size_t *len,
                          struct shunt_transport_reg **out)
{
    ucp_mem_map_params_t params = {
        .field_mask =
            UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = memory->addr,
        .length = memory->bytes,
    };
    struct shunt_transport_reg *reg;
    struct transport_key key;
    ucs_status_t st;

    if (*len < sizeof(key))
        return ucx_fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes %zu bytes",
                        sizeof(key));
    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY)
        return ucx_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                        "only the host's memory can be registered");
    reg = calloc(1, sizeof(*reg));
    if (!reg)
        return ucx_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    reg->region.memory = *memory;
    reg->ucp = ctx->ucp;
    /* UCP maps brief memory by itself if the fabric needs that. */
    if (memory->bytes && !memory->brief) {
        st = ucp_mem_map(ctx->ucp, &params, &reg->handle);
        if (st != UCS_OK) {
            free(reg);
            return ucx_fail(ctx, SHUNT_ERR_SYSTEM,
                            "UCX cannot register %zu bytes: %s; is `ulimit -l` "
                            "large enough?",
                            memory->bytes, ucs_status_string(st));
        }
    }
    if (!transport_region_add(&ctx->regs, &reg->region)) {
        if (reg->handle)
            ucp_mem_unmap(ctx->ucp, reg->handle);
        free(reg);
        return ucx_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    }
    transport_region_key(&reg->region, key_magic, &key);
    memcpy(blob, &key, sizeof(key));
    *len = sizeof(key);
    *out = reg;
    return SHUNT_OK;
}

void ucx_reg_hold(struct shunt_transport_reg *reg)
{
    if (reg)
        reg->region.refs++;
}

/* Drop a reference. Dropping the last one returns the memory to its owner. */
void ucx_reg_drop(struct shunt_transport_reg *reg)
{
    if (!reg || --reg->region.refs > 0)
        return;
    if (reg->handle)
        ucp_mem_unmap(reg->ucp, reg->handle);
    if (reg->region.memory.done && !reg->region.memory.brief)
        reg->region.memory.done(reg->region.memory.arg);
    free(reg);
}

void ucx_dereg(struct shunt_transport_ctx *ctx, struct shunt_transport_reg *reg)
{
    transport_region_remove(&ctx->regs, &reg->region);
    ucx_reg_drop(reg);
}

struct shunt_transport_reg *ucx_reg_find(struct shunt_transport_ctx *ctx,
                                         uint64_t id)
{
    return (struct shunt_transport_reg *)(void *)transport_region_find(
        &ctx->regs, id);
}

enum shunt_status ucx_import(struct shunt_transport_ep *ep, const void *key,
                             size_t len, struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote = calloc(1, sizeof(*remote));

    if (!remote)
        return ucx_fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    if (!transport_far_read(&remote->far, key_magic, key, len)) {
        free(remote);
        return ucx_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "rank %d: malformed memory key", ep->peer);
    }
    transport_link_add(&ep->remotes, &remote->far.link);
    *out = remote;
    return SHUNT_OK;
}

void ucx_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote)
{
    transport_link_remove(&ep->remotes, &remote->far.link);
    free(remote);
}
