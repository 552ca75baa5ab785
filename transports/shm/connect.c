// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting to a peer, and the proofs of the secret.
 *
 * In each pair the higher rank connects and the lower listens (listen.c):
 *
 *     connector                       listener
 *     HELLO ranks, nonce       ->
 *                              <-     CHALLENGE nonce, proof
 *     PROOF proof              ->
 *     INFO page, event         ->
 *                              <-     INFO page, event
 *     READY                    ->
 *                              <-     READY
 *
 * A proof is an HMAC-SHA-256, keyed by the secret, of a label that differs
 * between the sides, both nonces and both ranks. READY is sent after the trial
 * of get() and this rank's connect(). A link is up when READY was sent and
 * received.
 *
 * The listener of a pair must also find out if its peer cannot be reached
 * (another host, another network namespace). So it connects to the peer's name
 * as well, and closes that connection unused.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/common/proof.h"
#include "transports/shm/shm.h"

#define TRIAL_MS 200

struct address {
    char magic[8];
    char name[40];
};

static const char address_magic[8] = "shunshm1";

/* --- endpoints ------------------------------------------------------------ */

enum shunt_status shm_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len)
{
    struct address address = {{0}, {0}};

    if (*len < sizeof(address))
        return shm_fail(ctx, SHUNT_ERR_OVERFLOW, "an address takes %zu bytes",
                        sizeof(address));
    memcpy(address.magic, address_magic, sizeof(address.magic));
    memcpy(address.name, ctx->name, sizeof(address.name));
    memcpy(blob, &address, sizeof(address));
    *len = sizeof(address);
    return SHUNT_OK;
}

/* Returns the endpoint of a peer. Creates it if there is none: connect() and
 * the peer's connection may arrive in either order. NULL: no memory. */
static struct shunt_transport_ep *endpoint(struct shunt_transport_ctx *ctx,
                                           int peer)
{
    struct shunt_transport_ep *ep = ctx->eps[peer];

    if (ep)
        return ep;
    ep = calloc(1, sizeof(*ep));
    if (!ep)
        return NULL;
    ep->ctx = ctx;
    ep->peer = peer;
    ep->event = -1;
    ctx->eps[peer] = ep;
    return ep;
}

__attribute__((format(printf, 3, 4))) static void
failed(struct shunt_transport_ep *ep, enum shunt_status status,
       const char *format, ...)
{
    va_list args;

    if (ep->failed)
        return; /* the first reason is the cause of the others */
    ep->failed = status;
    va_start(args, format);
    vsnprintf(ep->reason, sizeof(ep->reason), format, args);
    va_end(args);
}

/* Refuse a peer, and send it the reason. */
static void refuse(struct shunt_transport_ep *ep)
{
    struct shm_message message = {
        .type = SHM_MSG_READY,
        .u.ready = {.refused = 1},
    };

    snprintf(message.u.ready.text, sizeof(message.u.ready.text), "%.*s",
             (int)sizeof(message.u.ready.text) - 1, ep->reason);
    ep->ready_sent = true;
    if (ep->link)
        shm_send(ep->link, &message, NULL, 0);
}

static void now_up(struct shunt_transport_ep *ep)
{
    if (!ep->ready_sent || !ep->ready_seen || ep->failed || !ep->link)
        return;
    ep->link->state = SHM_UP;
    ep->cma = ep->we_read && ep->they_read;
    ep->up = true;
}

static enum shunt_status status_of(int error)
{
    return error == ENOMEM ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM;
}

/* This rank cannot send the next message of the handshake, for which the peer
 * waits. Let connect() fail. */
static void send_failed(struct shunt_transport_ep *ep, int error)
{
    failed(ep, status_of(error), "cannot send to rank %d: %s%s", ep->peer,
           strerror(error), transport_remedy(ep->ctx->host, error));
}

static void send_ready(struct shunt_transport_ep *ep)
{
    struct shm_message message = {
        .type = SHM_MSG_READY,
        .u.ready = {.cma = ep->we_read},
    };
    int error;

    if (!ep->wanted || ep->ready_sent || ep->failed || !ep->link ||
        ep->link->state != SHM_AWAIT_READY)
        return;
    error = shm_send(ep->link, &message, NULL, 0);
    if (error) {
        send_failed(ep, error);
        return;
    }
    ep->ready_sent = true;
    now_up(ep);
}

static void send_info(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct shm_message message = {
        .type = SHM_MSG_INFO,
        .u.info =
            {
                .cookie_address = (uint64_t)(uintptr_t)&ctx->cookie,
                .cookie = ctx->cookie,
                .cma = ctx->cma,
            },
    };
    const int fds[2] = {ctx->control_fd, ctx->event};
    int error = shm_send(ep->link, &message, fds, 2);

    if (!error)
        return;
    /* Some security policies forbid passing descriptors. This transport cannot
     * be used then. */
    failed(ep,
           error == EPERM || error == EACCES ? SHUNT_ERR_UNSUPPORTED
                                             : status_of(error),
           "descriptors cannot be passed to rank %d: %s%s", ep->peer,
           strerror(error), transport_remedy(ep->ctx->host, error));
    refuse(ep);
}

/* --- the handshake -------------------------------------------------------- */

enum side { CONNECTOR, LISTENER };

static struct transport_proof proof_of(const struct shm_link *link,
                                       enum side side)
{
    static const char *const labels[2] = {"shm connector", "shm listener"};

    return (struct transport_proof){
        .secret = link->ctx->secret,
        .label = labels[side],
        .from = link->from,
        .to = link->to,
        .nonces = {link->nonces[CONNECTOR], link->nonces[LISTENER]},
    };
}

static void make_proof(const struct shm_link *link, enum side side,
                       unsigned char *proof)
{
    const struct transport_proof p = proof_of(link, side);

    transport_prove(&p, proof, TRANSPORT_PROOF_MAX);
}

static bool proven(const struct shm_link *link, enum side side,
                   const unsigned char *proof)
{
    const struct transport_proof p = proof_of(link, side);

    return transport_proven(&p, proof, TRANSPORT_PROOF_MAX);
}

/* This rank lacks a resource for accepting a peer, which does not connect
 * again. So accept no peer any more: shm_connect() then fails, and the other
 * ranks get the reason. */
static void cannot_accept(struct shm_link *link, int error)
{
    shm_stop_accepting(link->ctx, error);
    shm_link_drop(link);
}

static void on_hello(struct shm_link *link, const struct shm_message *message)
{
    struct shunt_transport_ctx *ctx = link->ctx;
    struct shm_message reply = {.type = SHM_MSG_CHALLENGE};
    int error;

    link->from = message->u.hello.from;
    link->to = message->u.hello.to;
    if (link->to != ctx->rank || link->from <= ctx->rank ||
        link->from >= ctx->nranks) {
        shm_refuse(link, "it is not a rank of this communicator");
        return;
    }
    memcpy(link->nonces[CONNECTOR], message->u.hello.nonce, TRANSPORT_NONCE);
    if (!shm_random(link->nonces[LISTENER], TRANSPORT_NONCE)) {
        cannot_accept(link, errno);
        return;
    }
    memcpy(reply.u.challenge.nonce, link->nonces[LISTENER], TRANSPORT_NONCE);
    make_proof(link, LISTENER, reply.u.challenge.proof);
    link->state = SHM_AWAIT_PROOF;
    error = shm_send(link, &reply, NULL, 0);
    if (error)
        cannot_accept(link, error);
}

static void on_challenge(struct shm_link *link,
                         const struct shm_message *message)
{
    struct shm_message reply = {.type = SHM_MSG_PROOF};
    int error;

    memcpy(link->nonces[LISTENER], message->u.challenge.nonce, TRANSPORT_NONCE);
    if (!proven(link, LISTENER, message->u.challenge.proof)) {
        failed(link->ep, SHUNT_ERR_UNSUPPORTED,
               "the process that listens under the name of rank %d does not "
               "know the communicator's secret",
               link->ep->peer);
        shm_link_drop(link);
        return;
    }
    make_proof(link, CONNECTOR, reply.u.proof.proof);
    link->state = SHM_AWAIT_INFO;
    error = shm_send(link, &reply, NULL, 0);
    if (error) {
        send_failed(link->ep, error);
        shm_link_drop(link);
    } else {
        send_info(link->ep);
    }
}

static void on_proof(struct shm_link *link, const struct shm_message *message)
{
    struct shunt_transport_ctx *ctx = link->ctx;
    struct shunt_transport_ep *ep;

    if (!proven(link, CONNECTOR, message->u.proof.proof)) {
        shm_refuse(link, "it does not know the communicator's secret");
        return;
    }
    ep = endpoint(ctx, link->from);
    if (!ep) {
        cannot_accept(link, ENOMEM);
        return;
    }
    if (ep->link || ep->down) {
        shm_refuse(link, "that rank is connected already");
        return;
    }
    /* The peer is authenticated now: remove it from the list. */
    for (struct shm_link **p = &ctx->unauthenticated; *p; p = &(*p)->next) {
        if (*p == link) {
            *p = link->next;
            ctx->nunauthenticated--;
            break;
        }
    }
    link->next = NULL;
    link->ep = ep;
    ep->link = link;
    ep->pid = link->pid;
    link->state = SHM_AWAIT_INFO;
    send_info(ep);
}

static void on_info(struct shm_link *link, const struct shm_message *message,
                    int *fds, int nfds, int lost)
{
    struct shunt_transport_ep *ep = link->ep;
    size_t mapped;

    link->state = SHM_AWAIT_READY;
    if (nfds == SHM_MESSAGE_FDS) {
        ep->event = fds[1];
        fds[1] = -1; /* shm_handle() must not close it */
        ep->control = shm_memory_map(fds[0], sizeof(*ep->control), &mapped);
        lost = errno;
    }
    if (!ep->control) {
        failed(ep, status_of(lost),
               "the descriptors of rank %d did not arrive: %s%s", ep->peer,
               strerror(lost ? lost : EBADMSG),
               transport_remedy(ep->ctx->host, lost));
        refuse(ep);
        return;
    }
    ep->we_read = ep->ctx->cma && message->u.info.cma &&
                  shm_cma_try(ep->pid, message->u.info.cookie_address,
                              message->u.info.cookie);
    send_ready(ep);
}

static void on_ready(struct shm_link *link, const struct shm_message *message)
{
    struct shunt_transport_ep *ep = link->ep;

    if (message->u.ready.refused) {
        failed(ep, SHUNT_ERR_UNSUPPORTED, "rank %d cannot be reached: %.*s",
               ep->peer, (int)sizeof(message->u.ready.text) - 1,
               message->u.ready.text);
        return;
    }
    ep->they_read = message->u.ready.cma;
    ep->ready_seen = true;
    now_up(ep);
}

static bool expected(const struct shm_link *link, uint32_t type)
{
    switch (type) {
    case SHM_MSG_HELLO:
        return link->state == SHM_AWAIT_HELLO;
    case SHM_MSG_CHALLENGE:
        return link->state == SHM_AWAIT_CHALLENGE;
    case SHM_MSG_PROOF:
        return link->state == SHM_AWAIT_PROOF;
    case SHM_MSG_INFO:
        return link->state == SHM_AWAIT_INFO;
    case SHM_MSG_READY: /* a refusal may arrive at any time */
        return link->state >= SHM_AWAIT_INFO && link->ep;
    case SHM_MSG_SHARE:
    case SHM_MSG_DROP:
        return link->state == SHM_UP;
    default:
        return false;
    }
}

void shm_handle(struct shm_link *link, const struct shm_message *message,
                int *fds, int nfds, int lost)
{
    if (!expected(link, message->type)) {
        if (link->ep)
            shm_link_drop(link);
        else
            shm_refuse(link, "it does not speak our protocol");
    } else {
        switch ((enum shm_message_type)message->type) {
        case SHM_MSG_HELLO:
            on_hello(link, message);
            break;
        case SHM_MSG_CHALLENGE:
            on_challenge(link, message);
            break;
        case SHM_MSG_PROOF:
            on_proof(link, message);
            break;
        case SHM_MSG_INFO:
            on_info(link, message, fds, nfds, lost);
            break;
        case SHM_MSG_READY:
            on_ready(link, message);
            break;
        case SHM_MSG_SHARE:
            shm_share_add(link->ep, message->u.share.id, nfds > 0 ? fds[0] : -1,
                          lost ? lost : EBADMSG);
            if (nfds > 0)
                fds[0] = -1; /* the share keeps it */
            break;
        case SHM_MSG_DROP:
            shm_share_drop(link->ep, message->u.share.id);
            break;
        }
    }
    for (int i = 0; i < nfds; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* --- connecting ----------------------------------------------------------- */

/* Return a socket connected to the peer's name, or -1 and errno. */
static int reach(const struct shunt_transport_ep *ep)
{
    struct sockaddr_un sun;
    socklen_t len = shm_abstract(&sun, ep->name);
    int error;
    int fd = shunti_fd_lift(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

    if (fd < 0)
        return -1;
    if (!connect(fd, (struct sockaddr *)&sun, len))
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static void reach_failed(struct shunt_transport_ep *ep, int error)
{
    switch (error) {
    case EAGAIN: /* the backlog of the peer's socket is full */
    case EINTR:
        break;
    case ECONNREFUSED:
        failed(ep, SHUNT_ERR_UNSUPPORTED,
               "rank %d is on another host or in another network namespace, "
               "or it has ended",
               ep->peer);
        break;
    case EPERM:
    case EACCES:
        failed(ep, SHUNT_ERR_UNSUPPORTED,
               "the socket of rank %d may not be connected to: %s", ep->peer,
               strerror(error));
        break;
    default:
        failed(ep, status_of(error), "no connection to rank %d: %s%s", ep->peer,
               strerror(error), transport_remedy(ep->ctx->host, error));
        break;
    }
}

static void wrong_user(struct shunt_transport_ep *ep)
{
    /* SHUNT_ERR_UNSUPPORTED would select another transport instead. But the
     * process may not be a rank of this job at all. */
    failed(ep, SHUNT_ERR_MISMATCH,
           "rank %d runs as another user: run all ranks as one, or allow it by "
           "SHUNT_TRANSPORTS=^shm",
           ep->peer);
}

static void say_hello(struct shunt_transport_ep *ep, int fd, pid_t pid)
{
    struct shm_message hello = {
        .type = SHM_MSG_HELLO,
        .u.hello = {.from = ep->ctx->rank, .to = ep->peer},
    };
    struct shm_link *link = shm_link_create(ep->ctx, fd);
    int error;

    if (!link) {
        failed(ep, status_of(errno), "no connection to rank %d: %s", ep->peer,
               strerror(errno));
        return;
    }
    link->ep = ep;
    ep->link = link;
    link->pid = ep->pid = pid;
    link->from = ep->ctx->rank;
    link->to = ep->peer;
    link->state = SHM_AWAIT_CHALLENGE;
    if (!shm_random(link->nonces[CONNECTOR], TRANSPORT_NONCE)) {
        failed(ep, SHUNT_ERR_SYSTEM, "no random numbers: %s", strerror(errno));
        return;
    }
    memcpy(hello.u.hello.nonce, link->nonces[CONNECTOR], TRANSPORT_NONCE);
    error = shm_send(link, &hello, NULL, 0);
    if (error)
        send_failed(ep, error);
}

/* Connect if this rank is the connector. The listener only tries from time to
 * time whether it could connect. That also detects a peer that died before it
 * connected. */
static void advance(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    bool listener = ctx->rank < ep->peer;
    pid_t pid = 0;
    int fd;

    if (listener && shm_now() < ep->next_trial)
        return;
    if (listener && ctx->accept_error) {
        failed(ep, status_of(ctx->accept_error),
               "rank %d's connection cannot be accepted: %s%s", ep->peer,
               strerror(ctx->accept_error),
               transport_remedy(ctx->host, ctx->accept_error));
        return;
    }
    fd = reach(ep);
    if (fd < 0) {
        reach_failed(ep, errno);
        return;
    }
    if (!shm_same_user(fd, &pid)) {
        close(fd);
        wrong_user(ep);
    } else if (listener) {
        close(fd);
        ep->next_trial = shm_now() + TRIAL_MS;
    } else {
        say_hello(ep, fd, pid);
    }
}

static enum shunt_status begin(struct shunt_transport_ctx *ctx, int peer,
                               const void *blob, size_t len,
                               struct shunt_transport_ep **out)
{
    struct address address;
    struct shunt_transport_ep *ep;

    if (len != sizeof(address))
        return shm_fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address",
                        peer);
    memcpy(&address, blob, sizeof(address));
    if (memcmp(address.magic, address_magic, sizeof(address.magic)) ||
        !memchr(address.name, 0, sizeof(address.name)) || !address.name[0] ||
        peer < 0 || peer >= ctx->nranks || peer == ctx->rank)
        return shm_fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address",
                        peer);
    ep = endpoint(ctx, peer);
    if (!ep)
        return shm_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    memcpy(ep->name, address.name, sizeof(ep->name));
    ep->wanted = true;
    *out = ep;
    return SHUNT_OK;
}

enum shunt_status shm_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **out)
{
    struct shunt_transport_ep *ep = *out;

    if (!ep) {
        enum shunt_status status = begin(ctx, peer, blob, len, out);

        if (status)
            return status;
        ep = *out;
    }
    if (!ep->up && !ep->failed) {
        shm_look(ctx);
        if (!ep->link && !ep->down && !ep->failed)
            advance(ep);
        send_ready(ep);
    }
    if (ep->up)
        return SHUNT_OK;
    if (ep->down && !ep->link)
        failed(ep, SHUNT_ERR_PEER, "rank %d ended while it was connecting",
               peer);
    if (ep->failed)
        return shm_fail(ctx, ep->failed, "%s", ep->reason);
    return SHUNT_IN_PROGRESS;
}
