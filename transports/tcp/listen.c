// SPDX-License-Identifier: Apache-2.0
/*
 * Accepts connections, and limits unauthenticated ones.
 *
 * A connection is unauthenticated until its proof has arrived (handshake.c).
 * Until then it has no endpoint, and is kept only for a limited time. The
 * listening socket is closed once all ranks are connected. It stays open only
 * while an express connection is awaited (express.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/tcp/tcp.h"

#define UNAUTHENTICATED_MS 10000
#define CROWDED_MS 1000
#define ACCEPTS 64 /* most connections accepted in one call of tcp_accept() */
#define MAX_UNAUTHENTICATED 128 /* most peers, besides one for each rank */
#define MAX_LOGGED_REFUSALS 8

/* --- the port ------------------------------------------------------------- */

/* Read the range of SHUNT_TCP_PORTS. 0 to 0 means any port. False: the range is
 * not valid. */
static bool read_ports(const char *text, unsigned *first, unsigned *last)
{
    char end;

    *first = *last = 0;
    if (!text || !*text)
        return true;
    if (sscanf(text, "%5u-%5u%c", first, last, &end) != 2)
        return false;
    return *first >= 1 && *first <= *last && *last <= 65535;
}

/* Make a socket on every address, or on the loopback device. */
static int make_socket(const struct shunt_transport_ctx *ctx, int family,
                       uint16_t port)
{
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    struct tcp_place any = {.family = (uint16_t)family};
    struct sockaddr_storage addr;
    int fd = shunti_fd_lift(socket(family, type, 0)), no = 0, yes = 1, error;

    if (fd < 0)
        return -1;
    /* Allow a port that connections use now, or used a minute ago. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (ctx->one_host)
        any = ctx->place[0];
    else if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (!bind(fd, (struct sockaddr *)&addr, tcp_sockaddr(&any, port, &addr)) &&
        !listen(fd, SOMAXCONN))
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int open_port(const struct shunt_transport_ctx *ctx, uint16_t port)
{
    int fd = -1;

    if (ctx->one_host)
        return make_socket(ctx, ctx->place[0].family, port);
    fd = make_socket(ctx, AF_INET6, port);
    /* some systems are built or started without IPv6 */
    if (fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL ||
                   errno == EPROTONOSUPPORT))
        fd = make_socket(ctx, AF_INET, port);
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &len))
        return 0;
    return ntohs(addr.ss_family == AF_INET
                     ? ((struct sockaddr_in *)(void *)&addr)->sin_port
                     : ((struct sockaddr_in6 *)(void *)&addr)->sin6_port);
}

enum shunt_status tcp_listen(struct shunt_transport_ctx *ctx, char *why,
                             size_t why_len)
{
    const char *text = ctx->host->env("SHUNT_TCP_PORTS");
    struct epoll_event event = {
        .events = EPOLLIN,
        .data.ptr = &ctx->listen_watch,
    };
    unsigned first, last;

    if (!read_ports(text, &first, &last)) {
        snprintf(why, why_len,
                 "SHUNT_TCP_PORTS='%s' is no range of ports, as in 20000-20999",
                 text);
        return SHUNT_ERR_INVALID;
    }
    errno = 0;
    for (unsigned port = first; port <= last && ctx->listen < 0; port++) {
        ctx->listen = open_port(ctx, (uint16_t)port);
        if (ctx->listen < 0 && errno != EADDRINUSE)
            break;
    }
    if (ctx->listen < 0 ||
        epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, ctx->listen, &event)) {
        snprintf(why, why_len, "no socket to listen on: %s%s%s%s%s",
                 strerror(errno), transport_remedy(ctx->host, errno),
                 first ? " (SHUNT_TCP_PORTS=" : "", first ? text : "",
                 first ? ")" : "");
        return SHUNT_ERR_SYSTEM;
    }
    ctx->port = port_of(ctx->listen);
    ctx->paused = false;
    return SHUNT_OK;
}

/* --- unauthenticated peers ------------------------------------------------ */

void tcp_refuse(struct tcp_conn *conn, const char *why)
{
    struct shunt_transport_ctx *ctx = conn->ctx;

    if (ctx->refusals++ < MAX_LOGGED_REFUSALS && ctx->host->log)
        ctx->host->log(SHUNT_TRANSPORT_INFO, "tcp", "refused a connection: %s",
                       why);
    tcp_conn_drop(conn);
}

/*
 * If there are many unauthenticated peers, further connections stay in the
 * kernel's queue until some peers have been dropped or authenticated. No peer
 * is dropped to make room for another one, because it may be a rank whose
 * messages have not been read yet.
 */
static bool crowded(const struct shunt_transport_ctx *ctx)
{
    return ctx->unauthenticated >= MAX_UNAUTHENTICATED + ctx->nranks;
}

static void pause_accepting(struct shunt_transport_ctx *ctx, bool pause)
{
    struct epoll_event event = {
        .events = pause ? 0u : EPOLLIN,
        .data.ptr = &ctx->listen_watch,
    };

    if (ctx->listen < 0 || ctx->paused == pause)
        return;
    ctx->paused = pause;
    epoll_ctl(ctx->epoll, EPOLL_CTL_MOD, ctx->listen, &event);
}

void tcp_stop_listening(struct shunt_transport_ctx *ctx, int error)
{
    struct tcp_conn *conn, *next;

    if (ctx->listen < 0)
        return;
    tcp_unwatch(ctx, &ctx->listen);
    ctx->listen_error = error;
    if (error)
        return;
    for (conn = ctx->conns; conn; conn = next) {
        next = conn->next;
        if (conn->listener || conn->look)
            tcp_conn_drop(conn);
    }
}

/* Does the error concern only the connection that would have been accepted? See
 * accept(2). */
static bool concerns_one(int error)
{
    static const int all[] = {EINTR,     ECONNABORTED, EPROTO, ENETDOWN,
                              EHOSTDOWN, ENOPROTOOPT,  ENONET, EHOSTUNREACH,
                              EPERM,     ENETUNREACH};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (error == all[i])
            return true;
    return false;
}

void tcp_accept(struct shunt_transport_ctx *ctx)
{
    /* The loop is bounded, so that processes that keep connecting do not hold
     * this rank here. */
    for (int n = 0; n < ACCEPTS && ctx->listen >= 0; n++) {
        int fd;

        if (crowded(ctx)) {
            pause_accepting(ctx, true);
            return;
        }
        fd = shunti_fd_lift(
            accept4(ctx->listen, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0) {
            if (concerns_one(errno))
                continue;
            /* Otherwise the descriptor would stay ready, and this rank could
             * not sleep. */
            if (errno != EAGAIN)
                tcp_stop_listening(ctx, errno);
            return;
        }
        tcp_set_options(fd);
        if (!tcp_conn_create(ctx, fd, true, tcp_now() + UNAUTHENTICATED_MS)) {
            tcp_stop_listening(ctx, errno);
            return;
        }
    }
}

void tcp_resume_listening(struct shunt_transport_ctx *ctx)
{
    const int64_t now = tcp_now();
    struct tcp_conn *conn, *next;

    if (!ctx->paused)
        return;
    /* Drop the oldest connections earlier than usual, to make room. */
    for (conn = ctx->conns; conn; conn = next) {
        next = conn->next;
        if (conn->listener &&
            conn->deadline - UNAUTHENTICATED_MS + CROWDED_MS <= now)
            tcp_refuse(conn, "it did not authenticate in time");
    }
    if (!crowded(ctx))
        pause_accepting(ctx, false);
}
