// SPDX-License-Identifier: Apache-2.0
/*
 * Registrations and remotes. A remote has the address and the keys with which
 * NICs write to the memory. It has the number by which the owner finds the
 * memory of a record (regions.h). It also has the remote of tcp, for puts
 * without rails (rare_puts.c).
 *
 * A NIC or PCI may place the bytes of a payload in any order (relaxed
 * ordering), because no rank reads the payload before its completions have
 * arrived.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

static const char key_magic[8] = "rdmamem4";

struct key {
    struct transport_key key; /* first */
    uint64_t addr;
    uint64_t piece : 55;
    uint64_t tcp_len : 8;
    uint64_t brief : 1;
};

/* `struct key` is followed by the key of each piece, for each NIC of the owner,
 * and then by the key of tcp. */
#define KEY_ROOM ((SHUNT_TRANSPORT_KEY_MAX - sizeof(struct key)) / 4)

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

static enum shunt_status fail_reg(struct shunt_transport_ctx *ctx, size_t bytes,
                                  size_t most)
{
    if (errno != E2BIG)
        return rdma_fail_registration(ctx, bytes, errno);
    return rdma_fail(
        ctx, SHUNT_ERR_UNSUPPORTED,
        "%s: %zu bytes cannot be registered: it takes %zu at once, "
        "and with %d devices there may be %zu such pieces; use "
        "less memory, fewer devices (SHUNT_RDMA_DEVICE), or ucx: "
        "SHUNT_TRANSPORTS=shm,ucx",
        ctx->nics[0].name, bytes, ctx->piece, ctx->nic_count, most);
}

static void tcp_is_done(void *reg)
{
    rdma_reg_drop(reg);
}

/* Register memory with tcp, by which rare puts arrive. Sets `key` to the key of
 * tcp. */
static enum shunt_status register_with_tcp(struct shunt_transport_ctx *ctx,
                                           struct shunt_transport_reg *reg,
                                           void *key, size_t *key_len)
{
    const struct shunt_transport_memory memory = {
        .addr = reg->region.memory.addr,
        .bytes = reg->region.memory.bytes,
        .fd = -1,
        .done = tcp_is_done,
        .arg = reg,
    };
    enum shunt_status status;

    if (reg->region.memory.brief || reg->pieces.count != 1) {
        *key_len = 0;
        return SHUNT_OK;
    }
    status = ctx->tcp->reg(ctx->tcp_ctx, &memory, key, key_len, &reg->tcp);
    if (status)
        return rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx));
    reg->region.refs++;
    return SHUNT_OK;
}

/* Write the key of a registration. Returns its length. */
static size_t write_key(const struct shunt_transport_ctx *ctx,
                        const struct shunt_transport_reg *reg,
                        const void *tcp_key, size_t tcp_len, void *blob)
{
    const struct rdma_pieces *pieces = &reg->pieces;
    const size_t count = pieces->count * (size_t)ctx->nic_count;
    struct key key = {.addr = (uint64_t)(uintptr_t)pieces->addr,
                      .piece = pieces->piece,
                      .tcp_len = (uint8_t)tcp_len,
                      .brief = reg->region.memory.brief};
    uint32_t rkeys[KEY_ROOM];

    transport_region_key(&reg->region, key_magic, &key.key);
    for (size_t k = 0; k < count; k++) {
        struct ibv_mr *const *mr = pieces->mr[k / pieces->count];

        rkeys[k] = mr ? mr[k % pieces->count]->rkey : 0;
    }
    memcpy(blob, &key, sizeof(key));
    memcpy((unsigned char *)blob + sizeof(key), rkeys, count * 4);
    memcpy((unsigned char *)blob + sizeof(key) + count * 4, tcp_key, tcp_len);
    return sizeof(key) + count * 4 + tcp_len;
}

enum shunt_status rdma_reg(struct shunt_transport_ctx *ctx,
                           const struct shunt_transport_memory *memory,
                           void *blob, size_t *len,
                           struct shunt_transport_reg **out)
{
    const size_t most = KEY_ROOM / (size_t)ctx->nic_count;
    /* A key has room for this behind the keys of one piece for each NIC. */
    unsigned char
        tcp_key[SHUNT_TRANSPORT_KEY_MAX - sizeof(struct key) - 4 * RDMA_RAILS];
    size_t tcp_len = sizeof(tcp_key);
    struct shunt_transport_reg *reg;
    enum shunt_status status;

    if (*len < SHUNT_TRANSPORT_KEY_MAX)
        return rdma_fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes up to %d bytes",
                         SHUNT_TRANSPORT_KEY_MAX);
    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "only the host's memory can be registered");
    reg = calloc(1, sizeof(*reg));
    if (!reg)
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    reg->region.memory = *memory;
    if (memory->bytes &&
        !rdma_pieces_register(ctx, NULL, &reg->pieces, memory->addr,
                              memory->bytes,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_RELAXED_ORDERING,
                              most)) {
        free(reg);
        return fail_reg(ctx, memory->bytes, most);
    }
    if (!transport_region_add(&ctx->regs, &reg->region)) {
        rdma_pieces_unregister(&reg->pieces);
        free(reg);
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    }
    status = register_with_tcp(ctx, reg, tcp_key, &tcp_len);
    if (status) {
        transport_region_remove(&ctx->regs, &reg->region);
        rdma_pieces_unregister(&reg->pieces);
        free(reg);
        return status;
    }
    *len = write_key(ctx, reg, tcp_key, tcp_len, blob);
    *out = reg;
    return SHUNT_OK;
}

void rdma_reg_give_back(struct shunt_transport_reg *reg)
{
    if (reg && reg->region.memory.done && !reg->region.memory.brief)
        reg->region.memory.done(reg->region.memory.arg);
    if (reg)
        reg->region.memory.done = NULL;
}

/* Drop a reference. Dropping the last one ends the registration. No NIC
 * accesses the memory any more then, so it is returned to its owner. */
void rdma_reg_drop(struct shunt_transport_reg *reg)
{
    if (!reg || --reg->region.refs > 0)
        return;
    rdma_pieces_unregister(&reg->pieces);
    rdma_reg_give_back(reg);
    free(reg);
}

void rdma_dereg(struct shunt_transport_ctx *ctx,
                struct shunt_transport_reg *reg)
{
    struct shunt_transport_reg *tcp = reg->tcp;

    transport_region_remove(&ctx->regs, &reg->region);
    reg->tcp = NULL;
    if (tcp)
        ctx->tcp->dereg(ctx->tcp_ctx, tcp);
    rdma_reg_drop(reg);
}

/* Read the key of a peer's memory in `*count` pieces, for `*nics` NICs of the
 * peer. False: the key is malformed. */
static bool read_key(struct key *key, const void *blob, size_t len,
                     size_t *count, size_t *nics)
{
    if (len < sizeof(*key))
        return false;
    memcpy(key, blob, sizeof(*key));
    *count = *nics = 0;
    if (len - sizeof(*key) < key->tcp_len)
        return false;
    len -= key->tcp_len;
    if (!key->key.bytes)
        return len == sizeof(*key);
    if (!key->piece || (key->key.bytes - 1) / key->piece >= KEY_ROOM)
        return false;
    *count = (size_t)((key->key.bytes - 1) / key->piece) + 1;
    *nics = (len - sizeof(*key)) / 4 / *count;
    return *nics >= 1 && *nics <= RDMA_RAILS &&
           len == sizeof(*key) + 4 * *nics * *count;
}

/* Import the memory with tcp by `key`, the key of tcp. */
static enum shunt_status import_with_tcp(struct shunt_transport_ep *ep,
                                         const unsigned char *key, size_t len,
                                         struct shunt_transport_remote **tcp)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    enum shunt_status status =
        len ? ctx->tcp->import(ep->tcp, key, len, tcp) : SHUNT_OK;

    return status ? rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx))
                  : SHUNT_OK;
}

enum shunt_status rdma_import(struct shunt_transport_ep *ep, const void *blob,
                              size_t len, struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote = NULL;
    enum shunt_status status;
    size_t count, nics;
    struct key key;

    if (!read_key(&key, blob, len, &count, &nics))
        return rdma_fail(ep->ctx, SHUNT_ERR_INVALID,
                         "rank %d: malformed memory key", ep->peer);
    remote = calloc(1, sizeof(*remote) + 4 * RDMA_RAILS * count);
    if (!remote)
        return rdma_fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    if (!transport_far_read(&remote->far, key_magic, &key.key,
                            sizeof(key.key))) {
        free(remote);
        return rdma_fail(ep->ctx, SHUNT_ERR_INVALID,
                         "rank %d: malformed memory key", ep->peer);
    }
    status =
        import_with_tcp(ep, (const unsigned char *)blob + len - key.tcp_len,
                        key.tcp_len, &remote->tcp);
    if (status) {
        free(remote);
        return status;
    }
    remote->refs = 1;
    remote->addr = key.addr;
    remote->brief = key.brief;
    remote->piece = key.piece;
    remote->count = count;
    memcpy(remote->key, (const unsigned char *)blob + sizeof(key),
           4 * nics * count);
    transport_link_add(&ep->remotes, &remote->far.link);
    *out = remote;
    return SHUNT_OK;
}

void rdma_remote_drop(struct shunt_transport_remote *remote)
{
    if (--remote->refs == 0)
        free(remote);
}

void rdma_release(struct shunt_transport_ep *ep,
                  struct shunt_transport_remote *remote)
{
    transport_link_remove(&ep->remotes, &remote->far.link);
    if (remote->tcp && ep->ctx->tcp_ctx)
        ep->ctx->tcp->release(ep->tcp, remote->tcp);
    remote->tcp = NULL;
    rdma_remote_drop(remote);
}
