// SPDX-License-Identifier: Apache-2.0
/*
 * The express connection: a second connection of a pair, for short messages.
 *
 * The kernel accepts megabytes into the buffer of a connection, which take tens
 * of milliseconds on a slow link. An ack or a credit that is put then waits
 * behind these bytes. A pair of ranks in which that happens makes a second
 * connection. From then on all puts of the channels below SHUNT_TRANSPORT_BULK
 * use it, so that a channel keeps its order. Other pairs have no second
 * connection, and no costs.
 *
 *     connector                       listener
 *     ASK                      ->
 *                              <-     PORT port     (without ASK, if the
 *                                                    listener needs it)
 *     a connection to that port, with the proofs of handshake.c
 *     FROM_HERE                ->
 *                              <-     FROM_HERE
 *
 * ASK, PORT and FROM_HERE are messages on the main connection. FROM_HERE is
 * sent behind earlier short puts. Data on the express connection is read only
 * after FROM_HERE has arrived. If no connection can be made (a firewall, no
 * descriptor, no port of SHUNT_TCP_PORTS), the pair continues without an
 * express connection. The listener then sends PORT 0, or the connector NONE.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/tcp/tcp.h"

/* A short put waits too long behind this many unsent bytes, which take 2 ms at
 * 1 Gbit/s. */
#define BACKLOG (256 << 10)
/* How long the listener's port stays open. */
#define AWAIT_MS 10000

struct tcp_line *tcp_line_of_short(struct shunt_transport_ep *ep)
{
    return &ep->line[ep->express == TCP_EXPRESS_UP ? TCP_EXPRESS : TCP_MAIN];
}

static enum shunt_status say(struct shunt_transport_ep *ep, uint32_t kind,
                             uint64_t number)
{
    const struct tcp_header header = {.kind = kind, .bytes = number};

    /* Send nothing to a process that has ended: its kernel would drop the data
     * that it still has to send. */
    if (transport_process_ended(ep->pidfd))
        return SHUNT_ERR_PEER;
    return tcp_send_header(&ep->line[TCP_MAIN], &header);
}

static void set_state(struct shunt_transport_ep *ep, enum tcp_express state)
{
    ep->ctx->awaited +=
        (state == TCP_EXPRESS_AWAITED) - (ep->express == TCP_EXPRESS_AWAITED);
    ep->express = state;
}

/* Mark the express connection as ended if this rank has given it up, but the
 * peer uses it (FROM_HERE has arrived). */
static void check_lost(struct shunt_transport_ep *ep)
{
    struct tcp_line *line = &ep->line[TCP_EXPRESS];

    if (line->reads && ep->express == TCP_EXPRESS_FAILED)
        tcp_line_failed(line, ECONNRESET);
}

void tcp_express_give_up(struct shunt_transport_ep *ep)
{
    if (ep->express == TCP_EXPRESS_UP)
        return;
    set_state(ep, TCP_EXPRESS_FAILED);
    if (tcp_connects(ep))
        say(ep, TCP_EXPRESS_NONE, 0);
    check_lost(ep);
}

/* --- the listener --------------------------------------------------------- */

bool tcp_express_awaits(const struct shunt_transport_ep *ep)
{
    return ep->up && ep->express == TCP_EXPRESS_AWAITED;
}

static void open_port(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    char why[256];

    if (ep->express != TCP_EXPRESS_UNASKED)
        return;
    if (ctx->listen < 0 && tcp_listen(ctx, why, sizeof(why))) {
        if (ctx->host->log)
            ctx->host->log(SHUNT_TRANSPORT_INFO, "tcp",
                           "short messages to rank %d wait behind others: %s",
                           ep->peer, why);
        tcp_unwatch(ctx, &ctx->listen);
        set_state(ep, TCP_EXPRESS_FAILED);
        say(ep, TCP_EXPRESS_PORT, 0);
        return;
    }
    set_state(ep, TCP_EXPRESS_AWAITED);
    ep->express_deadline = tcp_now() + AWAIT_MS;
    say(ep, TCP_EXPRESS_PORT, ctx->port);
}

/* Has the peer proven the secret, so that only READY is missing? */
static bool is_settling(const struct shunt_transport_ep *ep)
{
    for (const struct tcp_conn *conn = ep->ctx->conns; conn; conn = conn->next)
        if (conn->express && conn->stage == TCP_AWAIT_READY &&
            conn->from == ep->peer)
            return true;
    return false;
}

void tcp_express_expire(struct shunt_transport_ctx *ctx)
{
    const int64_t now = tcp_now();

    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (ep && ep->express == TCP_EXPRESS_AWAITED && !is_settling(ep) &&
            (ep->gone || ctx->listen < 0 || now > ep->express_deadline))
            tcp_express_give_up(ep);
    }
}

/* --- the connector -------------------------------------------------------- */

/* Write the peer's address, with another port, to `to`. */
static bool find_peer(const struct shunt_transport_ep *ep, uint16_t port,
                      struct sockaddr_storage *to, socklen_t *len)
{
    *len = sizeof(*to);
    if (getpeername(ep->line[TCP_MAIN].fd, (struct sockaddr *)to, len))
        return false;
    if (to->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)to)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)to)->sin6_port = htons(port);
    return true;
}

static void call_port(struct shunt_transport_ep *ep, uint16_t port)
{
    struct sockaddr_storage to;
    struct tcp_conn *conn = NULL;
    socklen_t len;
    int fd = -1;

    if (ep->express != TCP_EXPRESS_UNASKED && ep->express != TCP_EXPRESS_ASKED)
        return;
    set_state(ep, TCP_EXPRESS_CALLING);
    if (port && find_peer(ep, port, &to, &len))
        fd = shunti_fd_lift(socket(
            to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd >= 0) {
        tcp_set_options(fd);
        if (connect(fd, (struct sockaddr *)&to, len) && errno != EINPROGRESS)
            close(fd);
        else
            conn = tcp_conn_create(ep->ctx, fd, false, tcp_now() + AWAIT_MS);
    }
    if (!conn) {
        tcp_express_give_up(ep);
        return;
    }
    conn->peer = conn->to = ep->peer;
    conn->from = ep->ctx->rank;
    conn->express = true;
}

/* --- both ----------------------------------------------------------------- */

/* Would a short put on the main connection wait, because of the bytes before
 * it? */
static bool waits(struct shunt_transport_ep *ep)
{
    const struct tcp_line *main = &ep->line[TCP_MAIN];
    int unsent = 0;

    if (ep->unwatched < BACKLOG)
        return false;
    ep->unwatched = 0;
    return main->first ||
           (!ioctl(main->fd, SIOCOUTQNSD, &unsent) && unsent >= BACKLOG);
}

void tcp_express_consider(struct shunt_transport_ep *ep)
{
    if (ep->express != TCP_EXPRESS_UNASKED || !waits(ep))
        return;
    if (!tcp_connects(ep)) {
        open_port(ep);
    } else if (!say(ep, TCP_EXPRESS_ASK, 0)) {
        set_state(ep, TCP_EXPRESS_ASKED);
    }
}

void tcp_express_take(struct shunt_transport_ep *ep, int fd)
{
    struct tcp_line *line = &ep->line[TCP_EXPRESS];

    tcp_line_take(line, fd);
    tcp_line_watch(line);
    set_state(ep, TCP_EXPRESS_UP);
    if (say(ep, TCP_EXPRESS_FROM_HERE, 0))
        tcp_line_failed(line, ENOMEM);
    if (ep->ctx->host->log)
        ep->ctx->host->log(SHUNT_TRANSPORT_DEBUG, "tcp",
                           "rank %d: short messages have a connection of their "
                           "own",
                           ep->peer);
}

void tcp_express_message(struct shunt_transport_ep *ep,
                         const struct tcp_header *header)
{
    switch (header->kind) {
    case TCP_EXPRESS_ASK:
        if (!tcp_connects(ep))
            open_port(ep);
        break;
    case TCP_EXPRESS_PORT:
        if (tcp_connects(ep))
            call_port(ep, (uint16_t)header->bytes);
        break;
    case TCP_EXPRESS_NONE:
        if (!is_settling(ep))
            tcp_express_give_up(ep);
        break;
    case TCP_EXPRESS_FROM_HERE:
        ep->line[TCP_EXPRESS].reads = true;
        tcp_line_watch(&ep->line[TCP_EXPRESS]);
        check_lost(ep);
        break;
    }
}
