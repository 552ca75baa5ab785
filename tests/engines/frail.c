// SPDX-License-Identifier: Apache-2.0
/*
 * A copy engine that fails: it makes SHUNT_FRAIL_COPIES copies, takes as many
 * again of which it makes a half and raises no signal, and then says so.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/engine.h>

struct shunt_engine_ctx {
    int good;
    atomic_int taken;
};

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_FRAIL_COPIES", "5", "Copies before the engine fails."},
    {NULL, NULL, NULL},
};

static enum shunt_status frail_probe(const struct shunt_transport_host *host,
                                     char *why, size_t why_len)
{
    (void)host;
    (void)why;
    (void)why_len;
    return SHUNT_OK;
}

static enum shunt_status frail_open(const struct shunt_engine_params *params,
                                    struct shunt_engine_ctx **out, char *why,
                                    size_t why_len)
{
    const char *copies = params->host->env(knobs[0].name);

    (void)why;
    (void)why_len;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SHUNT_ERR_MEMORY;
    (*out)->good = atoi(copies ? copies : knobs[0].fallback);
    return SHUNT_OK;
}

static void frail_close(struct shunt_engine_ctx *ctx)
{
    free(ctx);
}

static enum shunt_status frail_submit(struct shunt_engine_ctx *ctx,
                                      const struct shunt_engine_copy *copy)
{
    const int taken = atomic_fetch_add(&ctx->taken, 1);
    const uint64_t one = 1;

    if (taken >= 2 * ctx->good)
        return SHUNT_ERR_SYSTEM;
    if (taken >= ctx->good) {
        memset(copy->to, 0xee, copy->bytes / 2);
        return SHUNT_OK;
    }
    memcpy(copy->to, copy->from, copy->bytes);
    __atomic_store_n(copy->signal, copy->value, __ATOMIC_RELEASE);
    return copy->wake_fd >= 0 && write(copy->wake_fd, &one, sizeof(one)) < 0
               ? SHUNT_ERR_SYSTEM
               : SHUNT_OK;
}

static size_t frail_poll(struct shunt_engine_ctx *ctx)
{
    (void)ctx;
    return 0;
}

static const char *frail_failed(const struct shunt_engine_ctx *ctx)
{
    return atomic_load(&ctx->taken) > ctx->good ? "the device is gone" : NULL;
}

extern const struct shunt_engine shunt_engine_v2;

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v2 = {
    .abi = SHUNT_ENGINE_ABI,
    .name = "frail",
    .summary = "fails, for tests",
    .probe = frail_probe,
    .open = frail_open,
    .close = frail_close,
    .submit = frail_submit,
    .poll = frail_poll,
    .failed = frail_failed,
    .knobs = knobs,
};
