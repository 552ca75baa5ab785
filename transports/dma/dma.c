// SPDX-License-Identifier: Apache-2.0
/*
 * dma: a simple copy engine, a thread that copies.
 *
 * Descriptors are queued in a ring under a lock. The thread takes them in
 * order, copies without the lock, raises the signal, and sleeps on a condition
 * while the ring is empty: then it costs nothing. It copies by memcpy(), one
 * row at a time.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/engine.h>

#define DEPTH 256

struct shunt_engine_ctx {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    struct shunt_engine_copy ring[DEPTH];
    size_t first, count; /* queued, from `first` on */
    bool copying, stop;
    _Atomic uint64_t copies, bytes, full;
};

static void copy_rows(const struct shunt_engine_copy *copy)
{
    const unsigned char *from = copy->from;
    unsigned char *to = copy->to;

    for (size_t i = 0; i < copy->rows && copy->bytes; i++)
        memcpy(to + i * copy->to_stride,
               from + (copy->index ? copy->index[i] : i) * copy->from_stride,
               copy->bytes);
}

static void signal_end(const struct shunt_engine_copy *copy)
{
    static const uint64_t one = 1;

    __atomic_store_n(copy->signal, copy->value, __ATOMIC_RELEASE);
    if (copy->wake_fd >= 0) {
        ssize_t put = write(copy->wake_fd, &one, sizeof(one));

        (void)put; /* full: it is readable already */
    }
}

static void *work(void *arg)
{
    struct shunt_engine_ctx *ctx = arg;

    pthread_mutex_lock(&ctx->lock);
    for (;;) {
        struct shunt_engine_copy copy;

        while (!ctx->count && !ctx->stop)
            pthread_cond_wait(&ctx->work, &ctx->lock);
        if (!ctx->count)
            break;
        copy = ctx->ring[ctx->first];
        ctx->first = (ctx->first + 1) % DEPTH;
        ctx->count--;
        ctx->copying = true;
        pthread_mutex_unlock(&ctx->lock);
        copy_rows(&copy);
        atomic_fetch_add_explicit(&ctx->copies, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&ctx->bytes, copy.rows * copy.bytes,
                                  memory_order_relaxed);
        /* Last: after the signal the submitter may free everything but its
         * eventfd. */
        signal_end(&copy);
        pthread_mutex_lock(&ctx->lock);
        ctx->copying = false;
    }
    pthread_mutex_unlock(&ctx->lock);
    return NULL;
}

static enum shunt_status dma_probe(const struct shunt_transport_host *host,
                                   char *why, size_t why_len)
{
    (void)host;
    snprintf(why, why_len,
             "a copying thread, asleep when it has nothing to do");
    return SHUNT_OK;
}

static enum shunt_status dma_open(const struct shunt_engine_params *params,
                                  struct shunt_engine_ctx **out, char *why,
                                  size_t why_len)
{
    struct shunt_engine_ctx *ctx = calloc(1, sizeof(*ctx));
    sigset_t all, before;
    int error;

    (void)params;
    *out = NULL;
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_cond_init(&ctx->work, NULL);
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&ctx->thread, NULL, work, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        snprintf(why, why_len, "no thread: %s", strerror(error));
        pthread_cond_destroy(&ctx->work);
        pthread_mutex_destroy(&ctx->lock);
        free(ctx);
        return SHUNT_ERR_SYSTEM;
    }
    *out = ctx;
    return SHUNT_OK;
}

static void dma_close(struct shunt_engine_ctx *ctx)
{
    if (!ctx)
        return;
    pthread_mutex_lock(&ctx->lock);
    ctx->stop = true;
    pthread_cond_signal(&ctx->work);
    pthread_mutex_unlock(&ctx->lock);
    pthread_join(ctx->thread, NULL);
    pthread_cond_destroy(&ctx->work);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

static enum shunt_status dma_submit(struct shunt_engine_ctx *ctx,
                                    const struct shunt_engine_copy *copy)
{
    bool full;

    pthread_mutex_lock(&ctx->lock);
    full = ctx->count == DEPTH;
    if (!full) {
        ctx->ring[(ctx->first + ctx->count++) % DEPTH] = *copy;
        pthread_cond_signal(&ctx->work);
    }
    pthread_mutex_unlock(&ctx->lock);
    if (full)
        atomic_fetch_add_explicit(&ctx->full, 1, memory_order_relaxed);
    return full ? SHUNT_IN_PROGRESS : SHUNT_OK;
}

static size_t dma_poll(struct shunt_engine_ctx *ctx)
{
    size_t under_way;

    pthread_mutex_lock(&ctx->lock);
    under_way = ctx->count + ctx->copying;
    pthread_mutex_unlock(&ctx->lock);
    return under_way;
}

static size_t dma_counters(const struct shunt_engine_ctx *ctx,
                           struct shunt_transport_counter *counters,
                           size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", atomic_load_explicit(&ctx->copies, memory_order_relaxed)},
        {"bytes", atomic_load_explicit(&ctx->bytes, memory_order_relaxed)},
        {"retries", atomic_load_explicit(&ctx->full, memory_order_relaxed)},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    return count;
}

extern const struct shunt_engine shunt_engine_v2;

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v2 = {
    .abi = SHUNT_ENGINE_ABI,
    .name = "dma",
    .summary = "copies inside a node, by a thread beside the caller's",
    .probe = dma_probe,
    .open = dma_open,
    .close = dma_close,
    .submit = dma_submit,
    .poll = dma_poll,
    .counters = dma_counters,
};
