// SPDX-License-Identifier: Apache-2.0
/*
 * Copies in progress; see copies.h.
 *
 * Any thread may submit and poll, whatever its current CUDA context is: the
 * engine pushes its own context for the duration of a call. The function that
 * the driver calls after a copy takes no lock, because a thread may hold the
 * lock in a call of the driver that waits for such functions.
 *
 * After the first error of the driver the engine is unusable: errors of a
 * device stay in its context, and after other errors it is hard to tell which
 * bytes of a descriptor were copied. All copies have ended before failed()
 * reports the error.
 */
#include "transports/cuda/copies.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "transports/cuda/driver.h"
#include "transports/cuda/rows.h"

/* After this time the device counts as hung. */
#define DRAIN_NS (UINT64_C(10) * 1000000000)
/* A word does not show errors, so the streams are queried at this interval. */
#define LOOK_NS UINT64_C(1000000)

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- the end of a copy ---------------------------------------------------------- */

/* Set the caller's signal. From then on the submitter may free everything
 * except its eventfd. */
static void raise_signal(struct cuda_slot *slot)
{
    int before = CUDA_NOT_RAISED;

    if (atomic_compare_exchange_strong_explicit(
            &slot->raised, &before, CUDA_RAISING, memory_order_acq_rel,
            memory_order_acquire)) {
        __atomic_store_n(slot->signal, slot->value, __ATOMIC_RELEASE);
        atomic_store_explicit(&slot->raised, CUDA_RAISED, memory_order_release);
    }
}

static bool is_raised(const struct cuda_slot *slot)
{
    return atomic_load_explicit(&slot->raised, memory_order_acquire) ==
           CUDA_RAISED;
}

/* Make sure that the signal is not set later. Waits for a thread that is
 * setting it now. */
static void give_up_signal(struct cuda_slot *slot)
{
    int before = CUDA_NOT_RAISED;

    if (atomic_compare_exchange_strong_explicit(
            &slot->raised, &before, CUDA_RAISED, memory_order_acq_rel,
            memory_order_acquire))
        return;
    while (
        !is_raised(slot)) /* a thread of the driver is between its two stores */
        sched_yield();
}

static void wake(struct cuda_slot *slot)
{
    static const uint64_t one = 1;

    if (!atomic_exchange_explicit(&slot->waking, true, memory_order_acq_rel)) {
        ssize_t put = write(slot->wake_fd, &one, sizeof(one));

        (void)put; /* if it fails, the eventfd is readable already */
        atomic_store_explicit(&slot->woken, true, memory_order_release);
    }
}

/* The driver calls this function after the copy, in a thread of the driver. */
static void ended(void *arg)
{
    struct cuda_slot *slot = arg;

    raise_signal(slot);
    wake(slot);
}

/* Has the device marked the end of this copy? Writes an error to *result. */
static bool is_marked(struct shunt_engine_ctx *ctx,
                      const struct cuda_slot *slot, int *result)
{
    if (ctx->words)
        return __atomic_load_n(&ctx->words[slot - ctx->slot],
                               __ATOMIC_ACQUIRE) == slot->number;
    *result = ctx->driver->event_query(slot->event);
    if (*result == CUDA_NOT_READY) {
        *result = 0;
        return false;
    }
    return !*result;
}

static void release(struct shunt_engine_ctx *ctx, struct cuda_slot *slot)
{
    slot->used = false;
    atomic_fetch_sub_explicit(&ctx->under_way, 1, memory_order_release);
}

/* Release the slot if its signal is set and its submitter is woken. */
static void release_ended(struct shunt_engine_ctx *ctx, struct cuda_slot *slot)
{
    if (is_raised(slot) &&
        (slot->wake_fd < 0 ||
         atomic_load_explicit(&slot->woken, memory_order_acquire)))
        release(ctx, slot);
}

/* --- failure (the caller holds the lock) ---------------------------------- */

static bool streams_end(struct shunt_engine_ctx *ctx)
{
    const uint64_t end = now_ns() + DRAIN_NS;

    for (int s = 0; s < ctx->streams; s++)
        while (ctx->driver->stream_query(ctx->stream[s]) == CUDA_NOT_READY) {
            if (now_ns() > end)
                return false;
            sched_yield();
        }
    return true;
}

/* End all copies after an error, whose text is in `error`. */
static void end_all(struct shunt_engine_ctx *ctx)
{
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &ctx->slot[i];
        int ignored = 0;

        if (!slot->used)
            continue;
        if (is_marked(ctx, slot, &ignored))
            raise_signal(slot);
        give_up_signal(slot);
        if (slot->wake_fd >= 0)
            wake(slot); /* the submitter wakes and finds the failure */
    }
    atomic_store_explicit(&ctx->failed, true, memory_order_release);
}

static void fail(struct shunt_engine_ctx *ctx, const char *call, int result)
{
    if (atomic_load_explicit(&ctx->failed, memory_order_relaxed))
        return;
    cuda_driver_say(ctx->driver, call, result, ctx->error, sizeof(ctx->error));
    if (!streams_end(ctx))
        atomic_store_explicit(&ctx->hangs, true, memory_order_release);
    end_all(ctx);
}

/* Pushes no CUDA context: a device that hangs could make that call wait. If
 * events are used, they are queried in the thread's current context, and an
 * error of the query is ignored. */
void cuda_give_up(struct shunt_engine_ctx *ctx, double seconds)
{
    pthread_mutex_lock(&ctx->lock);
    if (!atomic_load_explicit(&ctx->failed, memory_order_relaxed)) {
        snprintf(ctx->error, sizeof(ctx->error),
                 "GPU %d (%s) has neither ended a copy in %.3g s nor reported "
                 "an error: it hangs. dmesg and nvidia-smi may say why; start "
                 "this process again",
                 ctx->device, ctx->name, seconds);
        atomic_store_explicit(&ctx->hangs, true, memory_order_release);
        end_all(ctx);
    }
    pthread_mutex_unlock(&ctx->lock);
}

const char *cuda_failed(const struct shunt_engine_ctx *ctx)
{
    return atomic_load_explicit(&ctx->failed, memory_order_acquire) ? ctx->error
                                                                    : NULL;
}

/* --- poll ----------------------------------------------------------------------- */

static void look(struct shunt_engine_ctx *ctx, struct cuda_slot *slot)
{
    int result = 0;

    if (!is_raised(slot) && is_marked(ctx, slot, &result))
        raise_signal(slot);
    if (result)
        fail(ctx, "cuEventQuery", result);
    release_ended(ctx, slot);
}

static void look_at_streams(struct shunt_engine_ctx *ctx)
{
    const uint64_t now = now_ns();

    if (!atomic_load_explicit(&ctx->under_way, memory_order_relaxed) ||
        now - ctx->looked_ns < LOOK_NS)
        return;
    ctx->looked_ns = now;
    for (int s = 0; s < ctx->streams; s++) {
        int result = ctx->driver->stream_query(ctx->stream[s]);

        if (result && result != CUDA_NOT_READY)
            fail(ctx, "cuStreamQuery", result);
    }
}

/* Push the engine's context; the caller holds the lock. Returns false if the
 * context cannot be used. */
static bool enter(struct shunt_engine_ctx *ctx)
{
    int result = ctx->driver->context_push(ctx->context);

    if (result)
        fail(ctx, "cuCtxPushCurrent", result);
    return !result;
}

static void leave(struct shunt_engine_ctx *ctx)
{
    void *ours;

    (void)ctx->driver->context_pop(&ours);
}

static void advance(struct shunt_engine_ctx *ctx)
{
    for (int i = 0; i < CUDA_SLOTS; i++)
        if (ctx->slot[i].used)
            look(ctx, &ctx->slot[i]);
    look_at_streams(ctx);
}

static size_t under_way(struct shunt_engine_ctx *ctx)
{
    return atomic_load_explicit(&ctx->under_way, memory_order_acquire);
}

size_t cuda_poll(struct shunt_engine_ctx *ctx)
{
    /* If another thread holds the lock, that thread advances the copies. */
    if (under_way(ctx) && !pthread_mutex_trylock(&ctx->lock)) {
        bool entered = enter(ctx);

        advance(ctx);
        if (entered)
            leave(ctx);
        pthread_mutex_unlock(&ctx->lock);
    }
    return under_way(ctx);
}

bool cuda_drain(struct shunt_engine_ctx *ctx)
{
    const uint64_t end = now_ns() + DRAIN_NS;

    while (cuda_poll(ctx)) {
        if (now_ns() > end)
            return false;
        sched_yield();
    }
    return true;
}

/* --- submit --------------------------------------------------------------------- */

/* Can the driver make this copy asynchronously? Memory that the driver does not
 * know is pageable, and the driver copies pageable memory in the calling
 * thread. It also copies from host memory to host memory in the calling
 * thread. */
static bool suits(struct shunt_engine_ctx *ctx,
                  const struct shunt_engine_copy *copy)
{
    const void *const end[2] = {copy->to, copy->from};
    bool device = false;

    for (int i = 0; i < 2; i++) {
        unsigned type = 0;

        if (ctx->driver->pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE,
                                           cuda_address(end[i])) ||
            (type != CUDA_MEMORY_HOST && type != CUDA_MEMORY_DEVICE))
            return false;
        device = device || type == CUDA_MEMORY_DEVICE;
    }
    return device;
}

static struct cuda_slot *take(struct shunt_engine_ctx *ctx,
                              const struct shunt_engine_copy *copy)
{
    int i = 0;

    while (i < CUDA_SLOTS && ctx->slot[i].used)
        i++;
    if (i == CUDA_SLOTS)
        return NULL;
    ctx->slot[i].used = true;
    ctx->slot[i].stream = (int)(ctx->next_stream++ % (unsigned)ctx->streams);
    ctx->slot[i].number = ++ctx->number;
    ctx->slot[i].signal = copy->signal;
    ctx->slot[i].value = copy->value;
    ctx->slot[i].wake_fd = copy->wake_fd;
    atomic_store_explicit(&ctx->slot[i].raised, CUDA_NOT_RAISED,
                          memory_order_relaxed);
    atomic_store_explicit(&ctx->slot[i].waking, false, memory_order_relaxed);
    atomic_store_explicit(&ctx->slot[i].woken, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&ctx->under_way, 1, memory_order_relaxed);
    return &ctx->slot[i];
}

/* Issue the mark for the end of the copy, and the wake-up function if the
 * submitter may sleep. */
static int issue_end(struct shunt_engine_ctx *ctx, struct cuda_slot *slot,
                     struct cuda_issue *issue)
{
    int result;

    if (ctx->words) {
        issue->call = "cuStreamWriteValue64";
        result = ctx->driver->write_value(issue->stream,
                                          ctx->words_device +
                                              (uint64_t)(slot - ctx->slot) *
                                                  sizeof(*ctx->words),
                                          slot->number, 0);
    } else {
        issue->call = "cuEventRecord";
        result = ctx->driver->event_record(slot->event, issue->stream);
    }
    if (result || slot->wake_fd < 0)
        return result;
    issue->call = "cuLaunchHostFunc";
    return ctx->driver->launch(issue->stream, ended, slot);
}

/* Issue the copy, for which `slot` is reserved. */
static enum shunt_status issue(struct shunt_engine_ctx *ctx,
                               struct cuda_slot *slot,
                               const struct shunt_engine_copy *copy)
{
    struct cuda_issue issue = {
        .driver = ctx->driver,
        .stream = ctx->stream[slot->stream],
        .max_pitch = ctx->max_pitch,
    };
    int result = cuda_issue_rows(&issue, copy);
    const bool never = result == CUDA_INVALID_VALUE && !issue.issued;

    if (!result)
        result = issue_end(ctx, slot, &issue);
    if (!result)
        return SHUNT_OK;
    release(ctx, slot); /* the caller copies by itself, without a signal */
    if (never)
        return SHUNT_ERR_UNSUPPORTED;
    fail(ctx, issue.call, result);
    return SHUNT_ERR_SYSTEM;
}

/* The caller holds the lock and has pushed the context. */
static enum shunt_status submit(struct shunt_engine_ctx *ctx,
                                const struct shunt_engine_copy *copy)
{
    struct cuda_slot *slot;

    if (copy->rows && copy->bytes && !suits(ctx, copy))
        return SHUNT_ERR_UNSUPPORTED;
    slot = take(ctx, copy);
    if (!slot) {
        advance(ctx);
        slot = cuda_failed(ctx) ? NULL : take(ctx, copy);
    }
    if (slot)
        return issue(ctx, slot, copy);
    if (cuda_failed(ctx))
        return SHUNT_ERR_SYSTEM;
    atomic_fetch_add_explicit(&ctx->full, 1, memory_order_relaxed);
    return SHUNT_IN_PROGRESS;
}

enum shunt_status cuda_submit(struct shunt_engine_ctx *ctx,
                              const struct shunt_engine_copy *copy)
{
    enum shunt_status st = SHUNT_ERR_SYSTEM;

    pthread_mutex_lock(&ctx->lock);
    if (!cuda_failed(ctx) && enter(ctx)) {
        st = submit(ctx, copy);
        leave(ctx);
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!st) {
        atomic_fetch_add_explicit(&ctx->copies, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&ctx->bytes, copy->rows * copy->bytes,
                                  memory_order_relaxed);
    }
    return st;
}
