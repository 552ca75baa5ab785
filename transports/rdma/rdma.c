// SPDX-License-Identifier: Apache-2.0
/* The rdma transport: its context, sleeping, and the plugin itself. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/rdma/rdma.h"

#define SCORE 0 /* used only if the user names this transport */
#define BURST 16
/* How long let_go() waits for transfers to end with their connection. */
#define END_MS 250
/* How long close() waits for threads that destroy queue pairs. A late thread
 * may only be waiting for a processor. */
#define CLOSE_MS 500
#define MEND_MS 100
#define BREAK_MS 5
/* Calls of progress() between two reads of the clock. CLOCK_IDLE: of calls in
 * which nothing arrived. CLOCK_BUSY: of calls in which something arrived, for
 * which a caller may be waiting. */
#define CLOCK_IDLE 4
#define CLOCK_BUSY 16

int64_t rdma_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- contexts ---------------------------------------------------------------- */

static enum shunt_status rdma_probe(const struct shunt_transport_host *host,
                                    struct shunt_transport_estimate *estimate,
                                    char *why, size_t why_len)
{
    struct rdma_nic nics[RDMA_RAILS];
    char found[900];
    const int count = rdma_nics_find(host, nics, found, sizeof(found));

    for (int n = 0; n < count; n++)
        ibv_close_device(nics[n].device);
    if (!count) {
        snprintf(why, why_len, "%s", found);
        return SHUNT_ERR_UNSUPPORTED;
    }
    estimate->latency = 3e-6;
    estimate->bandwidth = 10e9;
    snprintf(why, why_len,
             "reaches ranks on other hosts by RDMA, if asked for "
             "(SHUNT_RDMA_DEVICE chooses devices): %s",
             found);
    return SHUNT_OK;
}

static bool watch(struct shunt_transport_ctx *ctx, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return !epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, fd, &event);
}

static enum shunt_status open_tcp(struct shunt_transport_ctx *ctx,
                                  const struct shunt_transport_params *params,
                                  char *why, size_t why_len)
{
    struct shunt_transport_params own = *params;
    struct shunt_transport_memory memory = {.fd = -1};
    enum shunt_status status;

    ctx->tcp = ctx->host->find ? ctx->host->find("tcp") : NULL;
    if (!ctx->tcp) {
        snprintf(why, why_len,
                 "it needs the transport tcp, which is not "
                 "there, to connect");
        return SHUNT_ERR_UNSUPPORTED;
    }
    own.options = "";
    own.asked_for = true; /* tcp would otherwise yield to this transport */
    status = ctx->tcp->open(&own, &ctx->tcp_ctx, why, why_len);
    if (status)
        return status;
    memory.addr = ctx->mail;
    memory.bytes = (size_t)ctx->nranks * sizeof(*ctx->mail);
    ctx->mail_key_len = sizeof(ctx->mail_key);
    status = ctx->tcp->reg(ctx->tcp_ctx, &memory, ctx->mail_key,
                           &ctx->mail_key_len, &ctx->mail_reg);
    if (status)
        snprintf(why, why_len, "%s", ctx->tcp->error(ctx->tcp_ctx));
    return status;
}

void rdma_close_rest(struct shunt_transport_ctx *ctx)
{
    for (int p = 0; ctx->eps && p < ctx->nranks; p++)
        if (ctx->eps[p])
            rdma_endpoint_free(ctx->eps[p]);
    for (size_t i = 0; i < ctx->regs.count; i++)
        rdma_reg_drop((struct shunt_transport_reg *)(void *)ctx->regs.slot[i]);
    for (int n = 0; n < ctx->nic_count; n++)
        rdma_nic_close(&ctx->nics[n]);
    if (ctx->timer >= 0)
        close(ctx->timer);
    if (ctx->epoll >= 0)
        close(ctx->epoll);
    rdma_slow_free(&ctx->slow);
    free(ctx->regs.slot);
    free(ctx->eps);
    free(ctx->mail);
    free(ctx);
}

/* Return the pages of windows to their owners, which may not exist later. */
static void give_back_pages(struct shunt_transport_ctx *ctx)
{
    for (size_t i = 0; i < ctx->regs.count; i++)
        rdma_reg_give_back(
            (struct shunt_transport_reg *)(void *)ctx->regs.slot[i]);
}

static void rdma_close(struct shunt_transport_ctx *ctx)
{
    bool all;

    if (!ctx)
        return;
    /* This notifies the peers that this rank leaves. */
    if (ctx->tcp_ctx)
        ctx->tcp->close(ctx->tcp_ctx);
    ctx->tcp_ctx = NULL; /* the remotes of tcp are freed as well */
    /* After this no peer writes to this rank, and no NIC reads. */
    all = rdma_slow_destroy_all(ctx, CLOSE_MS);
    for (int p = 0; ctx->eps && p < ctx->nranks; p++)
        if (ctx->eps[p])
            rdma_endpoint_end(ctx->eps[p]);
    if (!all)
        give_back_pages(ctx);
    if (all || !rdma_slow_leave(&ctx->slow))
        rdma_close_rest(ctx);
}

static bool allocate(struct shunt_transport_ctx *ctx)
{
    ctx->eps = calloc((size_t)ctx->nranks, sizeof(struct shunt_transport_ep *));
    ctx->mail = calloc((size_t)ctx->nranks, sizeof(*ctx->mail));
    return ctx->eps && ctx->mail;
}

static enum shunt_status open_nics(struct shunt_transport_ctx *ctx, char *why,
                                   size_t why_len)
{
    enum shunt_status status = SHUNT_OK;

    ctx->nic_count = rdma_nics_find(ctx->host, ctx->nics, why, why_len);
    ctx->fragment = RDMA_FRAGMENT;
    ctx->credits = rdma_credits_of(ctx->nic_count);
    ctx->piece = SIZE_MAX;
    for (int n = 0; n < ctx->nic_count; n++) {
        struct rdma_nic *nic = &ctx->nics[n];

        nic->ctx = ctx;
        if (nic->fragment < ctx->fragment)
            ctx->fragment = nic->fragment;
        if (!status)
            status = rdma_nic_open(nic, why, why_len);
        if (!status && nic->piece < ctx->piece)
            ctx->piece = nic->piece;
        if (!status && (!watch(ctx, nic->channel->fd) ||
                        !watch(ctx, nic->device->async_fd)))
            status = SHUNT_ERR_SYSTEM;
    }
    return ctx->nic_count ? status : SHUNT_ERR_UNSUPPORTED;
}

static enum shunt_status rdma_open(const struct shunt_transport_params *params,
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
    ctx->peers = params->unreached > 0 ? params->unreached : 1;
    ctx->epoll = shunti_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    ctx->timer = shunti_fd_lift(
        timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!rdma_slow_open(ctx) || ctx->epoll < 0 || ctx->timer < 0 ||
        !watch(ctx, ctx->timer) || !watch(ctx, ctx->slow.bell) ||
        !allocate(ctx)) {
        snprintf(why, why_len, "%s%s", strerror(errno),
                 transport_remedy(ctx->host, errno));
        rdma_close(ctx);
        return SHUNT_ERR_SYSTEM;
    }
    status = open_nics(ctx, why, why_len);
    if (!status)
        status = rdma_find_crossover(ctx, why, why_len);
    if (!status)
        status = open_tcp(ctx, params, why, why_len);
    if (!status && !watch(ctx, ctx->tcp->wait_fd(ctx->tcp_ctx))) {
        snprintf(why, why_len, "%s", strerror(errno));
        status = SHUNT_ERR_SYSTEM;
    }
    if (status) {
        rdma_close(ctx);
        return status;
    }
    *out = ctx;
    return SHUNT_OK;
}

static const char *rdma_error(const struct shunt_transport_ctx *ctx)
{
    return ctx->error.text;
}

/* --- progress and sleeping --------------------------------------------------- */

/* Try again to post the requests that could not be posted. */
static void post_again(struct shunt_transport_ctx *ctx)
{
    ctx->retry = false;
    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->broken)
            continue;
        rdma_post_unsaid(ep);
        rdma_post_fragments(ep);
        rdma_post_reports(ep);
    }
}

/* Check everything except completions. Called from time to time, and by each
 * progress() while a peer or rail is in an unusual state. */
static void look_around(struct shunt_transport_ctx *ctx)
{
    const int64_t now = rdma_now();

    ctx->quiet = 0;
    if (ctx->look || now != ctx->looked) {
        ctx->looked = now;
        rdma_look(ctx);
    }
    if (ctx->breaking) {
        while (rdma_poll(ctx))
            ;
        rdma_note_losses(ctx);
    }
    ctx->look = ctx->connecting || ctx->breaking || ctx->fencing || ctx->dark;
}

static int rdma_progress(struct shunt_transport_ctx *ctx)
{
    int count;

    ctx->events = 0;
    count = rdma_poll(ctx);
    for (int i = 1, last = count; i < BURST && last >= RDMA_BATCH; i++)
        last = rdma_poll(ctx);
    if (ctx->retry)
        post_again(ctx);
    ctx->quiet += count ? 1 : CLOCK_BUSY / CLOCK_IDLE;
    if (ctx->look || ctx->quiet >= CLOCK_BUSY)
        look_around(ctx);
    return (int)ctx->events;
}

static int rdma_wait_fd(struct shunt_transport_ctx *ctx)
{
    return ctx->epoll;
}

/* Discard events of completions that were already found by polling. */
static void drain_channel(struct rdma_nic *nic)
{
    struct ibv_cq *cq;
    void *cq_context;

    while (!ibv_get_cq_event(nic->channel, &cq, &cq_context))
        ibv_ack_cq_events(cq, 1);
}

/* Arm the NIC's events. False: something has completed. */
static bool arm_nic(struct rdma_nic *nic)
{
    if (nic->kept_count)
        return false;
    drain_channel(nic);
    if (ibv_req_notify_cq(nic->cq, 0))
        return nic->dead;
    nic->kept_count = ibv_poll_cq(nic->cq, 1, nic->kept);
    if (nic->kept_count > 0)
        return false;
    nic->kept_count = 0;
    return true;
}

static bool one_is_down(const struct shunt_transport_ctx *ctx)
{
    for (int n = 0; n < ctx->nic_count; n++)
        if (ctx->nics[n].down)
            return true;
    return false;
}

/* Arm the timer, so that a sleeping rank wakes from time to time. It then
 * checks rails that are not up, ports that are down, and peers that are not
 * gone yet. */
static void arm_timer(const struct shunt_transport_ctx *ctx)
{
    const long ms = ctx->breaking || ctx->dark ? BREAK_MS : MEND_MS;
    const struct itimerspec look = {.it_value = {.tv_nsec = ms * 1000000}};
    uint64_t times;

    if (read(ctx->timer, &times, sizeof(times)) < 0 && errno != EAGAIN)
        return;
    if (ctx->breaking || ctx->mending || one_is_down(ctx))
        timerfd_settime(ctx->timer, 0, &look, NULL);
}

/* Is there a rail to fence for which no thread is at work? (A thread wakes this
 * rank when its call ends.) */
static bool is_fencing(const struct shunt_transport_ctx *ctx)
{
    for (int p = 0; ctx->fencing && p < ctx->nranks; p++)
        for (int i = 0; ctx->eps[p] && i < ctx->eps[p]->rails; i++)
            if (ctx->eps[p]->rail[i].stage == RDMA_BROKEN &&
                !ctx->eps[p]->broken && rdma_slow_ended(&ctx->eps[p]->rail[i]))
                return true;
    return false;
}

static enum shunt_status rdma_arm(struct shunt_transport_ctx *ctx)
{
    ctx->look = true;
    if (ctx->retry || is_fencing(ctx) || rdma_slow_rang(&ctx->slow))
        return SHUNT_IN_PROGRESS;
    for (int n = 0; n < ctx->nic_count; n++)
        if (!arm_nic(&ctx->nics[n]))
            return SHUNT_IN_PROGRESS;
    arm_timer(ctx);
    return ctx->tcp->arm(ctx->tcp_ctx);
}

static void rdma_disarm(struct shunt_transport_ctx *ctx)
{
    ctx->tcp->disarm(ctx->tcp_ctx);
    ctx->look = true;
}

static void rdma_wake(struct shunt_transport_ep *ep)
{
    if (!ep->gone && !ep->left)
        ep->ctx->tcp->wake(ep->tcp);
}

static bool rdma_alive(const struct shunt_transport_ep *ep)
{
    return !ep->gone;
}

static bool rdma_left(const struct shunt_transport_ep *ep)
{
    return ep->gone && ep->left;
}

/* Would a peer miss something if this rank slept or exited? Requests that the
 * peer's NIC has not acknowledged are lost with this process. Requests of a
 * rail that is being fenced may have to be sent again. */
static bool is_busy(const struct shunt_transport_ep *ep)
{
    if (ep->gone)
        return false;
    if (ep->larges || ep->again_count)
        return true;
    for (int i = 0; i < ep->rails; i++) {
        const struct rdma_rail *rail = &ep->rail[i];

        if (rail->sends || (rail->stage >= RDMA_BROKEN && !ep->broken &&
                            rail->posted != rail->confirmed))
            return true;
    }
    return false;
}

static bool rdma_busy(const struct shunt_transport_ctx *ctx)
{
    if (ctx->rare && ctx->tcp->busy(ctx->tcp_ctx))
        return true;
    if (!ctx->sends && !ctx->larges && !ctx->mending)
        return false;
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && is_busy(ctx->eps[p]))
            return true;
    return false;
}

/* --- capabilities ------------------------------------------------------------ */

static unsigned rdma_caps(const struct shunt_transport_ep *ep)
{
    (void)ep;
    return SHUNT_TRANSPORT_ZCOPY | SHUNT_TRANSPORT_PINS;
}

static enum shunt_status rdma_let_go(struct shunt_transport_ep *ep,
                                     bool by_force)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct pollfd nothing;
    int64_t deadline;

    if (!ep->lent)
        return SHUNT_OK;
    if (!by_force)
        return SHUNT_IN_PROGRESS;
    rdma_break(ep, "given up");
    deadline = rdma_now() + END_MS;
    while (ep->lent && rdma_now() < deadline)
        if (!rdma_poll(ctx))
            poll(&nothing, 0, 1);
    rdma_forget_lent(ep);
    rdma_end_directs(ep, RDMA_END_LENT);
    return SHUNT_OK;
}

static const struct shunt_transport_knob knobs[] = {
    {"SHUNT_RDMA_DEVICE", NULL,
     "The RDMA devices that the transport rdma uses, as mlx5_0, or mlx5_0:1 "
     "with a port, or several with commas between. Unset: at most 4 with "
     "active "
     "ports, the nearest first."},
    {"SHUNT_RDMA_GID_INDEX", NULL,
     "The GID of the port. Unset: one of RoCE v2, of an IPv4 address if there "
     "is one."},
    {"SHUNT_RDMA_SL", "0",
     "The service level (0 to 15) of packets; with InfiniBand, the subnet "
     "manager decides which ones exist."},
    {"SHUNT_RDMA_IMMEDIATE", "with",
     "Where the immediate of a message is sent. \"with\": in the request of "
     "the "
     "payload. \"behind\": if the payload is larger than 8 KiB, in an empty "
     "request after it: for networks that spread packets over several routes, "
     "but not packets of requests with an immediate."},
    {"SHUNT_RDMA_COPY", NULL,
     "Bytes (8192 to 24576) up to which a put from memory that is not "
     "registered is copied to registered memory first; for a larger put its "
     "memory is registered. Unset: measured when the device is opened."},
    {NULL, NULL, NULL},
};

SHUNT_TRANSPORT_IS_FAR(SCORE);

extern const struct shunt_transport shunt_transport_v2;

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SHUNT_TRANSPORT_ABI,
    .name = "rdma",
    .summary = "other hosts, by RDMA writes (libibverbs)",
    .score = SCORE,
    .probe = rdma_probe,
    .open = rdma_open,
    .close = rdma_close,
    .error = rdma_error,
    .address = rdma_address,
    .connect = rdma_connect,
    .caps = rdma_caps,
    .reg = rdma_reg,
    .dereg = rdma_dereg,
    .import = rdma_import,
    .release = rdma_release,
    .put = rdma_put,
    .flush = rdma_flush,
    .let_go = rdma_let_go,
    .wake = rdma_wake,
    .progress = rdma_progress,
    .wait_fd = rdma_wait_fd,
    .arm = rdma_arm,
    .disarm = rdma_disarm,
    .alive = rdma_alive,
    .left = rdma_left,
    .busy = rdma_busy,
    .counters = rdma_counters,
    .knobs = knobs,
};
