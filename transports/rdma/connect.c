// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting to a peer, and losing it.
 *
 * The tcp transport connects first, and so proves that both sides know the secret.
 * By its puts each side then writes the number of its queue pair and the key of its
 * ring into the other's mail, and how far it has come. The pair is connected when
 * each side has received a record of the other, knows that its own has arrived, and
 * knows that the other knows. If a device does not reach the other, both sides hear
 * of it in the same way, and another transport can be used.
 *
 * A peer is lost when its socket or process ends. Then the queue pair is put to the
 * error state: no more comes from the peer, and what is under way to it ends. What
 * has arrived by then is handled, and only then the peer is gone.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "transports/rdma/rdma.h"

/* A NIC gives up a request in half a second. */
#define REACH_MS 10000
/* How long a NIC may take to tell of what has arrived before the error state. */
#define DRAIN_MS 5

struct address {
    char magic[8];
    struct rdma_place place;
    uint32_t mail_key_len, tcp_len;
    unsigned char mail_key[64];
    /* the address of tcp follows */
};

static const char address_magic[8] = "shunrdm1";

/* --- addresses --------------------------------------------------------------- */

enum shunt_status rdma_address(struct shunt_transport_ctx *ctx, void *blob,
                               size_t *len)
{
    struct address a = {.mail_key_len = (uint32_t)ctx->mail_key_len};
    unsigned char tcp[SHUNT_TRANSPORT_ADDRESS_MAX];
    size_t tcp_len = sizeof(tcp);
    enum shunt_status status;

    status = ctx->tcp->address(ctx->tcp_ctx, tcp, &tcp_len);
    if (status)
        return rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx));
    if (*len < sizeof(a) + tcp_len)
        return rdma_fail(ctx, SHUNT_ERR_OVERFLOW,
                         "an address takes %zu bytes, and there is room for "
                         "%zu",
                         sizeof(a) + tcp_len, *len);
    memcpy(a.magic, address_magic, sizeof(a.magic));
    a.place = ctx->place;
    a.tcp_len = (uint32_t)tcp_len;
    memcpy(a.mail_key, ctx->mail_key, ctx->mail_key_len);
    memcpy(blob, &a, sizeof(a));
    memcpy((unsigned char *)blob + sizeof(a), tcp, tcp_len);
    *len = sizeof(a) + tcp_len;
    return SHUNT_OK;
}

static bool read_address(struct address *a, const void *blob, size_t len)
{
    if (len <= sizeof(*a))
        return false;
    memcpy(a, blob, sizeof(*a));
    return !memcmp(a->magic, address_magic, sizeof(a->magic)) &&
           a->mail_key_len <= sizeof(a->mail_key) &&
           a->tcp_len == len - sizeof(*a);
}

/* --- mail -------------------------------------------------------------------- */

static enum rdma_stage their_stage(const struct shunt_transport_ep *ep)
{
    const uint64_t *stage = &ep->ctx->mail[ep->peer].stage;

    return (enum rdma_stage)__atomic_load_n(stage, __ATOMIC_ACQUIRE);
}

/* Tell the peer how far we have come. What cannot be sent now is sent later. */
static void tell(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const size_t at = (size_t)ctx->rank * sizeof(struct rdma_mail);
    const struct shunt_transport_put put = {
        .local = &ep->ours,
        .remote = ep->mail,
        .offset = at + offsetof(struct rdma_mail, hello),
        .bytes = ep->told < RDMA_HELLO ? sizeof(ep->ours) : 0,
        .signal = ep->mail,
        .signal_offset = at + offsetof(struct rdma_mail, stage),
        .signal_value = ep->stage,
    };

    if (ep->told >= ep->stage || !ep->mail)
        return;
    if (ctx->tcp->put(ep->tcp, &put) == SHUNT_OK)
        ep->told = ep->stage;
}

/* --- losing a peer ----------------------------------------------------------- */

/* Does tcp know that the peer is gone? */
static bool is_gone_by_tcp(struct shunt_transport_ep *ep)
{
    const struct shunt_transport *tcp = ep->ctx->tcp;

    if (!ep->tcp || !ep->mail || tcp->alive(ep->tcp))
        return false;
    ep->left = tcp->left(ep->tcp);
    return true;
}

static void to_error_state(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    (void)ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* It has ended, well or not. */
static void stop_connecting(struct shunt_transport_ep *ep)
{
    ep->ctx->connecting -= ep->connecting;
    ep->connecting = false;
}

void rdma_break(struct shunt_transport_ep *ep, const char *format, ...)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    va_list args;

    if (ep->broken)
        return;
    ep->broken = true;
    ep->broken_at = rdma_now();
    stop_connecting(ep);
    ctx->breaking++;
    va_start(args, format);
    vsnprintf(ep->reason, sizeof(ep->reason), format, args);
    va_end(args);
    /* A NIC may tell of it before the socket does. */
    ctx->events += (unsigned)ctx->tcp->progress(ctx->tcp_ctx);
    if (is_gone_by_tcp(ep))
        snprintf(ep->reason, sizeof(ep->reason), "%s",
                 ep->left ? "it has left" : "its process or host is gone");
    if (ctx->host->log)
        ctx->host->log(SHUNT_TRANSPORT_DEBUG, "rdma", "rank %d: %s", ep->peer,
                       ep->reason);
    ep->stage = RDMA_BROKEN;
    tell(ep);
    rdma_drop_larges(ep);
    if (ep->qp)
        to_error_state(ep->qp);
}

/* --- events of the device ---------------------------------------------------- */

static struct shunt_transport_ep *find_qp(const struct shunt_transport_ctx *ctx,
                                          const struct ibv_qp *qp)
{
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && ctx->eps[p]->qp == qp)
            return ctx->eps[p];
    return NULL;
}

static void break_all(struct shunt_transport_ctx *ctx, const char *why)
{
    for (int p = 0; p < ctx->nranks; p++)
        if (ctx->eps[p] && ctx->eps[p]->qp)
            rdma_break(ctx->eps[p], "%s", why);
}

static void on_event(struct shunt_transport_ctx *ctx,
                     const struct ibv_async_event *event)
{
    const char *what = ibv_event_type_str(event->event_type);
    struct shunt_transport_ep *ep;

    switch (event->event_type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        ep = find_qp(ctx, event->element.qp);
        if (ep)
            ep->drained = true;
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        ep = find_qp(ctx, event->element.qp);
        if (ep)
            rdma_break(ep, "the device says: %s", what);
        break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
        break_all(ctx, what);
        break;
    default: /* of the port: requests fail, if it does not come back */
        if (ctx->host->log)
            ctx->host->log(SHUNT_TRANSPORT_INFO, "rdma", "%s: %s",
                           ctx->device->device->name, what);
    }
}

static void read_events(struct shunt_transport_ctx *ctx)
{
    struct ibv_async_event event;

    while (!ibv_get_async_event(ctx->device, &event)) {
        on_event(ctx, &event);
        ibv_ack_async_event(&event);
    }
}

void rdma_look(struct shunt_transport_ctx *ctx)
{
    read_events(ctx);
    ctx->events += (unsigned)ctx->tcp->progress(ctx->tcp_ctx);
    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->gone)
            continue;
        if (!ep->broken && is_gone_by_tcp(ep))
            rdma_break(ep, "gone");
        else if (!ep->broken && their_stage(ep) == RDMA_BROKEN)
            rdma_break(ep, "its connection broke");
        tell(ep);
    }
}

/* Has all come that it sent? */
static bool is_drained(const struct shunt_transport_ep *ep, int64_t now)
{
    return ep->drained || !ep->qp || now >= ep->broken_at + DRAIN_MS;
}

/* Is a peer broken, but not gone, that did not leave? */
static bool one_is_being_lost(const struct shunt_transport_ctx *ctx,
                              int64_t now)
{
    for (int p = 0; p < ctx->nranks; p++) {
        const struct shunt_transport_ep *ep = ctx->eps[p];

        if (ep && ep->broken && !ep->gone && !ep->left && !is_drained(ep, now))
            return true;
    }
    return false;
}

void rdma_note_losses(struct shunt_transport_ctx *ctx)
{
    const int64_t now = rdma_now();
    const bool losing = one_is_being_lost(ctx, now);

    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->gone || !ep->broken || !is_drained(ep, now))
            continue;
        /* Who has left may have left because of another's death, which is to be
         * named: so that comes first, also if we hear of it a little later. */
        if (ep->left && (losing || now < ep->broken_at + DRAIN_MS))
            continue;
        ep->gone = true;
        ctx->breaking--;
        ctx->events++;
    }
}

/* --- endpoints --------------------------------------------------------------- */

void rdma_endpoint_free(struct shunt_transport_ep *ep)
{
    while (ep->remotes)
        rdma_release(ep, (struct shunt_transport_remote *)(void *)ep->remotes);
    rdma_drop_larges(ep);
    if (ep->qp)
        ibv_destroy_qp(ep->qp);
    rdma_end_larges(ep);
    if (ep->rings_mr)
        ibv_dereg_mr(ep->rings_mr);
    if (ep->rings)
        munmap(ep->rings, 2 * RDMA_RING);
    free(ep);
}

static struct shunt_transport_ep *create(struct shunt_transport_ctx *ctx,
                                         int peer)
{
    struct shunt_transport_ep *ep = calloc(1, sizeof(*ep));

    if (!ep)
        return NULL;
    ep->ctx = ctx;
    ep->peer = peer;
    ep->last_large = &ep->larges;
    ep->connecting = true;
    ctx->eps[peer] = ep;
    ctx->connecting++;
    ctx->connections++;
    return ep;
}

/* The queue pair and the rings. */
static enum shunt_status equip(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct shunt_transport_ep **same;
    uint32_t random[2];

    ep->rings = mmap(NULL, 2 * RDMA_RING, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ep->rings == MAP_FAILED) {
        ep->rings = NULL;
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    }
    ep->rings_mr = ibv_reg_mr(ctx->pd, ep->rings, 2 * RDMA_RING,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!ep->rings_mr)
        return rdma_fail_registration(ctx, 2 * RDMA_RING, errno);
    ep->qp = rdma_qp_create(ctx);
    if (!ep->qp || getrandom(random, sizeof(random), 0) != sizeof(random))
        return rdma_fail(ctx, SHUNT_ERR_SYSTEM,
                         "%s: no queue pair for rank %d: %s",
                         ctx->device->device->name, ep->peer, strerror(errno));
    same = &ctx->by_qp[ep->qp->qp_num & ctx->by_qp_mask];
    ep->next_of_qp = *same;
    *same = ep;
    ep->ours = (struct rdma_hello){
        .ring = (uint64_t)(uintptr_t)(ep->rings + RDMA_RING),
        .ring_key = ep->rings_mr->rkey,
        .qp = ep->qp->qp_num,
        .psn = rdma_bits(random[0], 24),
        .epoch = rdma_bits(random[1], RDMA_EPOCH_BITS),
    };
    ep->stage = RDMA_HELLO;
    return SHUNT_OK;
}

/* --- connecting -------------------------------------------------------------- */

/* The connection of tcp, and the peer's mail there. */
static enum shunt_status connect_tcp(struct shunt_transport_ep *ep,
                                     const struct address *a,
                                     const unsigned char *tcp_address)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    enum shunt_status status;

    status = ctx->tcp->connect(ctx->tcp_ctx, ep->peer, tcp_address, a->tcp_len,
                               &ep->tcp);
    if (!status)
        status =
            ctx->tcp->import(ep->tcp, a->mail_key, a->mail_key_len, &ep->mail);
    if (status && status != SHUNT_IN_PROGRESS)
        return rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx));
    return status;
}

/* What is needed before the ranks can tell each other of their queue pairs. */
static enum shunt_status prepare(struct shunt_transport_ep *ep,
                                 const struct address *a,
                                 const unsigned char *tcp_address)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (!ep->mail) {
        enum shunt_status status = connect_tcp(ep, a, tcp_address);

        if (status)
            return status;
        ep->place = a->place;
    }
    if (ep->place.layer != ctx->place.layer)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "rank %d: one device is InfiniBand, the other RoCE",
                         ep->peer);
    return ep->qp ? SHUNT_OK : equip(ep);
}

/* One step, if what it needs of the peer is there. */
static void step(struct shunt_transport_ep *ep)
{
    const enum rdma_stage theirs = their_stage(ep);
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (ep->stage == RDMA_HELLO && theirs >= RDMA_HELLO &&
        theirs != RDMA_BROKEN) {
        int error;

        ep->theirs = ctx->mail[ep->peer].hello;
        error = rdma_qp_connect(ep);
        if (error)
            rdma_break(ep, "the queue pair cannot be connected: %s",
                       strerror(error));
        else
            ep->stage = RDMA_READY;
        ep->deadline = rdma_now() + REACH_MS;
    }
    if (ep->stage == RDMA_READY && theirs >= RDMA_READY && !ep->sent_first) {
        struct rdma_record first = {.asks = 0};

        ep->sent_first = !rdma_post_record(ep, &first, NULL, true, NULL);
    }
    if (ep->stage == RDMA_READY && ep->acked && ep->next_record > 0)
        ep->stage = RDMA_REACHED;
    else if (ep->stage == RDMA_READY && rdma_now() > ep->deadline)
        rdma_break(ep, "nothing comes from it");
    tell(ep);
}

enum shunt_status rdma_connect(struct shunt_transport_ctx *ctx, int peer,
                               const void *blob, size_t len,
                               struct shunt_transport_ep **out)
{
    struct shunt_transport_ep *ep;
    enum shunt_status status;
    struct address a;

    if (peer < 0 || peer >= ctx->nranks || peer == ctx->rank)
        return rdma_fail(ctx, SHUNT_ERR_INVALID, "rank %d is not a peer", peer);
    if (!read_address(&a, blob, len))
        return rdma_fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address",
                         peer);
    if (!ctx->eps[peer] && ctx->connections == ctx->peers)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "the queues have room for %d peers, and rank %d is "
                         "one more",
                         ctx->peers, peer);
    ep = ctx->eps[peer] ? ctx->eps[peer] : create(ctx, peer);
    if (!ep)
        return rdma_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    *out = ep;
    if (ep->up)
        return SHUNT_OK;
    status = prepare(ep, &a, (const unsigned char *)blob + sizeof(a));
    if (status) {
        if (status != SHUNT_IN_PROGRESS)
            stop_connecting(ep);
        return status;
    }
    step(ep);
    if (ep->broken)
        return rdma_fail(ctx, SHUNT_ERR_UNSUPPORTED,
                         "rank %d is not reached by RDMA (%s): %s", peer,
                         ctx->device->device->name, ep->reason);
    if (ep->stage != RDMA_REACHED || their_stage(ep) != RDMA_REACHED)
        return SHUNT_IN_PROGRESS;
    ep->up = true;
    stop_connecting(ep);
    return SHUNT_OK;
}
