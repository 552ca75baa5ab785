// SPDX-License-Identifier: Apache-2.0
/*
 * The tcp transport: its context, sleeping, and the plugin itself.
 *
 * tcp gives way to ucx on hosts with an RDMA device, which only ucx can use.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/tcp/tcp.h"

#define SCORE 11  /* tried before ucx */
#define EVENTS 64 /* events in one call of progress() */
/* How long close() waits for the answers to BYE. */
#define BYE_MS 250

int64_t tcp_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Remove the descriptor from the epoll explicitly. Closing does not do that
 * while a child that has just been forked holds the descriptor. */
void tcp_unwatch(struct shunt_transport_ctx *ctx, int *fd)
{
    if (*fd >= 0)
        epoll_ctl(ctx->epoll, EPOLL_CTL_DEL, *fd, NULL);
    transport_close(fd);
}

/* --- RDMA ----------------------------------------------------------------- */

static bool is_active(const char *device, const char *port)
{
    char path[600], state[32] = "";
    FILE *f;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%s/state",
             device, port);
    f = fopen(path, "r");
    if (!f)
        return false;
    if (!fgets(state, sizeof(state), f))
        state[0] = 0;
    fclose(f);
    return strstr(state, "ACTIVE") != NULL;
}

/* Find an RDMA device with an active port. Sets `name` to its name, or "". */
static void find_rdma(char *name, size_t len)
{
    DIR *devices = opendir("/sys/class/infiniband");
    struct dirent *d;

    name[0] = 0;
    while (devices && !name[0] && (d = readdir(devices))) {
        char path[300 + sizeof(d->d_name)];
        DIR *ports;
        struct dirent *p;

        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports",
                 d->d_name);
        ports = d->d_name[0] == '.' ? NULL : opendir(path);
        while (ports && (p = readdir(ports)))
            if (p->d_name[0] != '.' && is_active(d->d_name, p->d_name))
                snprintf(name, len, "%s", d->d_name);
        if (ports)
            closedir(ports);
    }
    if (devices)
        closedir(devices);
}

/* Find the RDMA device that ucx should use instead of this transport. Sets
 * `name` to its name, or "". */
static void find_device_of_ucx(const struct shunt_transport_host *host,
                               char *name, size_t len)
{
    find_rdma(name, len);
    if (name[0] && (!host->find || !host->find("ucx")))
        name[0] = 0;
}

/* Is another transport better here? */
static bool yields(const struct shunt_transport_params *params, char *why,
                   size_t why_len)
{
    char device[256];

    if (params->one_host || params->asked_for)
        return false;
    find_device_of_ucx(params->host, device, sizeof(device));
    if (!device[0])
        return false;
    snprintf(why, why_len,
             "there is an RDMA device, %s, which is left to ucx; "
             "SHUNT_TRANSPORTS=shm,tcp uses TCP all the same",
             device);
    return true;
}

/* --- contexts ------------------------------------------------------------- */

static enum shunt_status tcp_probe(const struct shunt_transport_host *host,
                                   struct shunt_transport_estimate *estimate,
                                   char *why, size_t why_len)
{
    char device[256];

    find_device_of_ucx(host, device, sizeof(device));
    estimate->latency = 15e-6;
    estimate->bandwidth = 1e9;
    snprintf(why, why_len, "reaches ranks on other hosts by TCP%s%s%s",
             device[0] ? ", if asked for: the RDMA device " : "", device,
             device[0] ? " is left to ucx" : " (SHUNT_TCP_INTERFACES)");
    return SHUNT_OK;
}

/* Called in a forked child. */
static void forked(void *arg)
{
    struct shunt_transport_ctx *ctx = arg;

    transport_close(&ctx->epoll);
    transport_close(&ctx->listen);
    for (struct tcp_conn *conn = ctx->conns; conn; conn = conn->next)
        transport_close(&conn->fd);
    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep)
            continue;
        for (int i = 0; i < TCP_LINES; i++)
            transport_close(&ep->line[i].fd);
        transport_close(&ep->pidfd);
    }
}

static void tcp_close(struct shunt_transport_ctx *ctx);

static enum shunt_status tcp_open(const struct shunt_transport_params *params,
                                  struct shunt_transport_ctx **out, char *why,
                                  size_t why_len)
{
    struct shunt_transport_ctx *ctx;
    enum shunt_status status;

    *out = NULL;
    if (yields(params, why, why_len))
        return SHUNT_ERR_UNSUPPORTED;
    ctx = aligned_alloc(_Alignof(struct shunt_transport_ctx), sizeof(*ctx));
    if (!ctx) {
        snprintf(why, why_len, "out of memory");
        return SHUNT_ERR_MEMORY;
    }
    memset(ctx, 0, sizeof(*ctx));
    ctx->host = params->host;
    ctx->rank = params->rank;
    ctx->nranks = params->nranks;
    ctx->unreached = params->unreached;
    ctx->one_host = params->one_host;
    memcpy(ctx->secret, params->secret, sizeof(ctx->secret));
    ctx->listen = -1;
    ctx->listen_watch = (struct tcp_watch){TCP_WATCH_LISTEN, ctx};
    ctx->eps = calloc((size_t)ctx->nranks, sizeof(*ctx->eps));
    ctx->epoll = shunti_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    if (!ctx->eps || ctx->epoll < 0) {
        status = ctx->eps ? SHUNT_ERR_SYSTEM : SHUNT_ERR_MEMORY;
        snprintf(why, why_len, "%s%s", strerror(errno),
                 transport_remedy(ctx->host, errno));
        tcp_close(ctx);
        return status;
    }
    transport_fork_watch(&ctx->fork, forked, ctx);
    status = tcp_find_places(ctx, why, why_len);
    if (!status)
        status = tcp_listen(ctx, why, why_len);
    if (status) {
        tcp_close(ctx);
        return status;
    }
    *out = ctx;
    return SHUNT_OK;
}

static bool has_unsent(const struct shunt_transport_ep *ep)
{
    return ep->line[TCP_MAIN].first || ep->line[TCP_EXPRESS].first;
}

/* Is there a peer that was not sent BYE yet, or that has not answered it? */
static bool misses_bye_ack(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; p < ctx->nranks; p++) {
        const struct shunt_transport_ep *ep = ctx->eps[p];

        if (ep && ep->line[TCP_MAIN].fd >= 0 && !ep->broken &&
            (has_unsent(ep) || (!ep->left && !ep->bye_acked)))
            return true;
    }
    return false;
}

static int tcp_progress(struct shunt_transport_ctx *ctx);

/*
 * Notify the peers that this rank leaves. A socket that is closed while it has
 * unread input may lose data that was sent on it. So wait a little for the
 * answers.
 */
static void say_bye(struct shunt_transport_ctx *ctx)
{
    const struct tcp_header bye = {.kind = TCP_BYE};
    const int64_t deadline = tcp_now() + BYE_MS;
    struct pollfd pfd = {.fd = ctx->epoll, .events = POLLIN};

    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->left)
            continue;
        tcp_send_header(&ep->line[TCP_MAIN], &bye);
        if (tcp_line_of_short(ep) != &ep->line[TCP_MAIN])
            tcp_send_header(&ep->line[TCP_EXPRESS], &bye);
    }
    while (misses_bye_ack(ctx) && tcp_now() < deadline) {
        if (ctx->host->meanwhile)
            ctx->host->meanwhile();
        if (!tcp_progress(ctx))
            poll(&pfd, 1, 10);
    }
}

static void free_endpoint(struct shunt_transport_ep *ep)
{
    if (!ep)
        return;
    tcp_close_lines(ep);
    tcp_unwatch(ep->ctx, &ep->pidfd);
    while (ep->remotes)
        tcp_release(ep, (struct shunt_transport_remote *)(void *)ep->remotes);
    free(ep);
}

static void tcp_close(struct shunt_transport_ctx *ctx)
{
    if (!ctx)
        return;
    if (ctx->eps)
        say_bye(ctx);
    transport_fork_forget(&ctx->fork);
    while (ctx->conns)
        tcp_conn_drop(ctx->conns);
    tcp_stop_listening(ctx, 0);
    for (int p = 0; ctx->eps && p < ctx->nranks; p++)
        free_endpoint(ctx->eps[p]);
    for (size_t i = 0; i < ctx->regs.count; i++)
        tcp_reg_drop((struct shunt_transport_reg *)(void *)ctx->regs.slot[i]);
    while (ctx->spare) {
        struct tcp_send *send = ctx->spare;

        ctx->spare = send->next;
        free(send);
    }
    transport_close(&ctx->epoll);
    explicit_bzero(ctx->secret, sizeof(ctx->secret));
    free(ctx->regs.slot);
    free(ctx->eps);
    free(ctx);
}

static const char *tcp_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->error.text;
}

/* --- progress and sleeping ------------------------------------------------ */

static void on_event(const struct tcp_watch *watch, uint32_t events)
{
    struct tcp_line *line;

    switch (watch->kind) {
    case TCP_WATCH_LISTEN:
        tcp_accept(watch->of);
        break;
    case TCP_WATCH_HANDSHAKE:
        tcp_conn_event(watch->of);
        break;
    case TCP_WATCH_LINE:
        line = watch->of;
        if (events & EPOLLOUT)
            tcp_push(line);
        if (line->reads && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
            tcp_receive(line);
        break;
    case TCP_WATCH_PROCESS:
        tcp_process_ended(watch->of);
        break;
    }
}

static int tcp_progress(struct shunt_transport_ctx *ctx)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(ctx->epoll, events, EVENTS, 0);

    ctx->events = 0;
    for (int i = 0; i < n; i++)
        on_event(events[i].data.ptr, events[i].events);
    /* The following calls are after the loop, because they drop connections to
     * which a later event may point. */
    if (ctx->awaited)
        tcp_express_expire(ctx);
    if (ctx->connected == ctx->unreached && !ctx->awaited)
        tcp_stop_listening(ctx, 0);
    if (ctx->conns) {
        tcp_conns_expire(ctx);
        tcp_resume_listening(ctx);
    }
    if (ctx->news)
        tcp_note_losses(ctx);
    return (int)ctx->events;
}

static int tcp_wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->epoll;
}

/* Unread input keeps the epoll readable, so there is nothing to arm. */
static enum shunt_status tcp_arm(struct shunt_transport_ctx *ctx)
{
    return ctx->news ? SHUNT_IN_PROGRESS : SHUNT_OK;
}

static bool tcp_alive(const struct shunt_transport_ep *ep)
{
    return !ep->gone;
}

static bool tcp_left(const struct shunt_transport_ep *ep)
{
    return ep->gone && ep->left;
}

static bool tcp_busy(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && !ctx->eps[p]->gone && has_unsent(ctx->eps[p]))
            return true;
    return false;
}

/* --- capabilities --------------------------------------------------------- */

static unsigned tcp_caps(const struct shunt_transport_ep *ep)
{
    (void)ep;
    return SHUNT_TRANSPORT_ZCOPY | SHUNT_TRANSPORT_TAIL;
}

/* A message that was partly sent cannot be taken back, so the connection is
 * ended. Brief memory that was deregistered is not written to any more
 * (receive.c). */
static enum shunt_status tcp_let_go(struct shunt_transport_ep *ep,
                                    bool by_force)
{
    bool lent = false;

    for (int i = 0; i < TCP_LINES; i++)
        for (const struct tcp_send *s = ep->line[i].first; s; s = s->next)
            lent |= s->pending != NULL;
    if (!lent)
        return SHUNT_OK;
    if (!by_force)
        return SHUNT_IN_PROGRESS;
    tcp_broken(ep, ECANCELED);
    tcp_close_lines(ep);
    return SHUNT_OK;
}

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_TCP_INTERFACES", NULL,
     "Network interfaces for connections between hosts by TCP: those to use "
     "('eth0,eth1'), or those not to use after one ^ ('^docker0')."},
    {"SHUNT_TCP_PORTS", NULL,
     "Ports to listen on for connections between hosts by TCP, as a firewall "
     "lets them through: '20000-20999'; one for each rank of a host and "
     "communicator that is being made."},
    {NULL, NULL, NULL},
};

SHUNT_TRANSPORT_IS_FAR(SCORE);

extern const struct shunt_transport shunt_transport_v2;

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "tcp",
    .summary = "other hosts, by TCP",
    .score = SCORE,
    .probe = tcp_probe,
    .open = tcp_open,
    .close = tcp_close,
    .error = tcp_error,
    .address = tcp_address,
    .connect = tcp_connect,
    .caps = tcp_caps,
    .reg = tcp_reg,
    .dereg = tcp_dereg,
    .import = tcp_import,
    .release = tcp_release,
    .put = tcp_put,
    .flush = tcp_flush,
    .let_go = tcp_let_go,
    .wake = tcp_wake,
    .progress = tcp_progress,
    .wait_fd = tcp_wait_fd,
    .arm = tcp_arm,
    .alive = tcp_alive,
    .left = tcp_left,
    .busy = tcp_busy,
    .counters = tcp_counters,
    .knobs = knobs,
};
