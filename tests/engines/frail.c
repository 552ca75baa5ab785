// SPDX-License-Identifier: Apache-2.0
/*
 * A copy engine that fails: it makes SHUNT_FRAIL_COPIES copies. It accepts as
 * many again, of which it copies only half of each row, without a signal. It
 * refuses all others. It reports its failure as soon as it has made an
 * incomplete copy.
 *
 * With SHUNT_FRAIL_LATE it does not fail, but makes one copy in every poll(),
 * slowly, and the rest in close().
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/engine.h>

enum { LATE = 64 };

struct shunt_engine_ctx {
    int good;
    atomic_int taken;
    int late;             /* ms that a copy takes */
    pthread_mutex_t lock; /* protects the fields below */
    size_t made, submitted;
    struct shunt_engine_copy waits[LATE];
};

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_FRAIL_COPIES", "5", "Copies before the engine fails."},
    {"SHUNT_FRAIL_LATE", "0",
     "Copies are made by poll() and close(), so many ms each (0: at once)."},
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
    const char *late = params->host->env(knobs[1].name);

    (void)why;
    (void)why_len;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SHUNT_ERR_MEMORY;
    (*out)->good = atoi(copies ? copies : knobs[0].fallback);
    (*out)->late = late ? atoi(late) : 0;
    pthread_mutex_init(&(*out)->lock, NULL);
    return SHUNT_OK;
}

/* Copy the first `part` bytes of each row. */
static void move(const struct shunt_engine_copy *copy, size_t part)
{
    for (size_t i = 0; i < copy->rows; i++)
        memcpy((char *)copy->to +
                   (copy->to_index ? copy->to_index[i] : i) * copy->to_stride,
               (const char *)copy->from +
                   (copy->index ? copy->index[i] : i) * copy->from_stride,
               part);
}

static bool make(const struct shunt_engine_copy *copy)
{
    const uint64_t one = 1;

    move(copy, copy->bytes);
    __atomic_store_n(copy->signal, copy->value, __ATOMIC_RELEASE);
    return copy->wake_fd < 0 ||
           write(copy->wake_fd, &one, sizeof(one)) == sizeof(one);
}

static size_t frail_poll(struct shunt_engine_ctx *ctx)
{
    size_t left;

    pthread_mutex_lock(&ctx->lock);
    if (ctx->made < ctx->submitted) {
        poll(NULL, 0, ctx->late);
        make(&ctx->waits[ctx->made++ % LATE]);
    }
    left = ctx->submitted - ctx->made;
    pthread_mutex_unlock(&ctx->lock);
    return left;
}

static void frail_close(struct shunt_engine_ctx *ctx)
{
    while (frail_poll(ctx))
        ;
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

static enum shunt_status wait_for_poll(struct shunt_engine_ctx *ctx,
                                       const struct shunt_engine_copy *copy)
{
    bool room;

    pthread_mutex_lock(&ctx->lock);
    room = ctx->submitted - ctx->made < LATE;
    if (room)
        ctx->waits[ctx->submitted++ % LATE] = *copy;
    pthread_mutex_unlock(&ctx->lock);
    return room ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static enum shunt_status frail_submit(struct shunt_engine_ctx *ctx,
                                      const struct shunt_engine_copy *copy)
{
    const int taken = ctx->late ? 0 : atomic_fetch_add(&ctx->taken, 1);

    if (ctx->late)
        return wait_for_poll(ctx, copy);
    if (taken >= 2 * ctx->good)
        return SHUNT_ERR_SYSTEM;
    if (taken >= ctx->good) {
        move(copy, copy->bytes / 2);
        return SHUNT_OK;
    }
    return make(copy) ? SHUNT_OK : SHUNT_ERR_SYSTEM;
}

static const char *frail_failed(const struct shunt_engine_ctx *ctx)
{
    return atomic_load(&ctx->taken) > ctx->good ? "the device is gone" : NULL;
}

extern const struct shunt_engine shunt_engine_v5;

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v5 = {
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
    .caps = SHUNT_ENGINE_SCATTERS,
};
