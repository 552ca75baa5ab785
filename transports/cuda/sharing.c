// SPDX-License-Identifier: Apache-2.0
/*
 * Shares memory of the device with other processes; see sharing.h.
 *
 * The driver's handle is for a whole allocation, so the engine's handle adds
 * the offset of the memory in its allocation. Opening the same handle again
 * returns the same address. A handle must be closed as often as it was opened.
 */
#include "transports/cuda/sharing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/engine.h>

#include "transports/cuda/copies.h"
#include "transports/cuda/driver.h"

struct handle {
    struct cuda_ipc_handle ipc;
    uint64_t offset;
};
_Static_assert(sizeof(struct handle) <= SHUNT_ENGINE_HANDLE_BYTES,
               "a handle has room");

struct cuda_opened {
    uint64_t base, memory;
    struct cuda_opened *next;
};

/* Returns SHUNT_ERR_UNSUPPORTED, which is not a failure, for the results of
 * devices that cannot share memory. */
static enum shunt_status status_of(int result)
{
    switch (result) {
    case CUDA_OK:
        return SHUNT_OK;
    case CUDA_PEER_ACCESS_UNSUPPORTED:
    case CUDA_TOO_MANY_PEERS:
    case CUDA_NOT_SUPPORTED:
        return SHUNT_ERR_UNSUPPORTED;
    case CUDA_OUT_OF_MEMORY:
        return SHUNT_ERR_MEMORY;
    default:
        return SHUNT_ERR_SYSTEM;
    }
}

static enum shunt_status say(const struct shunt_engine_ctx *ctx,
                             const char *call, int result, char *why,
                             size_t why_len)
{
    if (result)
        cuda_driver_say(ctx->driver, call, result, why, why_len);
    return status_of(result);
}

static bool can(const struct shunt_engine_ctx *ctx, char *why, size_t why_len)
{
    const struct cuda_driver *d = ctx->driver;
    const bool has =
        d->address_range && d->ipc_get && d->ipc_open && d->ipc_close;

    if (!has)
        snprintf(why, why_len, "this driver has no IPC handles");
    return has;
}

static int get(const struct cuda_driver *driver, uint64_t memory,
               struct handle *handle, const char **call)
{
    uint64_t base = 0;
    size_t bytes = 0;
    int result = driver->address_range(&base, &bytes, memory);

    *call = "cuMemGetAddressRange";
    if (result)
        return result;
    handle->offset = memory - base;
    *call = "cuIpcGetMemHandle";
    return driver->ipc_get(&handle->ipc, base);
}

static enum shunt_status share(struct shunt_engine_ctx *ctx, const void *memory,
                               unsigned char bytes[SHUNT_ENGINE_HANDLE_BYTES],
                               char *why, size_t why_len)
{
    const struct cuda_driver *driver = ctx->driver;
    struct handle handle = {0};
    const char *call = "cuCtxPushCurrent";
    void *ours;
    int result;

    if (!can(ctx, why, why_len))
        return SHUNT_ERR_UNSUPPORTED;
    result = driver->context_push(ctx->context);
    if (!result) {
        result = get(driver, cuda_address(memory), &handle, &call);
        (void)driver->context_pop(&ours);
    }
    memset(bytes, 0, SHUNT_ENGINE_HANDLE_BYTES);
    memcpy(bytes, &handle, sizeof(handle));
    return say(ctx, call, result, why, why_len);
}

static enum shunt_status
open_one(struct shunt_engine_ctx *ctx,
         const unsigned char bytes[SHUNT_ENGINE_HANDLE_BYTES], void **memory,
         char *why, size_t why_len)
{
    const struct cuda_driver *driver = ctx->driver;
    struct cuda_opened *opened;
    struct handle handle;
    const char *call = "cuCtxPushCurrent";
    void *ours;
    int result;

    *memory = NULL;
    if (!can(ctx, why, why_len))
        return SHUNT_ERR_UNSUPPORTED;
    opened = calloc(1, sizeof(*opened));
    if (!opened) {
        snprintf(why, why_len, "no memory");
        return SHUNT_ERR_MEMORY;
    }
    memcpy(&handle, bytes, sizeof(handle));
    result = driver->context_push(ctx->context);
    if (!result) {
        call = "cuIpcOpenMemHandle";
        result = driver->ipc_open(&opened->base, handle.ipc,
                                  CUDA_IPC_LAZY_PEER_ACCESS);
        (void)driver->context_pop(&ours);
    }
    if (result) {
        free(opened);
        return say(ctx, call, result, why, why_len);
    }
    opened->memory = opened->base + handle.offset;
    *memory = (void *)(uintptr_t)opened->memory;
    pthread_mutex_lock(&ctx->lock);
    opened->next = ctx->opened;
    ctx->opened = opened;
    pthread_mutex_unlock(&ctx->lock);
    return SHUNT_OK;
}

static struct cuda_opened *take(struct shunt_engine_ctx *ctx, uint64_t memory)
{
    struct cuda_opened **at, *opened;

    pthread_mutex_lock(&ctx->lock);
    at = &ctx->opened;
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    opened = *at;
    if (opened)
        *at = opened->next;
    pthread_mutex_unlock(&ctx->lock);
    return opened;
}

/* Close memory of another process. The driver waits for the device in this
 * call, so memory stays open if the device hangs. */
static void close_one(struct shunt_engine_ctx *ctx, void *memory)
{
    struct cuda_opened *opened = take(ctx, cuda_address(memory));
    void *ours;

    if (!opened)
        return;
    if (!atomic_load_explicit(&ctx->hangs, memory_order_acquire) &&
        !ctx->driver->context_push(ctx->context)) {
        (void)ctx->driver->ipc_close(opened->base);
        (void)ctx->driver->context_pop(&ours);
    }
    free(opened);
}

const struct shunt_engine_sharing cuda_sharing = {
    .share = share,
    .open = open_one,
    .close = close_one,
};
