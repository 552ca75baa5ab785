// SPDX-License-Identifier: Apache-2.0
/*
 * Registrations. A window is a memfd. reg() sends its descriptor to every peer
 * at once, so that import() needs no further message. A peer keeps each
 * received descriptor with the id of its memory. It does so until it imports
 * the memory, or receives the message that the memory was deregistered.
 *
 * The size is sealed, so that no access to a mapping raises SIGBUS, whatever
 * the peer does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/shm/shm.h"

struct key {
    char magic[8];
    uint64_t id;
    uint64_t bytes;
};

static const char key_magic[8] = "shmmem1";

static bool cannot_shrink(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK);
}

void *shm_memory_create(const char *name, size_t bytes, int *fd)
{
    struct rlimit limit;
    void *map;
    int error;

    *fd = -1;
    /* Growing a file beyond this limit raises a signal, which ends the
     * process. */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && bytes > limit.rlim_cur) {
        errno = EFBIG;
        return NULL;
    }
    *fd = shunti_fd_lift(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (*fd < 0)
        return NULL;
    if (ftruncate(*fd, (off_t)bytes) || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK))
        goto fail;
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (map == MAP_FAILED)
        goto fail;
    return map;

fail:
    error = errno;
    close(*fd);
    *fd = -1;
    errno = error;
    return NULL;
}

void *shm_memory_map(int fd, size_t bytes, size_t *mapped)
{
    struct stat st;
    void *map;

    if (fstat(fd, &st))
        return NULL;
    if (!cannot_shrink(fd) || st.st_size < 0 || (uint64_t)st.st_size < bytes ||
        st.st_size == 0) {
        errno = EINVAL;
        return NULL;
    }
    /* Map the whole file. Its size is a multiple of the page size, also with
     * huge pages. */
    *mapped = (size_t)st.st_size;
    map = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

/* --- memory of this rank -------------------------------------------------- */

static enum shunt_status check(struct shunt_transport_ctx *ctx,
                               const struct shunt_transport_memory *memory)
{
    struct stat st;

    if (memory->kind != SHUNT_TRANSPORT_HOST_MEMORY || memory->fd < 0)
        return shm_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                        "only memory of a memfd can be mapped by others");
    if (fstat(memory->fd, &st))
        return shm_fail(ctx, SHUNT_ERR_INVALID, "memory to register: %s",
                        strerror(errno));
    if ((uint64_t)st.st_size < memory->bytes)
        return shm_fail(ctx, SHUNT_ERR_INVALID,
                        "memory to register: %zu bytes, but its descriptor "
                        "holds %lld",
                        memory->bytes, (long long)st.st_size);
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK) &&
        !cannot_shrink(memory->fd))
        return shm_fail(
            ctx, SHUNT_ERR_INVALID,
            "memory to register: its descriptor is not a memfd made "
            "with MFD_ALLOW_SEALING (%s)",
            strerror(errno));
    return SHUNT_OK;
}

static void send_to_all(struct shunt_transport_ctx *ctx,
                        enum shm_message_type type,
                        const struct shunt_transport_reg *reg, int *fd,
                        int *error)
{
    struct shm_message message = {
        .type = type,
        .u.share = {.id = reg->id, .bytes = reg->memory.bytes},
    };

    for (int i = 0; i < ctx->nranks; i++) {
        struct shunt_transport_ep *ep = ctx->eps[i];

        if (ep && ep->up && ep->link && !*error)
            *error = shm_send(ep->link, &message, fd, fd ? 1 : 0);
    }
}

enum shunt_status shm_reg(struct shunt_transport_ctx *ctx,
                          const struct shunt_transport_memory *memory,
                          void *blob, size_t *len,
                          struct shunt_transport_reg **out)
{
    struct key key = {.bytes = memory->bytes};
    struct shunt_transport_reg *reg;
    enum shunt_status status;
    int fd = memory->fd;
    int error = 0;

    if (*len < sizeof(key))
        return shm_fail(ctx, SHUNT_ERR_OVERFLOW, "a key takes %zu bytes",
                        sizeof(key));
    if (memory->bytes > 0) {
        status = check(ctx, memory);
        if (status)
            return status;
    }
    reg = calloc(1, sizeof(*reg));
    if (!reg)
        return shm_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    reg->memory = *memory;
    reg->id = key.id = ++ctx->last_id;
    if (memory->bytes > 0)
        send_to_all(ctx, SHM_MSG_SHARE, reg, &fd, &error);
    if (error) {
        int ignored = 0;

        /* Otherwise, peers that have received the descriptor would keep it
         * until they close. */
        send_to_all(ctx, SHM_MSG_DROP, reg, NULL, &ignored);
        free(reg);
        return shm_fail(ctx, SHUNT_ERR_SYSTEM,
                        "a descriptor could not be passed to a peer: %s%s",
                        strerror(error), transport_remedy(ctx->host, error));
    }
    reg->next = ctx->regs;
    ctx->regs = reg;
    memcpy(key.magic, key_magic, sizeof(key.magic));
    memcpy(blob, &key, sizeof(key));
    *len = sizeof(key);
    *out = reg;
    return SHUNT_OK;
}

void shm_dereg(struct shunt_transport_ctx *ctx, struct shunt_transport_reg *reg)
{
    int error = 0;

    for (struct shunt_transport_reg **p = &ctx->regs; *p; p = &(*p)->next) {
        if (*p == reg) {
            *p = reg->next;
            break;
        }
    }
    /* A peer that has imported the memory ignores this message. Any other peer
     * closes the descriptor. */
    if (reg->memory.bytes > 0)
        send_to_all(ctx, SHM_MSG_DROP, reg, NULL, &error);
    /* The memory can be returned at once, because peers have their own
     * mappings. */
    if (reg->memory.done)
        reg->memory.done(reg->memory.arg);
    free(reg);
}

/* --- memory of peers ------------------------------------------------------ */

void shm_share_add(struct shunt_transport_ep *ep, uint64_t id, int fd,
                   int reason)
{
    struct shm_share *share = calloc(1, sizeof(*share));

    if (!share) {
        if (fd >= 0)
            close(fd);
        /* import() will not find this share, and must not wait for it */
        ep->unkept = id;
        return;
    }
    share->id = id;
    share->fd = fd;
    share->reason = reason;
    share->next = ep->shares;
    ep->shares = share;
}

static struct shm_share *share_take(struct shunt_transport_ep *ep, uint64_t id)
{
    for (struct shm_share **p = &ep->shares; *p; p = &(*p)->next) {
        struct shm_share *share = *p;

        if (share->id == id) {
            *p = share->next;
            return share;
        }
    }
    return NULL;
}

void shm_share_drop(struct shunt_transport_ep *ep, uint64_t id)
{
    struct shm_share *share = share_take(ep, id);

    if (!share)
        return;
    if (share->fd >= 0)
        close(share->fd);
    free(share);
}

static enum shunt_status share_map(struct shunt_transport_ep *ep,
                                   const struct shm_share *share, size_t bytes,
                                   struct shunt_transport_remote *remote)
{
    int error;

    if (share->fd < 0)
        return shm_fail(ep->ctx, SHUNT_ERR_SYSTEM,
                        "memory of rank %d was lost on the way: %s%s", ep->peer,
                        strerror(share->reason),
                        transport_remedy(ep->ctx->host, share->reason));
    remote->map = shm_memory_map(share->fd, bytes, &remote->mapped);
    if (remote->map)
        return SHUNT_OK;
    error = errno;
    if (error == EINVAL)
        return shm_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "memory of rank %d is not as its key says (%zu bytes, "
                        "sealed)",
                        ep->peer, bytes);
    return shm_fail(ep->ctx, SHUNT_ERR_SYSTEM,
                    "%zu bytes of rank %d's memory could not be mapped: %s%s",
                    bytes, ep->peer, strerror(error),
                    error == ENOMEM ? "; see `ulimit -v` and vm.max_map_count"
                                    : "");
}

enum shunt_status shm_import(struct shunt_transport_ep *ep, const void *blob,
                             size_t len, struct shunt_transport_remote **out)
{
    struct shunt_transport_remote *remote;
    struct shm_share *share = NULL;
    enum shunt_status status = SHUNT_OK;
    struct key key;

    if (len != sizeof(key))
        return shm_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "rank %d: malformed memory key", ep->peer);
    memcpy(&key, blob, sizeof(key));
    if (memcmp(key.magic, key_magic, sizeof(key.magic)))
        return shm_fail(ep->ctx, SHUNT_ERR_INVALID,
                        "rank %d: malformed memory key", ep->peer);
    if (key.bytes > 0) {
        share = share_take(ep, key.id);
        if (!share && ep->link) {
            shm_link_read(ep->link);
            share = share_take(ep, key.id);
        }
        /* Shares arrive in the order of their ids. */
        if (!share && key.id <= ep->unkept)
            return shm_fail(ep->ctx, SHUNT_ERR_MEMORY,
                            "no memory to keep the descriptor of rank %d's "
                            "memory",
                            ep->peer);
        if (!share && ep->link)
            return SHUNT_IN_PROGRESS;
        if (!share)
            return shm_fail(ep->ctx, SHUNT_ERR_PEER, "rank %d is gone",
                            ep->peer);
    }
    remote = calloc(1, sizeof(*remote));
    if (!remote)
        status = shm_fail(ep->ctx, SHUNT_ERR_MEMORY, "out of memory");
    else if (share)
        status = share_map(ep, share, key.bytes, remote);
    if (share) {
        if (share->fd >= 0)
            close(share->fd); /* the mapping keeps the memory */
        free(share);
    }
    if (status) {
        free(remote);
        return status;
    }
    remote->bytes = key.bytes;
    transport_link_add(&ep->remotes, &remote->link);
    *out = remote;
    return SHUNT_OK;
}

void shm_release(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote)
{
    transport_link_remove(&ep->remotes, &remote->link);
    if (remote->map)
        munmap(remote->map, remote->mapped);
    free(remote);
}
