// SPDX-License-Identifier: Apache-2.0
/*
 * Puts and gets of the fault transport. The program decides whether they fail,
 * are passed on, or are queued and passed on later; see fault.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

#include "transports/fault/fault.h"

uint64_t fault_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* splitmix64 */
static uint64_t random_below(struct shunt_transport_ctx *ctx, uint64_t n)
{
    uint64_t z = (ctx->random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

/* --- queued puts and gets ------------------------------------------------- */

static void free_later(struct later *later)
{
    if (later->pending)
        --*later->pending;
    free(later);
}

static void free_list(struct later **list)
{
    while (*list) {
        struct later *later = *list;

        *list = later->next;
        free_later(later);
    }
}

static struct later_get *take_get(struct later_get **at)
{
    struct later_get *taken = *at;

    *at = taken->next;
    return taken;
}

/* Does this put write to `remote`? */
static bool goes_to(const struct later *later,
                    const struct shunt_transport_remote *remote)
{
    return later->put.remote == remote || later->put.signal == remote;
}

void fault_forget(struct shunt_transport_ep *ep,
                  const struct shunt_transport_remote *remote)
{
    for (int c = 0; c < FAULT_CHANNELS; c++) {
        struct queue *q = &ep->queues[c];

        q->last = &q->first;
        while (*q->last) {
            struct later *later = *q->last;

            if (remote ? goes_to(later, remote) : later->pending != NULL) {
                *q->last = later->next;
                ep->ctx->waiting--;
                free_later(later);
            } else {
                q->last = &later->next;
            }
        }
    }
}

/* --- puts ----------------------------------------------------------------- */

static uint64_t first_due(const struct shunt_transport_ctx *ctx)
{
    uint64_t first = UINT64_MAX;

    for (struct shunt_transport_ep *ep = ctx->eps; ep; ep = ep->next) {
        if (ep->gets && ep->gets->due < first)
            first = ep->gets->due;
        if (ctx->waiting == 0)
            continue;
        for (int c = 0; c < FAULT_CHANNELS; c++) {
            const struct later *later = ep->queues[c].first;

            if (later && later->due < first)
                first = later->due;
        }
    }
    return first;
}

bool fault_is_due(const struct shunt_transport_ctx *ctx)
{
    return first_due(ctx) <= fault_now();
}

void fault_set_timer(struct shunt_transport_ctx *ctx)
{
    const uint64_t first = first_due(ctx);
    struct itimerspec when = {{0, 0}, {0, 0}};

    if (first == UINT64_MAX)
        return;
    when.it_value.tv_sec = (time_t)(first / 1000000000u);
    when.it_value.tv_nsec = (long)(first % 1000000000u);
    timerfd_settime(ctx->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static uint64_t delay_of(struct shunt_transport_ctx *ctx)
{
    const struct fault_program *program = &ctx->program;

    return program->fixed ? program->delay
                          : random_below(ctx, program->delay + 1);
}

/* Queue a put. If the wrapped transport returns an error when the put is passed
 * on, the next put or flush to this peer returns that error. */
static enum shunt_status enqueue(struct shunt_transport_ep *ep,
                                 const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const struct fault_program *program = &ctx->program;
    struct queue *q =
        &ep->queues[program->reorder ? put->channel % FAULT_CHANNELS : 0];
    struct later *later;

    const size_t copied =
        put->pending ? 0 : put->bytes + shunt_transport_tail_bytes(put);

    if (put->bytes > SIZE_MAX / 2) /* no memory is that large */
        return fault_fail(ctx, SHUNT_ERR_INVALID,
                          "put outside the memory of rank %d", ep->peer);
    later = malloc(sizeof(*later) + copied);
    if (!later)
        return fault_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    later->next = NULL;
    later->put = *put;
    later->pending = put->pending;
    if (put->pending) {
        ++*put->pending;
    } else {
        later->put.local = later->payload;
        later->put.reg = NULL; /* the copy is not registered */
        if (put->bytes > 0)
            memcpy(later->payload, put->local, put->bytes);
        shunt_transport_tail_join(&later->put);
    }
    later->due = fault_now() + delay_of(ctx);
    if (later->due < q->newest)
        later->due = q->newest;
    q->newest = later->due;
    *q->last = later;
    q->last = &later->next;
    ctx->waiting++;
    if (ctx->armed)
        fault_set_timer(ctx);
    return SHUNT_OK;
}

/* Return the failure of an earlier put that was passed on late. Clears it. */
static enum shunt_status take_failure(struct shunt_transport_ep *ep)
{
    enum shunt_status status = ep->failed;

    ep->failed = SHUNT_OK;
    return fault_passed(ep->ctx, status);
}

bool fault_concerns(const struct shunt_transport_ep *ep)
{
    const struct fault_program *program = &ep->ctx->program;

    return program->peer < 0 || program->peer == ep->peer;
}

bool fault_is_dead(const struct shunt_transport_ep *ep)
{
    const struct shunt_transport_ctx *ctx = ep->ctx;

    return ep->dead || (ctx->program.fade && fault_concerns(ep) &&
                        fault_now() >= ctx->opened + ctx->program.fade);
}

/* Apply the program to this put. SHUNT_OK: the put continues. */
static enum shunt_status strike(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const struct fault_program *program = &ctx->program;

    if (!fault_concerns(ep))
        return SHUNT_OK;
    ctx->puts++;
    if (ctx->puts == program->fail)
        return fault_fail(ctx, SHUNT_ERR_SYSTEM,
                          "put %llu to rank %d failed (SHUNT_FAULT: fail)",
                          (unsigned long long)ctx->puts, ep->peer);
    if (ctx->puts == program->die)
        ep->dead = true;
    if (ctx->puts == program->silence)
        ctx->silent = true;
    return SHUNT_OK;
}

enum shunt_status fault_put(struct shunt_transport_ep *ep,
                            const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    enum shunt_status status;

    if (ep->failed)
        return take_failure(ep);
    status = strike(ep);
    if (status)
        return status;
    if (fault_is_dead(ep))
        return fault_fail(ctx, SHUNT_ERR_PEER, "rank %d is gone (SHUNT_FAULT)",
                          ep->peer);
    if (ctx->silent && fault_concerns(ep))
        return SHUNT_OK; /* dropped */
    if (ctx->program.delay == 0 || !fault_concerns(ep))
        return fault_passed(ctx, ctx->t->put(ep->inner, put));
    if (!ctx->t->alive(ep->inner))
        /* the wrapped put returns the error */
        return fault_passed(ctx, ctx->t->put(ep->inner, put));
    return enqueue(ep, put);
}

/* Pass on the puts of a queue that are due. */
static void deliver(struct shunt_transport_ep *ep, struct queue *q, uint64_t t)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    while (q->first && q->first->due <= t) {
        struct later *later = q->first;
        enum shunt_status status = ctx->t->put(ep->inner, &later->put);

        if (status == SHUNT_IN_PROGRESS)
            break;
        if (status && !ep->failed)
            ep->failed = status;
        q->first = later->next;
        if (!q->first)
            q->last = &q->first;
        ctx->waiting--;
        /* The wrapped transport has raised `pending` by itself if it still
         * needs the memory. */
        if (later->pending) {
            free_later(later);
            continue;
        }
        later->next = ep->delivered;
        ep->delivered = later;
    }
}

/* --- gets ----------------------------------------------------------------- */

static enum shunt_status begin_get(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (ctx->program.badget && ++ctx->gets % ctx->program.badget == 0)
        return fault_fail(ctx, SHUNT_ERR_SYSTEM,
                          "read %llu of plain memory, of rank %d, fails "
                          "(SHUNT_FAULT)",
                          (unsigned long long)ctx->gets, ep->peer);
    return fault_passed(ctx, ctx->t->get(ep->inner, get));
}

static enum shunt_status enqueue_get(struct shunt_transport_ep *ep,
                                     const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct later_get *later = malloc(sizeof(*later)), **at = &ep->gets;

    if (!later)
        return fault_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    later->due = fault_now() + delay_of(ctx);
    later->get = *get;
    while (*at && (*at)->due <= later->due)
        at = &(*at)->next;
    later->next = *at;
    *at = later;
    *get->status = SHUNT_IN_PROGRESS;
    if (ctx->armed)
        fault_set_timer(ctx);
    return SHUNT_OK;
}

/* Is there room for a get? With `full`, there is none until `full` nanoseconds
 * after the first try. */
static bool has_room(struct shunt_transport_ep *ep)
{
    const uint64_t full = ep->ctx->program.full, t = full ? fault_now() : 0;

    if (full && !ep->room_at)
        ep->room_at = t + full;
    if (t < ep->room_at)
        return false;
    ep->room_at = 0;
    return true;
}

enum shunt_status fault_get(struct shunt_transport_ep *ep,
                            const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (!(fault_caps(ep) & SHUNT_TRANSPORT_GET))
        return fault_fail(
            ctx, SHUNT_ERR_UNSUPPORTED,
            "plain memory of rank %d cannot be read (SHUNT_FAULT)", ep->peer);
    if (fault_is_dead(ep))
        return fault_fail(ctx, SHUNT_ERR_PEER, "rank %d is gone (SHUNT_FAULT)",
                          ep->peer);
    if (!has_room(ep))
        return SHUNT_IN_PROGRESS;
    if (ctx->program.delay > 0 && fault_concerns(ep))
        return enqueue_get(ep, get);
    return begin_get(ep, get);
}

/* Begin the gets that are due. */
static void begin_gets(struct shunt_transport_ep *ep, uint64_t t)
{
    while (ep->gets && ep->gets->due <= t) {
        const struct shunt_transport_get get = ep->gets->get;
        enum shunt_status status = begin_get(ep, &get);

        if (status == SHUNT_IN_PROGRESS)
            break;
        free(take_get(&ep->gets));
        if (status)
            *get.status = status;
    }
}

/* Make the gets fail that have not begun. */
static void cancel_gets(struct shunt_transport_ep *ep)
{
    while (ep->gets) {
        *ep->gets->get.status = fault_fail(ep->ctx, SHUNT_ERR_PEER,
                                           "rank %d was let go of", ep->peer);
        free(take_get(&ep->gets));
    }
}

/* --- progress and flushing ------------------------------------------------ */

void fault_deliver(struct shunt_transport_ctx *ctx)
{
    uint64_t t;

    if (ctx->program.delay == 0)
        return;
    t = fault_now();
    for (struct shunt_transport_ep *ep = ctx->eps; ep; ep = ep->next) {
        for (int c = 0; c < FAULT_CHANNELS; c++)
            deliver(ep, &ep->queues[c], t);
        begin_gets(ep, t);
        if (ep->delivered && ctx->t->flush(ep->inner) != SHUNT_IN_PROGRESS)
            free_list(&ep->delivered);
    }
}

enum shunt_status fault_flush(struct shunt_transport_ep *ep)
{
    if (ep->failed)
        return take_failure(ep);
    if (fault_is_dead(ep))
        return fault_fail(ep->ctx, SHUNT_ERR_PEER,
                          "rank %d is gone (SHUNT_FAULT)", ep->peer);
    for (int c = 0; c < FAULT_CHANNELS; c++) {
        if (ep->queues[c].first)
            return SHUNT_IN_PROGRESS;
    }
    return fault_passed(ep->ctx, ep->ctx->t->flush(ep->inner));
}

enum shunt_status fault_let_go(struct shunt_transport_ep *ep, bool by_force)
{
    cancel_gets(ep);
    if (by_force)
        fault_forget(ep, NULL);
    for (int c = 0; c < FAULT_CHANNELS; c++)
        for (const struct later *l = ep->queues[c].first; l; l = l->next)
            if (l->pending)
                return SHUNT_IN_PROGRESS;
    return fault_passed(ep->ctx, ep->ctx->t->let_go(ep->inner, by_force));
}

void fault_late_finish(struct shunt_transport_ep *ep)
{
    for (int c = 0; c < FAULT_CHANNELS; c++)
        free_list(&ep->queues[c].first);
    free_list(&ep->delivered);
    while (ep->gets)
        free(take_get(&ep->gets));
}
