// SPDX-License-Identifier: Apache-2.0
/*
 * fault: a wrapper around another transport, for tests. SHUNT_TRANSPORTS names
 * the wrapped transport ("fault+shm"). SHUNT_FAULT is the program, whose words
 * are in program.c.
 *
 * Without a program, every call is passed on. With a delay, a put is copied
 * into a queue. Each peer has one queue, or one for each channel if channels
 * may overtake each other. progress() passes on the puts that are due. Payload
 * and signal are passed on in one put, so the payload arrives before the
 * signal. A copy is kept until the wrapped transport has flushed it. Payload
 * that a put counts as pending is not copied, but read when the put is passed
 * on. So a caller that does not wait for `pending` sends wrong data. A delayed
 * get begins in progress(), so it ends after the call that asked for it.
 *
 * A timer wakes a sleeper when a put or get is due. An epoll watches the timer
 * and the wrapped transport's descriptor.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/common/wrap.h"
#include "transports/fault/fault.h"

/* --- contexts ------------------------------------------------------------- */

static enum shunt_status fault_probe(const struct shunt_transport_host *host,
                                     struct shunt_transport_estimate *estimate,
                                     char *why, size_t why_len)
{
    struct fault_program program;
    int n;

    if (!fault_program_parse(host->env ? host->env("SHUNT_FAULT") : NULL,
                             &program, why, why_len))
        return SHUNT_ERR_UNSUPPORTED;
    estimate->latency = 1e-3;
    estimate->bandwidth = 1e9;
    n = snprintf(why, why_len,
                 "for tests; fault+NAME wraps transport NAME, and SHUNT_FAULT "
                 "is a list of\n");
    if (n > 0 && (size_t)n < why_len)
        fault_program_words(why + n, why_len - (size_t)n);
    return SHUNT_OK;
}

static void fault_close(struct shunt_transport_ctx *ctx);

static bool open_timer(struct shunt_transport_ctx *ctx)
{
    struct epoll_event event = {.events = EPOLLIN};

    ctx->timer = shunti_fd_lift(
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    ctx->epoll = shunti_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    return ctx->timer >= 0 && ctx->epoll >= 0 &&
           !epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, ctx->timer, &event) &&
           !epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, ctx->t->wait_fd(ctx->inner),
                      &event);
}

static enum shunt_status fault_open(const struct shunt_transport_params *params,
                                    struct shunt_transport_ctx **out, char *why,
                                    size_t why_len)
{
    const struct shunt_transport_host *host = params->host;
    struct shunt_transport_ctx *ctx = calloc(1, sizeof(*ctx));
    enum shunt_status status;

    *out = NULL;
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    ctx->epoll = ctx->timer = -1;
    ctx->opened = fault_now();
    if (!fault_program_parse(host->env ? host->env("SHUNT_FAULT") : NULL,
                             &ctx->program, why, why_len)) {
        free(ctx);
        return SHUNT_ERR_INVALID;
    }
    if (ctx->program.rank >= 0 && ctx->program.rank != params->rank) {
        /* `nomap` and `noget` decide how all ranks communicate, so they must be
         * the same on every rank. */
        bool nomap = ctx->program.nomap, noget = ctx->program.noget;

        fault_program_parse(NULL, &ctx->program, why, why_len);
        ctx->program.nomap = nomap;
        ctx->program.noget = noget;
    }
    ctx->random = ctx->program.seed * 1000003 + (uint64_t)params->rank;
    status = transport_wrap_open(params, &ctx->t, &ctx->inner, why, why_len);
    if (!status && ctx->program.delay > 0 && !open_timer(ctx)) {
        snprintf(why, why_len, "no timer: %s", strerror(errno));
        status = SHUNT_ERR_SYSTEM;
    }
    if (status) {
        fault_close(ctx);
        return status;
    }
    *out = ctx;
    return SHUNT_OK;
}

static void fault_close(struct shunt_transport_ctx *ctx)
{
    if (!ctx)
        return;
    /* Close the descriptors first: the epoll watches a descriptor of the
     * wrapped transport. */
    if (ctx->epoll >= 0)
        close(ctx->epoll);
    if (ctx->timer >= 0)
        close(ctx->timer);
    if (ctx->inner)
        ctx->t->close(ctx->inner);
    while (ctx->eps) {
        struct shunt_transport_ep *ep = ctx->eps;

        ctx->eps = ep->next;
        fault_late_finish(ep);
        free(ep);
    }
    free(ctx);
}

enum shunt_status fault_passed(struct shunt_transport_ctx *ctx,
                               enum shunt_status status)
{
    if (status < 0)
        ctx->own_error = false;
    return status;
}

static const char *fault_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->own_error ? ctx->error.text : ctx->t->error(ctx->inner);
}

static enum shunt_status fault_address(struct shunt_transport_ctx *ctx,
                                       void *blob, size_t *len)
{
    return fault_passed(ctx, ctx->t->address(ctx->inner, blob, len));
}

/* --- endpoints and memory: passed on -------------------------------------- */

static enum shunt_status fault_connect(struct shunt_transport_ctx *ctx,
                                       int peer, const void *blob, size_t len,
                                       struct shunt_transport_ep **out)
{
    const struct fault_program *program = &ctx->program;
    struct shunt_transport_ep *ep = *out;

    if (program->apart && (program->peer < 0 || program->peer == peer))
        return fault_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                          "rank %d is not reached (SHUNT_FAULT: apart)", peer);
    if (!ep) {
        ep = calloc(1, sizeof(*ep));
        if (!ep)
            return fault_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
        ep->ctx = ctx;
        ep->peer = peer;
        for (int c = 0; c < FAULT_CHANNELS; c++)
            ep->queues[c].last = &ep->queues[c].first;
        ep->next = ctx->eps;
        ctx->eps = ep;
        *out = ep;
    }
    return fault_passed(
        ctx, ctx->t->connect(ctx->inner, peer, blob, len, &ep->inner));
}

unsigned fault_caps(const struct shunt_transport_ep *ep)
{
    const struct fault_program *program = &ep->ctx->program;
    unsigned caps = ep->ctx->t->caps(ep->inner);

    if (program->nomap)
        caps &= ~(unsigned)(SHUNT_TRANSPORT_MAP | SHUNT_TRANSPORT_GET);
    if (program->noget)
        caps &= ~(unsigned)SHUNT_TRANSPORT_GET;
    return caps;
}

static enum shunt_status fault_reg(struct shunt_transport_ctx *ctx,
                                   const struct shunt_transport_memory *memory,
                                   void *key, size_t *len,
                                   struct shunt_transport_reg **reg)
{
    return fault_passed(ctx, ctx->t->reg(ctx->inner, memory, key, len, reg));
}

static void fault_dereg(struct shunt_transport_ctx *ctx,
                        struct shunt_transport_reg *reg)
{
    ctx->t->dereg(ctx->inner, reg);
}

static enum shunt_status fault_import(struct shunt_transport_ep *ep,
                                      const void *key, size_t len,
                                      struct shunt_transport_remote **remote)
{
    return fault_passed(ep->ctx,
                        ep->ctx->t->import(ep->inner, key, len, remote));
}

static void fault_release(struct shunt_transport_ep *ep,
                          struct shunt_transport_remote *remote)
{
    fault_forget(ep, remote);
    ep->ctx->t->release(ep->inner, remote);
}

static void *fault_map(struct shunt_transport_ep *ep,
                       struct shunt_transport_remote *remote)
{
    if (!(fault_caps(ep) & SHUNT_TRANSPORT_MAP))
        return NULL;
    return ep->ctx->t->map(ep->inner, remote);
}

/* --- waiting -------------------------------------------------------------- */

static void fault_wake(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (ctx->silent && fault_concerns(ep))
        return;
    ctx->t->wake(ep->inner);
}

static int fault_progress(struct shunt_transport_ctx *ctx)
{
    int events = ctx->t->progress(ctx->inner);

    fault_deliver(ctx); /* this rank's own puts are not events of peers */
    return events;
}

static int fault_wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->epoll >= 0 ? ctx->epoll : ctx->t->wait_fd(ctx->inner);
}

static enum shunt_status fault_arm(struct shunt_transport_ctx *ctx)
{
    enum shunt_status status = ctx->t->arm(ctx->inner);

    if (status)
        return fault_passed(ctx, status);
    if (fault_is_due(ctx)) {
        ctx->t->disarm(ctx->inner);
        return SHUNT_IN_PROGRESS;
    }
    ctx->armed = true;
    fault_set_timer(ctx);
    return SHUNT_OK;
}

static void fault_disarm(struct shunt_transport_ctx *ctx)
{
    struct itimerspec off = {{0, 0}, {0, 0}};

    ctx->armed = false;
    if (ctx->timer >= 0) /* setting the timer also makes it unreadable */
        timerfd_settime(ctx->timer, 0, &off, NULL);
    ctx->t->disarm(ctx->inner);
}

static bool fault_alive(const struct shunt_transport_ep *ep)
{
    return !fault_is_dead(ep) && ep->ctx->t->alive(ep->inner);
}

static bool fault_left(const struct shunt_transport_ep *ep)
{
    return !fault_is_dead(ep) && ep->ctx->t->left(ep->inner);
}

static bool fault_busy(const struct shunt_transport_ctx *ctx)
{
    return ctx->waiting > 0 || ctx->t->busy(ctx->inner);
}

/* Returns the counters of the wrapped transport. */
static size_t fault_counters(const struct shunt_transport_ctx *ctx,
                             struct shunt_transport_counter *counters,
                             size_t room)
{
    return ctx->t->counters(ctx->inner, counters, room);
}

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_FAULT", NULL,
     "What the fault transport does to the one it wraps, for tests: "
     "'nomap,delay=50,reorder' (shunt-info has the words)."},
    {NULL, NULL, NULL},
};

extern const struct shunt_transport shunt_transport_v2;

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "fault",
    .summary = "wraps another transport and injects faults, for tests",
    .score = -1, /* used only if the user names this transport */
    .probe = fault_probe,
    .open = fault_open,
    .close = fault_close,
    .error = fault_error,
    .address = fault_address,
    .connect = fault_connect,
    .caps = fault_caps,
    .reg = fault_reg,
    .dereg = fault_dereg,
    .import = fault_import,
    .release = fault_release,
    .map = fault_map,
    .put = fault_put,
    .get = fault_get,
    .flush = fault_flush,
    .let_go = fault_let_go,
    .wake = fault_wake,
    .progress = fault_progress,
    .wait_fd = fault_wait_fd,
    .arm = fault_arm,
    .disarm = fault_disarm,
    .alive = fault_alive,
    .left = fault_left,
    .busy = fault_busy,
    .counters = fault_counters,
    .knobs = knobs,
};
