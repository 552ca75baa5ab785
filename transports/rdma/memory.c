// SPDX-License-Identifier: Apache-2.0
/*
 * Registrations and remotes. A remote has the address and the key with which the
 * NIC writes there, and the number by which the owner looks up what it writes
 * itself (regions.h).
 *
 * Payload may be placed in any order, also by PCI (relaxed ordering): no rank looks
 * at it before its completions have come.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

static const char key_magic[8] = "rdmamem3";

struct key {
    struct transport_key key; /* first */
    uint64_t addr;
    uint32_t rkey[RDMA_RAILS]; /* of each NIC of the owner */
    uint32_t brief;
};

void rdma_unregister(struct ibv_mr **mr)
{
    for (int n = 0; n < RDMA_RAILS; n++) {
        if (mr[n])
            ibv_dereg_mr(mr[n]);
        mr[n] = NULL;
    }
}

bool rdma_register(struct shunt_transport_ctx *ctx, void *addr, size_t bytes,
                   int access, struct ibv_mr **mr)
{
    for (int n = 0; n < ctx->nic_count; n++) {
        if (ctx->nics[n].dead)
            continue;
        mr[n] = ibv_reg_mr(ctx->nics[n].pd, addr, bytes, access);
        if (!mr[n]) {
            const int error = errno;

            rdma_unregister(mr);
            errno = error;
            return false;
        }
    }
    return true;
}

enum shunt_status rdma_fail_registration(struct shunt_transport_ctx *ctx,
                                         size_t bytes, int error)
{
    return rdma_fail(ctx, SHUNT_ERR_SYSTEM,
                     "%s: %zu bytes cannot be registered with the NIC, whose "
                     "pages stay in memory: %s; raise `ulimit -l` (in "
                     "/etc/security/limits.conf: `* - memlock unlimited`), "
                     "use fewer devices (SHUNT_RDMA_DEVICE), or ucx: "
                     "SHUNT_TRANSPORTS=shm,ucx",
                     ctx->nics[0].name, bytes, strerror(error));
}

enum shunt_status rdma_reg(struct shunt_transport_ctx *ctx,
                           const struct shunt_transport_memory *memory,
                           void *blob, size_t *len,
                           struct shunt_transport_reg **out)
{
    struct shunt_transport_reg *reg;
    struct key key = {.addr = 0};

    if (*len < sizeof(key))
        return rdma_fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes %zu bytes",
                         sizeof(key));
    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "only the host's memory can be registered");
    reg = calloc(1, sizeof(*reg));
    if (!reg)
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    reg->region.memory = *memory;
    if (memory->bytes) {
        if (!rdma_register(ctx, memory->addr, memory->bytes,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_RELAXED_ORDERING,
                           reg->mr)) {
            const int error = errno;

            free(reg);
            return rdma_fail_registration(ctx, memory->bytes, error);
        }
        key.addr = (uint64_t)(uintptr_t)memory->addr;
        for (int n = 0; n < ctx->nic_count; n++)
            key.rkey[n] = reg->mr[n] ? reg->mr[n]->rkey : 0;
    }
    if (!transport_region_add(&ctx->regs, &reg->region)) {
        rdma_unregister(reg->mr);
        free(reg);
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    }
    transport_region_key(&reg->region, key_magic, &key.key);
    key.brief = memory->brief;
    memcpy(blob, &key, sizeof(key));
    *len = sizeof(key);
    *out = reg;
    return SHUNT_OK;
}

/* The last reference ends the registration: no NIC accesses the memory then, and
 * it goes back to its owner. */
void rdma_reg_drop(struct shunt_transport_reg *reg)
{
    if (!reg || --reg->region.refs > 0)
        return;
    rdma_unregister(reg->mr);
    if (reg->region.memory.done && !reg->region.memory.brief)
        reg->region.memory.done(reg->region.memory.arg);
    free(reg);
}

void rdma_dereg(struct shunt_transport_ctx *ctx,
                struct shunt_transport_reg *reg)
{
    transport_region_remove(&ctx->regs, &reg->region);
    rdma_reg_drop(reg);
}

enum shunt_status rdma_import(struct shunt_transport_ep *ep, const void *blob,
                              size_t len, struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote = calloc(1, sizeof(*remote));
    struct key key;

    if (!remote)
        return rdma_fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    if (len == sizeof(key))
        memcpy(&key, blob, sizeof(key));
    if (len != sizeof(key) || !transport_far_read(&remote->far, key_magic,
                                                  &key.key, sizeof(key.key))) {
        free(remote);
        return rdma_fail(ep->ctx, SHUNT_ERR_INVALID,
                         "rank %d: malformed memory key", ep->peer);
    }
    remote->addr = key.addr;
    memcpy(remote->key, key.rkey, sizeof(remote->key));
    remote->brief = key.brief;
    transport_link_add(&ep->remotes, &remote->far.link);
    *out = remote;
    return SHUNT_OK;
}

void rdma_release(struct shunt_transport_ep *ep,
                  struct shunt_transport_remote *remote)
{
    transport_link_remove(&ep->remotes, &remote->far.link);
    free(remote);
}
