// SPDX-License-Identifier: Apache-2.0
/* Allocates memory of the device, and page-locked memory; see memory.h. */
#include "transports/cuda/memory.h"

#include <stdio.h>

#include <shunt/engine.h>

#include "transports/cuda/copies.h"
#include "transports/cuda/driver.h"

static int take(struct shunt_engine_ctx *ctx,
                enum shunt_transport_memory_kind kind, size_t bytes,
                void **memory, const char **call)
{
    const struct cuda_driver *driver = ctx->driver;
    void *ours;
    uint64_t at = 0;
    int result = driver->context_push(ctx->context);

    *call = "cuCtxPushCurrent";
    if (result)
        return result;
    if (kind == SHUNT_TRANSPORT_HOST_MEMORY) {
        *call = "cuMemHostAlloc";
        result = driver->host_alloc(memory, bytes, CUDA_HOST_PORTABLE);
    } else {
        *call = "cuMemAlloc";
        result = driver->memory_alloc(&at, bytes);
        *memory = (void *)(uintptr_t)at;
    }
    (void)driver->context_pop(&ours);
    return result;
}

static enum shunt_status alloc(struct shunt_engine_ctx *ctx,
                               enum shunt_transport_memory_kind kind,
                               size_t bytes, void **memory, char *why,
                               size_t why_len)
{
    const char *call;
    char text[256];
    int result;

    *memory = NULL;
    result = take(ctx, kind, bytes, memory, &call);
    if (!result)
        return SHUNT_OK;
    *memory = NULL;
    cuda_driver_say(ctx->driver, call, result, text, sizeof(text));
    snprintf(why, why_len, "%zu bytes of %s: %s", bytes,
             kind == SHUNT_TRANSPORT_HOST_MEMORY ? "page-locked memory"
                                                 : "device memory",
             text);
    return result == CUDA_OUT_OF_MEMORY ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM;
}

static void give_back(struct shunt_engine_ctx *ctx,
                      enum shunt_transport_memory_kind kind, void *memory)
{
    void *ours;
    int pushed;

    /* A device that hangs may still access the memory, and the driver would
     * wait for the device. */
    if (atomic_load_explicit(&ctx->hangs, memory_order_acquire))
        return;
    pushed = ctx->driver->context_push(ctx->context);
    if (kind == SHUNT_TRANSPORT_HOST_MEMORY)
        (void)ctx->driver->host_free(memory);
    else
        (void)ctx->driver->memory_free(cuda_address(memory));
    if (!pushed)
        (void)ctx->driver->context_pop(&ours);
}

const struct shunt_engine_memory cuda_memory = {
    .alloc = alloc,
    .free = give_back,
};
