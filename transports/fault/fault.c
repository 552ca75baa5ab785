// SPDX-License-Identifier: Apache-2.0
/*
 * fault: a wrapper around another transport, for tests. SHUNT_TRANSPORTS names
 * the other ("fault+shm"), SHUNT_FAULT the program (program.c has its words).
 *
 * Without a program it hands everything through. With a delay, a put is copied
 * into a queue: of its peer, or of its peer and channel when channels may
 * overtake each other. progress() delivers what is due; its payload and signal
 * go in one put of the other transport, so payload stays before signal. A copy
 * lives until the other transport has flushed it. Payload that a put counts as
 * pending is not copied, but read when it is delivered: a caller that does not
 * wait for that sends something else. A get begins when its delay is over, in
 * progress(), and so ends after the call that asked for it.
 *
 * Sleepers are woken for what is due by a timer beside the other transport's
 * descriptor.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "transports/common/wrap.h"
#include "transports/fault/program.h"
#include <shunt/transport.h>

#define CHANNELS 8

/* A put that is to come, or of which the payload is still in use. */
struct later {
    struct later *next;
    uint64_t due;
    struct shunt_transport_put put;
    unsigned *pending;       /* of the caller's memory; NULL: it is copied */
    unsigned char payload[]; /* then */
};

/* A get that is to come. */
struct later_get {
    struct later_get *next;
    uint64_t due;
    struct shunt_transport_get get;
};

struct queue {
    struct later *first, **last;
    uint64_t newest; /* due time of the last one: order is kept */
};

struct shunt_transport_ep {
    struct shunt_transport_ep *next;
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *inner;
    int peer;
    struct queue queues[CHANNELS]; /* [0] alone without `reorder` */
    struct later *delivered;       /* not flushed yet */
    struct later_get *gets;        /* by due time */
    enum shunt_status failed;      /* of a put that was accepted */
    bool dead;                     /* by `die` */
};

struct shunt_transport_ctx {
    const struct shunt_transport *t;
    struct shunt_transport_ctx *inner;
    struct shunt_transport_ep *eps;
    struct fault_program program;
    uint64_t random;
    uint64_t puts;    /* so far */
    uint64_t gets;    /* the same */
    size_t waiting;   /* puts in all queues */
    bool silent;      /* by `silence` */
    bool armed;       /* the timer is set */
    int epoll, timer; /* -1 without a delay */
    bool own_error;   /* `error` is newer than the other's */
    char error[256];
};

__attribute__((format(printf, 3, 4))) static enum shunt_status
fail(struct shunt_transport_ctx *ctx, enum shunt_status status,
     const char *format, ...)
{
    va_list args;

    ctx->own_error = true;
    va_start(args, format);
    vsnprintf(ctx->error, sizeof(ctx->error), format, args);
    va_end(args);
    return status;
}

/* The other transport's answer, with its text. */
static enum shunt_status passed(struct shunt_transport_ctx *ctx,
                                enum shunt_status status)
{
    if (status < 0)
        ctx->own_error = false;
    return status;
}

static uint64_t now(void)
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

/* -- contexts
 * --------------------------------------------------------------- */

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

    ctx->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    ctx->epoll = epoll_create1(EPOLL_CLOEXEC);
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
    if (!fault_program_parse(host->env ? host->env("SHUNT_FAULT") : NULL,
                             &ctx->program, why, why_len)) {
        free(ctx);
        return SHUNT_ERR_INVALID;
    }
    if (ctx->program.rank >= 0 && ctx->program.rank != params->rank) {
        /* What changes the shape of the world must be the same everywhere. */
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

static void fault_close(struct shunt_transport_ctx *ctx)
{
    if (!ctx)
        return;
    /* The descriptors first: one of them watches the other's. */
    if (ctx->epoll >= 0)
        close(ctx->epoll);
    if (ctx->timer >= 0)
        close(ctx->timer);
    if (ctx->inner)
        ctx->t->close(ctx->inner);
    while (ctx->eps) {
        struct shunt_transport_ep *ep = ctx->eps;

        ctx->eps = ep->next;
        for (int c = 0; c < CHANNELS; c++)
            free_list(&ep->queues[c].first);
        free_list(&ep->delivered);
        while (ep->gets)
            free(take_get(&ep->gets));
        free(ep);
    }
    free(ctx);
}

static const char *fault_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->own_error ? ctx->error : ctx->t->error(ctx->inner);
}

static enum shunt_status fault_address(struct shunt_transport_ctx *ctx,
                                       void *blob, size_t *len)
{
    return passed(ctx, ctx->t->address(ctx->inner, blob, len));
}

/* -- endpoints and memory: handed through
 * ----------------------------------- */

static enum shunt_status fault_connect(struct shunt_transport_ctx *ctx,
                                       int peer, const void *blob, size_t len,
                                       struct shunt_transport_ep **out)
{
    struct shunt_transport_ep *ep = *out;

    if (!ep) {
        ep = calloc(1, sizeof(*ep));
        if (!ep)
            return fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
        ep->ctx = ctx;
        ep->peer = peer;
        for (int c = 0; c < CHANNELS; c++)
            ep->queues[c].last = &ep->queues[c].first;
        ep->next = ctx->eps;
        ctx->eps = ep;
        *out = ep;
    }
    return passed(ctx,
                  ctx->t->connect(ctx->inner, peer, blob, len, &ep->inner));
}

static unsigned fault_caps(const struct shunt_transport_ep *ep)
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
    return passed(ctx, ctx->t->reg(ctx->inner, memory, key, len, reg));
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
    return passed(ep->ctx, ep->ctx->t->import(ep->inner, key, len, remote));
}

/* Of a put: does it go to this memory? */
static bool goes_to(const struct later *later,
                    const struct shunt_transport_remote *remote)
{
    return later->put.remote == remote || later->put.signal == remote;
}

/* Lose what is still queued for it, as the caller did not flush; NULL: what
 * reads the caller's memory. */
static void forget(struct shunt_transport_ep *ep,
                   const struct shunt_transport_remote *remote)
{
    for (int c = 0; c < CHANNELS; c++) {
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

static void fault_release(struct shunt_transport_ep *ep,
                          struct shunt_transport_remote *remote)
{
    forget(ep, remote);
    ep->ctx->t->release(ep->inner, remote);
}

static void *fault_map(struct shunt_transport_ep *ep,
                       struct shunt_transport_remote *remote)
{
    if (!(fault_caps(ep) & SHUNT_TRANSPORT_MAP))
        return NULL;
    return ep->ctx->t->map(ep->inner, remote);
}

/* -- puts
 * ------------------------------------------------------------------- */

static uint64_t first_due(const struct shunt_transport_ctx *ctx)
{
    uint64_t first = UINT64_MAX;

    for (struct shunt_transport_ep *ep = ctx->eps; ep; ep = ep->next) {
        if (ep->gets && ep->gets->due < first)
            first = ep->gets->due;
        if (ctx->waiting == 0)
            continue;
        for (int c = 0; c < CHANNELS; c++) {
            const struct later *later = ep->queues[c].first;

            if (later && later->due < first)
                first = later->due;
        }
    }
    return first;
}

/* A sleeper wakes for the first put or get that is due. */
static void set_timer(struct shunt_transport_ctx *ctx)
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

/* What the other transport has against it is found when it is delivered, and
 * told by the next put or flush to this peer. */
static enum shunt_status enqueue(struct shunt_transport_ep *ep,
                                 const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const struct fault_program *program = &ctx->program;
    struct queue *q =
        &ep->queues[program->reorder ? put->channel % CHANNELS : 0];
    struct later *later;

    const size_t copied = put->pending ? 0 : put->bytes;

    if (put->bytes > SIZE_MAX / 2) /* no memory is as large */
        return fail(ctx, SHUNT_ERR_INVALID, "put outside the memory of rank %d",
                    ep->peer);
    later = malloc(sizeof(*later) + copied);
    if (!later)
        return fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    later->next = NULL;
    later->put = *put;
    later->pending = put->pending;
    if (put->pending) {
        ++*put->pending;
    } else {
        later->put.local = later->payload;
        later->put.reg = NULL; /* the copy is not registered */
    }
    if (copied > 0)
        memcpy(later->payload, put->local, copied);
    later->due = now() + delay_of(ctx);
    if (later->due < q->newest)
        later->due = q->newest;
    q->newest = later->due;
    *q->last = later;
    q->last = &later->next;
    ctx->waiting++;
    if (ctx->armed)
        set_timer(ctx);
    return SHUNT_OK;
}

/* Of a put that was delivered late. */
static enum shunt_status take_failure(struct shunt_transport_ep *ep)
{
    enum shunt_status status = ep->failed;

    ep->failed = SHUNT_OK;
    return passed(ep->ctx, status);
}

/* Is the program about puts to this peer? */
static bool concerns(const struct shunt_transport_ep *ep)
{
    const struct fault_program *program = &ep->ctx->program;

    return program->peer < 0 || program->peer == ep->peer;
}

/* Does the program strike this put? SHUNT_OK: it goes on its way. */
static enum shunt_status strike(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const struct fault_program *program = &ctx->program;

    if (!concerns(ep))
        return SHUNT_OK;
    ctx->puts++;
    if (ctx->puts == program->fail)
        return fail(ctx, SHUNT_ERR_SYSTEM,
                    "put %llu to rank %d failed (SHUNT_FAULT: fail)",
                    (unsigned long long)ctx->puts, ep->peer);
    if (ctx->puts == program->die)
        ep->dead = true;
    if (ctx->puts == program->silence)
        ctx->silent = true;
    return SHUNT_OK;
}

static enum shunt_status fault_put(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    enum shunt_status status;

    if (ep->failed)
        return take_failure(ep);
    status = strike(ep);
    if (status)
        return status;
    if (ep->dead)
        return fail(ctx, SHUNT_ERR_PEER, "rank %d is gone (SHUNT_FAULT: die)",
                    ep->peer);
    if (ctx->silent && concerns(ep))
        return SHUNT_OK; /* into the void */
    if (ctx->program.delay == 0 || !concerns(ep))
        return passed(ctx, ctx->t->put(ep->inner, put));
    if (!ctx->t->alive(ep->inner))
        return passed(ctx, ctx->t->put(ep->inner, put)); /* says so */
    return enqueue(ep, put);
}

/* Hand over what is due of one queue. */
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
        if (later->pending) { /* by the other transport now, if it is */
            free_later(later);
            continue;
        }
        later->next = ep->delivered;
        ep->delivered = later;
    }
}

/* -- gets
 * ------------------------------------------------------------------- */

static enum shunt_status begin_get(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (ctx->program.badget && ++ctx->gets % ctx->program.badget == 0)
        return fail(ctx, SHUNT_ERR_SYSTEM,
                    "read %llu of plain memory, of rank %d, fails "
                    "(SHUNT_FAULT)",
                    (unsigned long long)ctx->gets, ep->peer);
    return passed(ctx, ctx->t->get(ep->inner, get));
}

static enum shunt_status enqueue_get(struct shunt_transport_ep *ep,
                                     const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct later_get *later = malloc(sizeof(*later)), **at = &ep->gets;

    if (!later)
        return fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    later->due = now() + delay_of(ctx);
    later->get = *get;
    while (*at && (*at)->due <= later->due)
        at = &(*at)->next;
    later->next = *at;
    *at = later;
    *get->status = SHUNT_IN_PROGRESS;
    if (ctx->armed)
        set_timer(ctx);
    return SHUNT_OK;
}

static enum shunt_status fault_get(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_get *get)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (!(fault_caps(ep) & SHUNT_TRANSPORT_GET))
        return fail(ctx, SHUNT_ERR_UNSUPPORTED,
                    "plain memory of rank %d cannot be read (SHUNT_FAULT)",
                    ep->peer);
    if (ep->dead)
        return fail(ctx, SHUNT_ERR_PEER, "rank %d is gone (SHUNT_FAULT: die)",
                    ep->peer);
    if (ctx->program.delay > 0 && concerns(ep))
        return enqueue_get(ep, get);
    return begin_get(ep, get);
}

/* Begin those that are due. */
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

/* Those that have not begun. */
static void cancel_gets(struct shunt_transport_ep *ep)
{
    while (ep->gets) {
        *ep->gets->get.status =
            fail(ep->ctx, SHUNT_ERR_PEER, "rank %d was let go of", ep->peer);
        free(take_get(&ep->gets));
    }
}

/* -- progress and flushing
 * -------------------------------------------------- */

static void deliver_all(struct shunt_transport_ctx *ctx)
{
    uint64_t t;

    if (ctx->program.delay == 0)
        return;
    t = now();
    for (struct shunt_transport_ep *ep = ctx->eps; ep; ep = ep->next) {
        for (int c = 0; c < CHANNELS; c++)
            deliver(ep, &ep->queues[c], t);
        begin_gets(ep, t);
        if (ep->delivered && ctx->t->flush(ep->inner) != SHUNT_IN_PROGRESS)
            free_list(&ep->delivered);
    }
}

static enum shunt_status fault_flush(struct shunt_transport_ep *ep)
{
    if (ep->failed)
        return take_failure(ep);
    if (ep->dead)
        return fail(ep->ctx, SHUNT_ERR_PEER,
                    "rank %d is gone (SHUNT_FAULT: die)", ep->peer);
    for (int c = 0; c < CHANNELS; c++) {
        if (ep->queues[c].first)
            return SHUNT_IN_PROGRESS;
    }
    return passed(ep->ctx, ep->ctx->t->flush(ep->inner));
}

static enum shunt_status fault_let_go(struct shunt_transport_ep *ep,
                                      bool by_force)
{
    const struct shunt_transport *t = ep->ctx->t;

    cancel_gets(ep);
    if (by_force)
        forget(ep, NULL);
    for (int c = 0; c < CHANNELS; c++)
        for (const struct later *l = ep->queues[c].first; l; l = l->next)
            if (l->pending)
                return SHUNT_IN_PROGRESS;
    return t->let_go ? passed(ep->ctx, t->let_go(ep->inner, by_force))
                     : SHUNT_OK;
}

/* -- waiting
 * ---------------------------------------------------------------- */

static void fault_wake(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (ctx->silent && concerns(ep))
        return;
    ctx->t->wake(ep->inner);
}

static int fault_progress(struct shunt_transport_ctx *ctx)
{
    int events = ctx->t->progress(ctx->inner);

    deliver_all(ctx); /* ours, and no news of anybody */
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
        return passed(ctx, status);
    if (first_due(ctx) <= now()) {
        ctx->t->disarm(ctx->inner);
        return SHUNT_IN_PROGRESS;
    }
    ctx->armed = true;
    set_timer(ctx);
    return SHUNT_OK;
}

static void fault_disarm(struct shunt_transport_ctx *ctx)
{
    struct itimerspec off = {{0, 0}, {0, 0}};

    ctx->armed = false;
    if (ctx->timer >= 0) /* which also makes it unreadable */
        timerfd_settime(ctx->timer, 0, &off, NULL);
    ctx->t->disarm(ctx->inner);
}

static bool fault_alive(const struct shunt_transport_ep *ep)
{
    return !ep->dead && ep->ctx->t->alive(ep->inner);
}

static bool fault_left(const struct shunt_transport_ep *ep)
{
    return !ep->dead && ep->ctx->t->left(ep->inner);
}

static bool fault_busy(const struct shunt_transport_ctx *ctx)
{
    return ctx->waiting > 0 || (ctx->t->busy && ctx->t->busy(ctx->inner));
}

/* Of the transport that it wraps. */
static size_t fault_counters(const struct shunt_transport_ctx *ctx,
                             struct shunt_transport_counter *counters,
                             size_t room)
{
    return ctx->t->counters ? ctx->t->counters(ctx->inner, counters, room) : 0;
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
    .summary = "wraps another transport and does it harm, for tests",
    .score = 0,
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
