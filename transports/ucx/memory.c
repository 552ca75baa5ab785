// SPDX-License-Identifier: Apache-2.0
/*
 * Registrations. A key is a number that only its owner can interpret. The owner
 * looks it up for every put that arrives, so no peer writes where nothing is
 * registered. The memory is mapped with UCP, so that a fabric which needs that
 * has it before the first put.
 */
#include <stdlib.h>
#include <string.h>

#include "transports/ucx/ucx.h"

struct key {
    char magic[8];
    uint64_t region;
    uint64_t bytes;
};

static const char key_magic[8] = "ucxmem1";

static bool find_slot(struct shunt_transport_ctx *ctx, size_t *slot)
{
    struct shunt_transport_reg **grown;
    size_t i, n;

    for (i = 0; i < ctx->nregs; i++) {
        if (!ctx->regs[i]) {
            *slot = i;
            return true;
        }
    }
    n = ctx->nregs ? 2 * ctx->nregs : 8;
    grown = realloc(ctx->regs, n * sizeof(*grown));
    if (!grown)
        return false;
    memset(grown + ctx->nregs, 0, (n - ctx->nregs) * sizeof(*grown));
    *slot = ctx->nregs;
    ctx->regs = grown;
    ctx->nregs = n;
    return true;
}

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
    struct key key;
    ucs_status_t st;
    size_t slot;

    if (*len < sizeof(key))
        return ucx_fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes %zu bytes",
                        sizeof(key));
    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY)
        return ucx_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                        "only the host's memory can be registered");
    reg = calloc(1, sizeof(*reg));
    if (!reg || !find_slot(ctx, &slot)) {
        free(reg);
        return ucx_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    }
    reg->memory = *memory;
    reg->refs = 1;
    reg->ucp = ctx->ucp;
    /* UCP maps brief memory itself, if it needs to */
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
    reg->id = ((uint64_t)slot + 1) << 32 | ++ctx->last_reg;
    ctx->regs[slot] = reg;

    memcpy(key.magic, key_magic, sizeof(key.magic));
    key.region = reg->id;
    key.bytes = memory->bytes;
    memcpy(blob, &key, sizeof(key));
    *len = sizeof(key);
    *out = reg;
    return SHUNT_OK;
}

void ucx_reg_hold(struct shunt_transport_reg *reg)
{
    if (reg)
        reg->refs++;
}

/* The last reference gives the memory back to its owner. */
void ucx_reg_drop(struct shunt_transport_reg *reg)
{
    if (!reg || --reg->refs > 0)
        return;
    if (reg->handle)
        ucp_mem_unmap(reg->ucp, reg->handle);
    if (reg->memory.done && !reg->memory.brief)
        reg->memory.done(reg->memory.arg);
    free(reg);
}

void ucx_dereg(struct shunt_transport_ctx *ctx, struct shunt_transport_reg *reg)
{
    ctx->regs[(reg->id >> 32) - 1] = NULL;
    reg->withdrawn = reg->memory.brief;
    ucx_reg_drop(reg);
}

struct shunt_transport_reg *ucx_reg_find(struct shunt_transport_ctx *ctx,
                                         uint64_t id)
{
    uint64_t slot = (id >> 32) - 1;
    struct shunt_transport_reg *reg =
        slot < ctx->nregs ? ctx->regs[slot] : NULL;

    return reg && reg->id == id ? reg : NULL;
}

enum shunt_status ucx_import(struct shunt_transport_ep *ep, const void *blob,
                             size_t len, struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote;
    struct key key;

    if (len == sizeof(key))
        memcpy(&key, blob, sizeof(key));
    if (len != sizeof(key) || memcmp(key.magic, key_magic, sizeof(key.magic)))
        return ucx_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "rank %d: malformed memory key", ep->peer);
    remote = calloc(1, sizeof(*remote));
    if (!remote)
        return ucx_fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    remote->region = key.region;
    remote->bytes = key.bytes;
    transport_link_add(&ep->remotes, &remote->link);
    *out = remote;
    return SHUNT_OK;
}

void ucx_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote)
{
    transport_link_remove(&ep->remotes, &remote->link);
    free(remote);
}
