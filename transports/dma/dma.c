// SPDX-License-Identifier: Apache-2.0
/*
 * dma: a copy engine for every machine. A thread of the process copies.
 *
 *     queue.c   the queue of descriptors, on which the thread also sleeps
 *     rows.c    the copy itself
 *
 * The thread processes descriptors in order. It is bound to the CPUs that the
 * library reports as spare (settle()), and the kernel chooses one of them. If
 * the ranks of the node need all CPUs, the engine stays off, because a copy
 * would take CPU time from a rank.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shunt/engine.h>

#include "transports/dma/queue.h"
#include "transports/dma/rows.h"

/* Largest copy that a polling caller makes itself while the thread is asleep.
 * Waking a thread on another virtual CPU took 40 us, many times as long as such
 * a copy. */
#define LENDS_MAX ((size_t)16 << 10)

struct shunt_engine_ctx {
    struct dma_queue queue;
    pthread_t thread;
    size_t stream_min;
    uint64_t poll_ns;
    bool forced; /* on, even if no CPU is spare */
    _Atomic uint64_t copies, bytes, full, lent;
    _Atomic size_t lending; /* callers that search the queue, or copy, now */
};

/* --- the thread --------------------------------------------------------------- */

static void signal_end(const struct shunt_engine_copy *copy)
{
    static const uint64_t one = 1;
    const int wake_fd = copy->wake_fd;

    /* After this store the submitter may free everything except its eventfd. */
    __atomic_store_n(copy->signal, copy->value, __ATOMIC_RELEASE);
    if (wake_fd >= 0) {
        ssize_t put = write(wake_fd, &one, sizeof(one));

        (void)put; /* if it fails, the eventfd is readable already */
    }
}

static void make(struct shunt_engine_ctx *ctx,
                 const struct shunt_engine_copy *copy)
{
    dma_copy_rows(copy, ctx->stream_min);
    atomic_fetch_add_explicit(&ctx->copies, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&ctx->bytes, copy->rows * copy->bytes,
                              memory_order_relaxed);
    signal_end(copy);
}

static void *work(void *arg)
{
    struct shunt_engine_ctx *ctx = arg;

    for (;;) {
        const struct shunt_engine_copy *copy =
            dma_queue_next(&ctx->queue, ctx->poll_ns);

        if (!copy->signal) /* the engine is closed */
            return NULL;
        make(ctx, copy);
        dma_queue_end(&ctx->queue);
    }
}

/* Start the thread with all signals blocked: they are for the program's own
 * threads. */
static int start(struct shunt_engine_ctx *ctx)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&ctx->thread, NULL, work, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* --- settings ----------------------------------------------------------------- */

#define SWITCH "SHUNT_DMA"
#define STREAM_MIN "SHUNT_DMA_STREAM_MIN"
#define POLL "SHUNT_DMA_POLL"

static const struct shunt_transport_knob knobs[] = {
    {SWITCH, "auto",
     "The copying thread: on, off, or auto, which is off where the ranks of "
     "the "
     "node leave no CPU to it."},
    /* As in src/kernels/copy.c: up to this size a copy may stay in a cache
     * until it is read. */
    {STREAM_MIN, "16777216",
     "Bytes from which a copy of the copying thread bypasses the caches."},
    {POLL, "5",
     "Microseconds for which the copying thread looks for the next copy before "
     "it sleeps."},
    {NULL, NULL, NULL},
};

static const char *setting(const struct shunt_transport_host *host,
                           const char *name)
{
    const struct shunt_transport_knob *knob = knobs;
    const char *value = host->env ? host->env(name) : NULL;

    while (strcmp(knob->name, name) != 0)
        knob++;
    return value ? value : knob->fallback;
}

static bool number(const struct shunt_transport_host *host, const char *name,
                   uint64_t most, uint64_t *value, char *why, size_t why_len)
{
    const char *text = setting(host, name);
    char *end;

    *value = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && *value <= most)
        return true;
    snprintf(why, why_len, "%s=%s is no whole number up to %llu", name, text,
             (unsigned long long)most);
    return false;
}

static int cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
}

/* Do the settings allow the engine? If not, returns SHUNT_ERR_UNSUPPORTED with
 * the reason in `why`. */
static enum shunt_status is_on(const struct shunt_transport_host *host,
                               char *why, size_t why_len)
{
    const char *text = setting(host, SWITCH);

    if (!strcmp(text, "on"))
        return SHUNT_OK;
    if (!strcmp(text, "off")) {
        snprintf(why, why_len, SWITCH "=off");
        return SHUNT_ERR_UNSUPPORTED;
    }
    if (strcmp(text, "auto") != 0) {
        snprintf(why, why_len, SWITCH "=%s is none of auto, on, off", text);
        return SHUNT_ERR_INVALID;
    }
    if (cpus() != 1)
        return SHUNT_OK;
    snprintf(why, why_len,
             "this process may use one CPU only, on which a copying thread "
             "would be in its way; bind it to more CPUs, or set " SWITCH "=on");
    return SHUNT_ERR_UNSUPPORTED;
}

/* --- the plugin --------------------------------------------------------------- */

static enum shunt_status dma_probe(const struct shunt_transport_host *host,
                                   char *why, size_t why_len)
{
    enum shunt_status st = is_on(host, why, why_len);

    if (!st)
        snprintf(why, why_len, "%s",
                 strcmp(setting(host, SWITCH), "on")
                     ? "a copying thread, where the ranks of the node leave a "
                       "CPU to it (" SWITCH "=auto)"
                     : "a copying thread (" SWITCH "=on)");
    return st;
}

static enum shunt_status dma_open(const struct shunt_engine_params *params,
                                  struct shunt_engine_ctx **out, char *why,
                                  size_t why_len)
{
    const struct shunt_transport_host *host = params->host;
    struct shunt_engine_ctx *ctx;
    uint64_t stream_min, poll_us;
    int error;

    *out = NULL;
    if (!number(host, STREAM_MIN, SIZE_MAX, &stream_min, why, why_len) ||
        !number(host, POLL, 1000000, &poll_us, why, why_len))
        return SHUNT_ERR_INVALID;
    ctx = aligned_alloc(alignof(struct shunt_engine_ctx), sizeof(*ctx));
    if (!ctx) {
        snprintf(why, why_len, "no memory");
        return SHUNT_ERR_MEMORY;
    }
    memset(ctx, 0, sizeof(*ctx));
    dma_queue_init(&ctx->queue);
    ctx->stream_min = stream_min;
    ctx->poll_ns = poll_us * 1000;
    ctx->forced = !strcmp(setting(host, SWITCH), "on");
    error = start(ctx);
    if (error) {
        snprintf(why, why_len, "no thread: %s%s", strerror(error),
                 host->remedy ? host->remedy(error) : "");
        dma_queue_destroy(&ctx->queue);
        free(ctx);
        return SHUNT_ERR_SYSTEM;
    }
    *out = ctx;
    return SHUNT_OK;
}

/* End the thread by a last descriptor without a signal, behind all others. */
static void dma_close(struct shunt_engine_ctx *ctx)
{
    static const struct shunt_engine_copy last = {.signal = NULL};

    if (!ctx)
        return;
    while (!dma_queue_add(&ctx->queue, &last))
        sched_yield();
    pthread_join(ctx->thread, NULL);
    dma_queue_destroy(&ctx->queue);
    free(ctx);
}

static void place(const struct shunt_engine_ctx *ctx,
                  const struct shunt_engine_node *node)
{
    const size_t cpus = node->words * 64, bytes = CPU_ALLOC_SIZE(cpus);
    cpu_set_t *set = CPU_ALLOC(cpus);

    if (!set)
        return;
    CPU_ZERO_S(bytes, set);
    for (size_t i = 0; i < cpus; i++)
        if (node->where[i / 64] >> (i % 64) & 1)
            CPU_SET_S(i, bytes, set);
    /* If the set is empty or the kernel refuses it, the thread keeps its
     * CPUs. */
    (void)pthread_setaffinity_np(ctx->thread, bytes, set);
    CPU_FREE(set);
}

/* Turn the engine off if no CPU of the node is spare; otherwise bind the thread
 * to the spare CPUs. The copying threads of all ranks of the node share
 * them. */
static enum shunt_status dma_settle(struct shunt_engine_ctx *ctx,
                                    const struct shunt_engine_node *node,
                                    char *why, size_t why_len)
{
    if (!ctx->forced && node->spare_cpus <= 0) {
        snprintf(why, why_len,
                 "%d ranks of this node may use %d CPU%s, and a copying thread "
                 "would take its time from one of them; start fewer ranks, or "
                 "set " SWITCH "=on",
                 node->ranks, node->cpus, node->cpus == 1 ? "" : "s");
        return SHUNT_ERR_UNSUPPORTED;
    }
    place(ctx, node);
    return SHUNT_OK;
}

static enum shunt_status dma_submit(struct shunt_engine_ctx *ctx,
                                    const struct shunt_engine_copy *copy)
{
    if (dma_queue_add(&ctx->queue, copy))
        return SHUNT_OK;
    atomic_fetch_add_explicit(&ctx->full, 1, memory_order_relaxed);
    return SHUNT_IN_PROGRESS;
}

/* If the thread is asleep, make a small copy that waits in the queue. The
 * thread may skip the copy's descriptor before the copy ends, and the queue
 * then no longer counts the copy. `lending` counts it until it ends. */
static size_t dma_poll(struct shunt_engine_ctx *ctx)
{
    struct shunt_engine_copy copy;
    size_t count;

    if (dma_queue_count(&ctx->queue)) {
        atomic_fetch_add_explicit(&ctx->lending, 1, memory_order_seq_cst);
        if (dma_queue_lend(&ctx->queue, LENDS_MAX, &copy)) {
            make(ctx, &copy);
            atomic_fetch_add_explicit(&ctx->lent, 1, memory_order_relaxed);
        }
        atomic_fetch_sub_explicit(&ctx->lending, 1, memory_order_release);
    }
    count = dma_queue_count(&ctx->queue);
    return count + atomic_load_explicit(&ctx->lending, memory_order_acquire);
}

static bool dma_take_back(struct shunt_engine_ctx *ctx, const uint64_t *signal)
{
    return dma_queue_take_back(&ctx->queue, signal);
}

static size_t dma_counters(const struct shunt_engine_ctx *ctx,
                           struct shunt_transport_counter *counters,
                           size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", atomic_load_explicit(&ctx->copies, memory_order_relaxed)},
        {"bytes", atomic_load_explicit(&ctx->bytes, memory_order_relaxed)},
        {"retries", atomic_load_explicit(&ctx->full, memory_order_relaxed)},
        {"by callers", atomic_load_explicit(&ctx->lent, memory_order_relaxed)},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    return count;
}

static void dma_spent(const struct shunt_engine_ctx *ctx, uint64_t *cpu_ns,
                      uint64_t *bytes)
{
    struct timespec cpu = {0};
    clockid_t clock;

    if (!pthread_getcpuclockid(ctx->thread, &clock))
        clock_gettime(clock, &cpu);
    *cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
    *bytes = atomic_load_explicit(&ctx->bytes, memory_order_relaxed);
}

extern const struct shunt_engine shunt_engine_v5;

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v5 = {
    .abi = SHUNT_ENGINE_ABI,
    .name = "dma",
    .summary = "copies inside a node, by a thread beside the caller's",
    .probe = dma_probe,
    .open = dma_open,
    .close = dma_close,
    .submit = dma_submit,
    .poll = dma_poll,
    .counters = dma_counters,
    .knobs = knobs,
    .caps = SHUNT_ENGINE_SCATTERS,
    .take_back = dma_take_back,
    .settle = dma_settle,
    .spent = dma_spent,
};
