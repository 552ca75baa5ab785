// SPDX-License-Identifier: Apache-2.0
/*
 * The shm transport: context, fast path, sleeping, and the plugin itself.
 *
 * The fast path takes no lock and makes no system call unless the peer sleeps.
 * put() is a memcpy and a store-release. wake() is a fence and a load of the
 * peer's `armed`. progress() loads this rank's `news`, which a peer raises when
 * it has sent a message over a socket, and reads a coarse clock. The sockets,
 * which also show that a peer was killed, are checked every LOOK_MS, and after
 * each sleep.
 *
 * A rank sleeps on an epoll descriptor with its event and every socket. The
 * event is edge-triggered, so that it need not be read.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/shm/shm.h"

#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
/* The sanitizer does not support the fence in wake(). The fence orders a store
 * before a later load of another word, which the sanitizer does not check
 * anyway. */
#pragma GCC diagnostic ignored "-Wtsan"
#endif

#define LOOK_MS 1
#define EVENTS 32

int64_t shm_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Called in a forked child. */
static void forked(void *arg)
{
    struct shunt_transport_ctx *ctx = arg;

    ctx->forked = true;
    transport_close(&ctx->listen);
    transport_close(&ctx->epoll);
    for (int i = 0; i < ctx->nranks; i++) {
        if (ctx->eps[i] && ctx->eps[i]->link)
            transport_close(&ctx->eps[i]->link->fd);
    }
}

/* --- contexts ------------------------------------------------------------- */

static enum shunt_status probe(const struct shunt_transport_host *host,
                               struct shunt_transport_estimate *estimate,
                               char *why, size_t why_len)
{
    int fd, error;
    void *map = shm_memory_create("shunt-probe", 4096, &fd);

    if (!map) {
        snprintf(why, why_len, "no shared memory (memfd): %s%s",
                 strerror(errno), transport_remedy(host, errno));
        return SHUNT_ERR_UNSUPPORTED;
    }
    munmap(map, 4096);
    close(fd);
    fd = shunti_fd_lift(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd < 0) {
        snprintf(why, why_len, "no unix sockets: %s%s", strerror(errno),
                 transport_remedy(host, errno));
        return SHUNT_ERR_UNSUPPORTED;
    }
    close(fd);

    error = shm_cma_self();
    if (!shm_cma_allowed(host))
        snprintf(why, why_len,
                 "reaches processes of this host; plain memory is not read "
                 "(SHUNT_CMA=off)");
    else if (error)
        snprintf(why, why_len,
                 "reaches processes of this host; plain memory cannot be read "
                 "(process_vm_readv: %s)",
                 strerror(error));
    else
        snprintf(why, why_len,
                 "reaches processes of this host; plain memory is read by "
                 "process_vm_readv where a peer permits");
    estimate->latency = 150e-9;
    estimate->bandwidth = 10e9;
    return SHUNT_OK;
}

static void ep_free(struct shunt_transport_ep *ep)
{
    while (ep->remotes)
        shm_release(ep, (struct shunt_transport_remote *)(void *)ep->remotes);
    while (ep->shares)
        shm_share_drop(ep, ep->shares->id);
    if (ep->control)
        munmap(ep->control, sizeof(*ep->control));
    transport_close(&ep->event);
    free(ep);
}

static void close_ctx(struct shunt_transport_ctx *ctx)
{
    if (!ctx)
        return;
    transport_fork_forget(&ctx->fork);
    /* Set `left` before the sockets are closed, so that a peer that sees their
     * end also sees `left`. */
    if (ctx->control && !ctx->forked)
        atomic_store_explicit(&ctx->control->left, 1, memory_order_release);
    for (int i = 0; ctx->eps && i < ctx->nranks; i++) {
        struct shunt_transport_ep *ep = ctx->eps[i];

        if (!ep)
            continue;
        if (ep->link)
            shm_link_drop(ep->link);
        if (ep->control && !ctx->forked)
            atomic_fetch_add_explicit(&ep->control->news, 1,
                                      memory_order_release);
    }
    while (ctx->regs)
        shm_dereg(ctx, ctx->regs); /* sends nothing: the links are closed */
    while (ctx->unauthenticated)
        shm_link_drop(ctx->unauthenticated);
    shm_links_free_dropped(ctx);
    for (int i = 0; ctx->eps && i < ctx->nranks; i++) {
        if (ctx->eps[i])
            ep_free(ctx->eps[i]);
    }
    free(ctx->eps);
    transport_close(&ctx->listen);
    transport_close(&ctx->epoll);
    transport_close(&ctx->event);
    transport_close(&ctx->control_fd);
    if (ctx->control)
        munmap(ctx->control, sizeof(*ctx->control));
    explicit_bzero(ctx->secret, sizeof(ctx->secret));
    free(ctx);
}

static enum shunt_status open_descriptors(struct shunt_transport_ctx *ctx,
                                          char *why, size_t why_len)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLET,
        .data.ptr = &ctx->event_watch,
    };

    ctx->event_watch = SHM_WATCH_EVENT;
    ctx->control = shm_memory_create("shunt-control", sizeof(*ctx->control),
                                     &ctx->control_fd);
    if (!ctx->control) {
        snprintf(why, why_len, "no shared memory (memfd): %s%s",
                 strerror(errno), transport_remedy(ctx->host, errno));
        return SHUNT_ERR_SYSTEM;
    }
    ctx->event = shunti_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    ctx->epoll = shunti_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    if (ctx->event < 0 || ctx->epoll < 0 ||
        epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, ctx->event, &event)) {
        snprintf(why, why_len, "no event descriptors: %s%s", strerror(errno),
                 transport_remedy(ctx->host, errno));
        return SHUNT_ERR_SYSTEM;
    }
    return shm_listen(ctx, why, why_len);
}

static enum shunt_status open_ctx(const struct shunt_transport_params *params,
                                  struct shunt_transport_ctx **out, char *why,
                                  size_t why_len)
{
    struct shunt_transport_ctx *ctx = calloc(1, sizeof(*ctx));
    enum shunt_status status;

    *out = NULL;
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    ctx->host = params->host;
    ctx->rank = params->rank;
    ctx->nranks = params->nranks;
    memcpy(ctx->secret, params->secret, sizeof(ctx->secret));
    ctx->control_fd = ctx->event = ctx->epoll = ctx->listen = -1;
    ctx->look = true;
    ctx->cma = shm_cma_allowed(params->host);
    if (getrandom(&ctx->cookie, sizeof(ctx->cookie), 0) !=
        (ssize_t)sizeof(ctx->cookie)) {
        snprintf(why, why_len, "no random numbers: %s", strerror(errno));
        free(ctx);
        return SHUNT_ERR_SYSTEM;
    }
    ctx->eps = calloc((size_t)ctx->nranks, sizeof(struct shunt_transport_ep *));
    if (ctx->eps) {
        status = open_descriptors(ctx, why, why_len);
    } else {
        snprintf(why, why_len, "out of memory");
        status = SHUNT_ERR_MEMORY;
    }
    if (status) {
        close_ctx(ctx);
        return status;
    }
    if (ctx->cma)
        shm_cma_consent();
    transport_fork_watch(&ctx->fork, forked, ctx);
    *out = ctx;
    return SHUNT_OK;
}

static const char *error(const struct shunt_transport_ctx *ctx)
{
    return ctx->error.text;
}

static unsigned caps(const struct shunt_transport_ep *ep)
{
    return SHUNT_TRANSPORT_MAP | (ep->cma ? SHUNT_TRANSPORT_GET : 0u);
}

static void *map(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote)
{
    (void)ep;
    return remote->map;
}

/* --- moving data ---------------------------------------------------------- */

static void wake(struct shunt_transport_ep *ep)
{
    const uint64_t one = 1;

    /* This rank's stores are ordered before the load of `armed`. In arm() the
     * store of `armed` is ordered before the check of the condition. So at
     * least one of the two ranks sees the other's store. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&ep->control->armed, memory_order_relaxed))
        return;
    if (!atomic_exchange_explicit(&ep->control->armed, 0, memory_order_acq_rel))
        return; /* another peer wakes the owner */
    if (write(ep->event, &one, sizeof(one)) < 0) {
        /* The counter is full, after 2^64 wake-ups, so the descriptor is
         * readable. */
    }
}

static bool inside(const struct shunt_transport_remote *remote, size_t offset,
                   size_t bytes)
{
    return offset <= remote->bytes && bytes <= remote->bytes - offset;
}

static enum shunt_status put(struct shunt_transport_ep *ep,
                             const struct shunt_transport_put *put)
{
    if (ep->gone)
        return shm_fail(ep->ctx, SHUNT_ERR_PEER, "rank %d is gone", ep->peer);
    if ((put->bytes && !inside(put->remote, put->offset, put->bytes)) ||
        (put->signal && (put->signal_offset % 8 ||
                         !inside(put->signal, put->signal_offset, 8))))
        return transport_fail_outside(&ep->ctx->error, ep->peer);

    if (put->bytes)
        memcpy(put->remote->map + put->offset, put->local, put->bytes);
    if (put->signal) {
        void *word = put->signal->map + put->signal_offset;

        __atomic_store_n((uint64_t *)word, put->signal_value, __ATOMIC_RELEASE);
        wake(ep);
    }
    return SHUNT_OK;
}

static enum shunt_status flush(struct shunt_transport_ep *ep)
{
    if (ep->gone)
        return shm_fail(ep->ctx, SHUNT_ERR_PEER, "rank %d is gone", ep->peer);
    return SHUNT_OK; /* a put is complete when put() returns */
}

/* --- waiting -------------------------------------------------------------- */

static int handle_event(struct shunt_transport_ctx *ctx,
                        const struct epoll_event *event)
{
    struct shm_link *link;

    switch (*(enum shm_watch *)event->data.ptr) {
    case SHM_WATCH_EVENT:
        return 1;
    case SHM_WATCH_LISTEN:
        shm_accept(ctx);
        return 1;
    case SHM_WATCH_LINK:
        break;
    }
    link = event->data.ptr;
    if (link->state != SHM_DOWN && event->events & EPOLLOUT)
        shm_link_flush(link);
    if (link->state != SHM_DOWN && event->events & ~(uint32_t)EPOLLOUT)
        return shm_link_read(link);
    return 0;
}

/* Mark the peers whose sockets have ended as gone. From now on, calls report
 * that they are gone. */
static void note_losses(struct shunt_transport_ctx *ctx)
{
    for (int i = 0; i < ctx->nranks; i++) {
        struct shunt_transport_ep *ep = ctx->eps[i];

        if (!ep || !ep->down || ep->gone)
            continue;
        ep->gone = true;
        ep->left = ep->control && atomic_load_explicit(&ep->control->left,
                                                       memory_order_acquire);
    }
}

int shm_look(struct shunt_transport_ctx *ctx)
{
    struct epoll_event events[EVENTS];
    int handled = 0;
    int n;

    ctx->look = false;
    ctx->next_look = shm_now() + LOOK_MS;
    /* Load `news` before the sockets are read, because a message that arrives
     * meanwhile raises `news` again. */
    ctx->news_seen =
        atomic_load_explicit(&ctx->control->news, memory_order_acquire);
    do {
        n = epoll_wait(ctx->epoll, events, EVENTS, 0);
        for (int i = 0; i < n; i++)
            handled += handle_event(ctx, &events[i]);
    } while (n == EVENTS);
    shm_expire_unauthenticated(ctx);
    shm_links_free_dropped(ctx);
    return handled;
}

static int progress(struct shunt_transport_ctx *ctx)
{
    unsigned news =
        atomic_load_explicit(&ctx->control->news, memory_order_acquire);
    int handled;

    if (news == ctx->news_seen && !ctx->look && shm_now() < ctx->next_look)
        return 0;
    handled = shm_look(ctx);
    note_losses(ctx);
    return handled;
}

static int wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->epoll;
}

static enum shunt_status arm(struct shunt_transport_ctx *ctx)
{
    atomic_store_explicit(&ctx->control->armed, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with wake() */
    if (ctx->look ||
        atomic_load_explicit(&ctx->control->news, memory_order_acquire) !=
            ctx->news_seen) {
        atomic_store_explicit(&ctx->control->armed, 0, memory_order_relaxed);
        return SHUNT_IN_PROGRESS;
    }
    return SHUNT_OK;
}

static void disarm(struct shunt_transport_ctx *ctx)
{
    atomic_store_explicit(&ctx->control->armed, 0, memory_order_relaxed);
    ctx->look = true;
}

static bool alive(const struct shunt_transport_ep *ep)
{
    return !ep->gone;
}

static bool left(const struct shunt_transport_ep *ep)
{
    return ep->left;
}

extern const struct shunt_transport shunt_transport_v2;

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "shm",
    .summary = "shared memory between the processes of one host",
    .score = 100,
    .probe = probe,
    .open = open_ctx,
    .close = close_ctx,
    .error = error,
    .address = shm_address,
    .connect = shm_connect,
    .caps = caps,
    .reg = shm_reg,
    .dereg = shm_dereg,
    .import = shm_import,
    .release = shm_release,
    .map = map,
    .put = put,
    .get = shm_get,
    .flush = flush,
    .wake = wake,
    .progress = progress,
    .wait_fd = wait_fd,
    .arm = arm,
    .disarm = disarm,
    .alive = alive,
    .left = left,
};
