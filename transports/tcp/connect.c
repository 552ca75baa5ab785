// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting to a peer, and losing it.
 *
 * The higher rank of a pair connects, to one place of the peer after the other.
 * All places are tried again if a peer closed the connection, because a listener
 * with many unauthenticated connections may have dropped this one. The lower
 * rank waits. If no connection has arrived after the time in which every place
 * must have been tried, both sides report that the peer cannot be reached by
 * this transport. While the lower rank waits, it sometimes connects to the peer
 * as well, and closes that connection. If every place refuses, the peer no
 * longer exists.
 *
 * A peer is gone when it has sent BYE, when a connection ends without BYE, or
 * when its process on this host has ended. If only one of two connections has
 * ended, data that the peer sent on the other connection still counts. So the
 * peer is gone when the other connection has ended, too, or has been silent for
 * a while.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/tcp/tcp.h"

/* A lost first packet is sent again after 1 s. The last place has no
 * alternative, so it gets more time. */
#define ATTEMPT_MS 2500
#define LAST_ATTEMPT_MS 10000
/* Pause before all places are tried again. */
#define AGAIN_MS 100
/* The listener waits for longer than all attempts take. */
#define SPARE_MS 5000
/* After this time without a connection the listener checks whether the peer
 * exists. */
#define LOOK_MS 3000
/* After the end of the peer's process, or of its other connection, a connection
 * without data for this time is over. */
#define SILENCE_MS 100

/* --- endpoints ------------------------------------------------------------ */

struct shunt_transport_ep *tcp_endpoint(struct shunt_transport_ctx *ctx,
                                        int peer)
{
    struct shunt_transport_ep *ep = ctx->eps[peer];

    if (ep)
        return ep;
    ep = calloc(1, sizeof(*ep));
    if (!ep)
        return NULL;
    for (int i = 0; i < TCP_LINES; i++) {
        ep->line[i].watch = (struct tcp_watch){TCP_WATCH_LINE, &ep->line[i]};
        ep->line[i].ep = ep;
        ep->line[i].fd = -1;
    }
    ep->process_watch = (struct tcp_watch){TCP_WATCH_PROCESS, ep};
    ep->ctx = ctx;
    ep->peer = peer;
    ep->pidfd = -1;
    ctx->eps[peer] = ep;
    return ep;
}

/* --- losing --------------------------------------------------------------- */

void tcp_broken(struct shunt_transport_ep *ep, int error)
{
    if (!ep->broken)
        ep->error = error;
    ep->broken = true;
    ep->ctx->news = true;
}

void tcp_line_failed(struct tcp_line *line, int error)
{
    struct shunt_transport_ep *ep = line->ep;

    if (!line->failed && !ep->error)
        ep->error = error;
    line->failed = true;
    ep->ctx->news = true;
}

void tcp_line_watch(struct tcp_line *line)
{
    const uint32_t events =
        (line->reads ? EPOLLIN : 0u) | (line->first ? EPOLLOUT : 0u);
    struct epoll_event event = {.events = events, .data.ptr = &line->watch};

    if (line->fd < 0 || events == line->events)
        return;
    epoll_ctl(line->ep->ctx->epoll,
              !events         ? EPOLL_CTL_DEL
              : !line->events ? EPOLL_CTL_ADD
                              : EPOLL_CTL_MOD,
              line->fd, &event);
    line->events = events;
}

/* Begin to use the descriptor for messages. The epoll watched it for the
 * handshake, which has ended. */
void tcp_line_take(struct tcp_line *line, int fd)
{
    epoll_ctl(line->ep->ctx->epoll, EPOLL_CTL_DEL, fd, NULL);
    line->fd = fd;
    line->events = 0;
}

void tcp_line_close(struct tcp_line *line)
{
    if (line->fd < 0)
        return;
    tcp_unwatch(line->ep->ctx, &line->fd);
    line->events = 0;
    tcp_drop_sends(line);
    tcp_drop_arrival(line);
}

void tcp_close_lines(struct shunt_transport_ep *ep)
{
    for (int i = 0; i < TCP_LINES; i++)
        tcp_line_close(&ep->line[i]);
}

/* May data still arrive on this connection? */
static bool is_open(const struct tcp_line *line)
{
    return line->reads && !line->failed;
}

bool tcp_is_ending(const struct shunt_transport_ep *ep)
{
    return !ep->broken &&
           is_open(&ep->line[TCP_MAIN]) != is_open(&ep->line[TCP_EXPRESS]) &&
           (ep->line[TCP_MAIN].failed || ep->line[TCP_EXPRESS].failed);
}

void tcp_receive_bye(struct shunt_transport_ep *ep)
{
    const struct tcp_header answer = {.kind = TCP_BYE_ACK};
    const struct tcp_line *main = &ep->line[TCP_MAIN],
                          *express = &ep->line[TCP_EXPRESS];

    if (ep->left || !main->bye || (is_open(express) && !express->bye))
        return;
    tcp_send_header(&ep->line[TCP_MAIN], &answer);
    ep->left = true;
    ep->ctx->news = true;
}

/* Read what has arrived on both connections. */
static void read_all(struct shunt_transport_ep *ep)
{
    for (int i = 0; i < TCP_LINES; i++)
        while (ep->line[i].reads && tcp_receive(&ep->line[i]))
            ;
}

/* Has nothing arrived for a while? */
static bool is_silent(struct shunt_transport_ep *ep)
{
    const int64_t now = tcp_now();

    if (!ep->silent_at || ep->reads != ep->reads_seen)
        ep->silent_at = now + SILENCE_MS;
    ep->reads_seen = ep->reads;
    return now >= ep->silent_at;
}

/*
 * The process of the peer has ended. Its connections end when all data that it
 * sent has arrived. If a forked child holds the connections, too, they do not
 * end. Then the peer is lost when they have been silent for a while. Until then
 * pidfd stays readable, so that this rank does not sleep.
 */
void tcp_process_ended(struct shunt_transport_ep *ep)
{
    read_all(ep);
    if ((is_open(&ep->line[TCP_MAIN]) || is_open(&ep->line[TCP_EXPRESS])) &&
        !ep->left && !is_silent(ep))
        return;
    tcp_unwatch(ep->ctx, &ep->pidfd);
    if (!ep->left)
        tcp_broken(ep, ECONNRESET);
}

/* A connection of the peer ended. Data on the other one may still arrive. */
static void note_failed_lines(struct shunt_transport_ep *ep)
{
    read_all(ep);
    for (int i = 0; i < TCP_LINES; i++) {
        struct tcp_line *line = &ep->line[i];

        if (!line->failed)
            continue;
        /* Data may have arrived on the express connection that may only be read
         * after FROM_HERE. */
        if (line->reads || ep->line[TCP_MAIN].failed)
            tcp_line_close(line);
        else
            tcp_drop_sends(line);
    }
    tcp_receive_bye(ep);
    if (ep->left)
        return;
    if (!tcp_is_ending(ep) || is_silent(ep))
        tcp_broken(ep, ep->error);
    else
        ep->ctx->news = true; /* this rank must not sleep before that */
}

void tcp_note_losses(struct shunt_transport_ctx *ctx)
{
    ctx->news = false;
    for (int p = 0; p < ctx->nranks; p++) {
        struct shunt_transport_ep *ep = ctx->eps[p];

        if (!ep || ep->gone)
            continue;
        if (ep->line[TCP_MAIN].failed || ep->line[TCP_EXPRESS].failed)
            note_failed_lines(ep);
        if (!ep->left && !ep->broken)
            continue;
        if (ep->broken) {
            read_all(ep);
            tcp_close_lines(ep);
        }
        ep->gone = true;
        ctx->events++;
    }
}

static void watch_process(struct shunt_transport_ep *ep,
                          const struct transport_process *theirs)
{
    struct epoll_event event = {
        .events = EPOLLIN,
        .data.ptr = &ep->process_watch,
    };
    bool ended;

    ep->pidfd = transport_process_watch(theirs, &ended);
    if (ep->pidfd >= 0 &&
        epoll_ctl(ep->ctx->epoll, EPOLL_CTL_ADD, ep->pidfd, &event))
        transport_close(&ep->pidfd);
    if (ended)
        tcp_broken(ep, ECONNRESET);
}

/* --- connecting ----------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void
failed(struct shunt_transport_ep *ep, enum shunt_status status,
       const char *format, ...)
{
    va_list args;

    if (ep->failed)
        return;
    ep->failed = status;
    va_start(args, format);
    vsnprintf(ep->reason, sizeof(ep->reason), format, args);
    va_end(args);
}

bool tcp_connects(const struct shunt_transport_ep *ep)
{
    return ep->peer < ep->ctx->rank;
}

/* Begin to connect to place ep->next_place. False: this process lacks a
 * resource. */
static bool begin_attempt(struct shunt_transport_ep *ep)
{
    const struct tcp_place *place = &ep->place[ep->next_place];
    const bool last = ep->next_place + 1 == ep->places && tcp_connects(ep);
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    struct sockaddr_storage addr;
    socklen_t len = tcp_sockaddr(place, ep->port, &addr);
    int fd = shunti_fd_lift(socket(place->family, type, 0)), error;
    int64_t until = tcp_now() + (last ? LAST_ATTEMPT_MS : ATTEMPT_MS);
    struct tcp_conn *conn;

    if (fd < 0 && errno == EAFNOSUPPORT) {
        tcp_try_next(ep, errno, strerror(errno));
        return true;
    }
    if (fd < 0)
        return false;
    tcp_set_options(fd);
    if (connect(fd, (struct sockaddr *)&addr, len) && errno != EINPROGRESS) {
        error = errno;
        close(fd);
        errno = error;
        if (error == ENOMEM || error == ENOBUFS)
            return false; /* no other address would help */
        tcp_try_next(ep, error, strerror(error));
        return true;
    }
    if (until > ep->deadline)
        until = ep->deadline;
    conn = tcp_conn_create(ep->ctx, fd, false, until);
    if (!conn)
        return false;
    conn->peer = conn->to = ep->peer;
    conn->from = ep->ctx->rank;
    conn->look = !tcp_connects(ep);
    return true;
}

static void attempt(struct shunt_transport_ep *ep)
{
    if (!begin_attempt(ep))
        failed(ep, SHUNT_ERR_SYSTEM, "cannot connect to rank %d: %s%s",
               ep->peer, strerror(errno),
               transport_remedy(ep->ctx->host, errno));
}

/* Is a connection of this peer being accepted? Then the peer may have all its
 * connections, and not listen any more. */
static bool is_settling(const struct shunt_transport_ep *ep)
{
    for (const struct tcp_conn *conn = ep->ctx->conns; conn; conn = conn->next)
        if (conn->stage == TCP_AWAIT_READY && conn->from == ep->peer &&
            !conn->express)
            return true;
    return false;
}

void tcp_try_next(struct shunt_transport_ep *ep, int error, const char *why)
{
    const struct shunt_transport_host *host = ep->ctx->host;
    const bool hung_up = error == ECONNRESET || error == EPIPE;
    char where[80];

    if (ep->up) /* the peer connected during the check */
        return;
    tcp_place_text(&ep->place[ep->next_place], ep->port, where, sizeof(where));
    if (host->log)
        host->log(SHUNT_TRANSPORT_DEBUG, "tcp", "rank %d at %s: %s", ep->peer,
                  where, why);
    ep->refusals += error == ECONNREFUSED;
    /* An error of a process that answered is more useful than one of the
     * network. */
    if (!error || hung_up || !ep->answered)
        snprintf(ep->trouble, sizeof(ep->trouble), "%s: %s", where, why);
    ep->answered |= !error || hung_up;
    ep->again |= hung_up;
    if (++ep->next_place < ep->places)
        attempt(ep);
    else if (tcp_connects(ep) && ep->again && tcp_now() < ep->deadline)
        ep->again_at = tcp_now() + AGAIN_MS;
    else if (tcp_connects(ep) ||
             (ep->refusals == ep->places && !is_settling(ep)))
        failed(ep, SHUNT_ERR_UNSUPPORTED,
               "rank %d is not reached at any of its %d addresses; at %s",
               ep->peer, ep->places, ep->trouble);
}

/* Check whether the peer, which has to connect, exists. */
static void look(struct shunt_transport_ep *ep)
{
    ep->look_at = tcp_now() + LOOK_MS;
    ep->next_place = ep->refusals = 0;
    attempt(ep);
}

void tcp_take(struct shunt_transport_ep *ep, int fd)
{
    struct tcp_line *line = &ep->line[TCP_MAIN];

    tcp_line_take(line, fd);
    line->reads = true;
    tcp_line_watch(line);
    ep->up = true;
    ep->ctx->connected++;
    ep->ctx->events++;
}

/* Begin to connect, in the first call of connect(). */
static enum shunt_status begin(struct shunt_transport_ctx *ctx, int peer,
                               const struct tcp_address *theirs)
{
    struct shunt_transport_ep *ep = tcp_endpoint(ctx, peer);

    if (!ep)
        return tcp_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    ep->wanted = true;
    ep->port = theirs->port;
    watch_process(ep, &theirs->process);
    tcp_order_places(ep, theirs);
    ep->look_at = tcp_now() + LOOK_MS;
    ep->deadline = tcp_now() + LAST_ATTEMPT_MS +
                   (tcp_connects(ep) ? ep->places * ATTEMPT_MS
                                     : ctx->places * ATTEMPT_MS + SPARE_MS);
    if (!ep->places)
        failed(ep, SHUNT_ERR_UNSUPPORTED, "rank %d has no address", peer);
    else if (tcp_connects(ep))
        attempt(ep);
    return SHUNT_OK;
}

/* The connector's work in tcp_connect(). */
static void check_connector(struct shunt_transport_ep *ep)
{
    if (!ep->again_at || tcp_now() < ep->again_at)
        return;
    ep->again_at = 0;
    ep->again = false;
    ep->next_place = ep->refusals = 0;
    attempt(ep);
}

/* Is a check of the peer under way? If nothing answers, a check takes longer
 * than LOOK_MS. */
static bool is_looking(const struct shunt_transport_ep *ep)
{
    for (const struct tcp_conn *conn = ep->ctx->conns; conn; conn = conn->next)
        if (conn->look && conn->peer == ep->peer)
            return true;
    return false;
}

/* The listener's work in tcp_connect(), until the peer has connected. */
static void check_listener(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;

    if (ctx->listen_error)
        failed(ep, SHUNT_ERR_SYSTEM,
               "cannot accept the connection of rank %d: %s%s", ep->peer,
               strerror(ctx->listen_error),
               transport_remedy(ctx->host, ctx->listen_error));
    else if (tcp_now() > ep->deadline && !is_settling(ep))
        failed(ep, SHUNT_ERR_UNSUPPORTED,
               "rank %d did not reach port %u of this rank: is there a "
               "firewall?",
               ep->peer, ctx->port);
    else if (tcp_now() > ep->look_at && !is_looking(ep))
        look(ep);
}

enum shunt_status tcp_connect(struct shunt_transport_ctx *ctx, int peer,
                              const void *blob, size_t len,
                              struct shunt_transport_ep **out)
{
    struct shunt_transport_ep *ep;
    struct tcp_address theirs;
    enum shunt_status status;

    if (peer < 0 || peer >= ctx->nranks || peer == ctx->rank)
        return tcp_fail(ctx, SHUNT_ERR_INVALID, "rank %d is not a peer", peer);
    if (!tcp_address_read(&theirs, blob, len))
        return tcp_fail(ctx, SHUNT_ERR_INVALID, "rank %d: malformed address",
                        peer);
    if (!ctx->eps[peer] || !ctx->eps[peer]->wanted) {
        status = begin(ctx, peer, &theirs);
        if (status)
            return status;
    }
    ep = *out = ctx->eps[peer];
    if (!ep->up && !ep->failed) {
        if (tcp_connects(ep))
            check_connector(ep);
        else
            check_listener(ep);
    }
    if (ep->failed)
        return tcp_fail(ctx, ep->failed, "%s", ep->reason);
    if (ep->broken || ep->left)
        return transport_fail_gone(&ctx->error, peer, ep->left, NULL);
    return ep->up ? SHUNT_OK : SHUNT_IN_PROGRESS;
}
