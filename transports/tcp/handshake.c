// SPDX-License-Identifier: Apache-2.0
/*
 * The proofs of the secret, on a new connection.
 *
 * In each pair the higher rank connects and the lower listens:
 *
 *     connector                       listener
 *     HELLO ranks, nonce       ->
 *                              <-     CHALLENGE nonce, proof
 *     PROOF proof              ->
 *                              <-     ACCEPT
 *     READY                    ->
 *
 * A proof is an HMAC-SHA-256, keyed by the secret, of a label that differs
 * between the sides, both nonces and both ranks. Until the connector has sent
 * READY, it may give up one place of the peer and try another one. The express
 * connection of a pair has its own HELLO and labels, and is accepted only while
 * it is awaited.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "transports/tcp/tcp.h"

enum side { CONNECTOR, LISTENER };

struct hello {
    char magic[8];
    int32_t from, to;
    unsigned char nonce[TRANSPORT_NONCE];
};

struct challenge {
    unsigned char nonce[TRANSPORT_NONCE];
    unsigned char proof[TRANSPORT_PROOF_MAX];
};

struct proof {
    unsigned char proof[TRANSPORT_PROOF_MAX];
};

struct token { /* ACCEPT, READY */
    char magic[8];
};

_Static_assert(sizeof(struct hello) <=
                       sizeof(((struct tcp_conn *)NULL)->message) &&
                   sizeof(struct challenge) <=
                       sizeof(((struct tcp_conn *)NULL)->message),
               "a message is read into tcp_conn.message");

/* [0]: for the main connection, [1]: for the express connection */
static const char hello_magic[2][8] = {"shuntcp1", "shuntcpx"};
static const char accept_magic[8] = "accepted";
static const char ready_magic[8] = "ready...";

/* --- connections ---------------------------------------------------------- */

void tcp_set_options(int fd)
{
    /* The kernel probes an idle connection, and breaks it 10 s after a cut. A
     * connection with data under way lasts for as long as the kernel sends the
     * data again, about 15 minutes. TCP_USER_TIMEOUT would shorten that. But it
     * would also end the connection to a live rank that reads nothing for that
     * time. */
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 1},
        {IPPROTO_TCP, TCP_KEEPCNT, 5},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof(options[i].value));
}

/* Add a connection to ctx.conns, in the order of deadlines. */
static void keep(struct tcp_conn *conn, int64_t deadline)
{
    struct tcp_conn **p = &conn->ctx->conns;

    while (*p && (*p)->deadline <= deadline)
        p = &(*p)->next;
    conn->deadline = deadline;
    conn->next = *p;
    *p = conn;
}

static void take_out(struct tcp_conn *conn)
{
    struct tcp_conn **p;

    for (p = &conn->ctx->conns; *p != conn; p = &(*p)->next)
        ;
    *p = conn->next;
}

static bool is_unauthenticated(const struct tcp_conn *conn)
{
    return conn->listener && conn->stage != TCP_AWAIT_READY;
}

struct tcp_conn *tcp_conn_create(struct shunt_transport_ctx *ctx, int fd,
                                 bool listener, int64_t deadline)
{
    struct tcp_conn *conn = calloc(1, sizeof(*conn));
    struct epoll_event event = {
        .events = listener ? EPOLLIN : EPOLLIN | EPOLLOUT,
        .data.ptr = conn ? &conn->watch : NULL,
    };

    if (!conn) {
        close(fd);
        errno = ENOMEM;
        return NULL;
    }
    conn->watch = (struct tcp_watch){TCP_WATCH_HANDSHAKE, conn};
    conn->stage = listener ? TCP_AWAIT_HELLO : TCP_CONNECTING;
    conn->ctx = ctx;
    conn->fd = fd;
    conn->listener = listener;
    conn->from = conn->to = -1;
    if (epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, fd, &event)) {
        const int error = errno;

        close(fd);
        free(conn);
        errno = error;
        return NULL;
    }
    keep(conn, deadline);
    ctx->unauthenticated += listener;
    return conn;
}

/* Remove `conn` from ctx.conns, and free it. Its descriptor stays open. */
static void forget(struct tcp_conn *conn)
{
    struct shunt_transport_ctx *ctx = conn->ctx;

    take_out(conn);
    ctx->unauthenticated -= is_unauthenticated(conn);
    explicit_bzero(conn, sizeof(*conn));
    free(conn);
}

void tcp_conn_drop(struct tcp_conn *conn)
{
    tcp_unwatch(conn->ctx, &conn->fd);
    forget(conn);
}

/* Drop a connection that failed, and notify its endpoint. `error` is an errno,
 * or 0. */
static void fail_with(struct tcp_conn *conn, int error, const char *why)
{
    const bool settling = conn->stage == TCP_AWAIT_READY;
    const bool express = conn->express;
    struct shunt_transport_ctx *ctx = conn->ctx;
    struct shunt_transport_ep *ep;

    ep = conn->listener ? settling ? ctx->eps[conn->from] : NULL
                        : ctx->eps[conn->peer];
    if (conn->listener)
        tcp_refuse(conn, why);
    else
        tcp_conn_drop(conn);
    if (ep && express)
        tcp_express_give_up(ep);
    else if (ep && !settling)
        tcp_try_next(ep, error, why);
}

static void fail(struct tcp_conn *conn, const char *why)
{
    fail_with(conn, 0, why);
}

static void settle(struct tcp_conn *conn, int peer)
{
    struct shunt_transport_ep *ep = conn->ctx->eps[peer];
    const bool express = conn->express;
    const int fd = conn->fd;

    forget(conn);
    if (express)
        tcp_express_take(ep, fd);
    else
        tcp_take(ep, fd);
}

/* --- messages ------------------------------------------------------------- */

/* Send a message at once. The message is small, and the buffer of the socket is
 * empty. False: the connection was dropped. */
static bool say(struct tcp_conn *conn, const void *message, size_t bytes)
{
    ssize_t n = send(conn->fd, message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n == (ssize_t)bytes)
        return true;
    fail_with(conn, n < 0 ? errno : 0,
              n < 0 ? strerror(errno) : "its socket is full");
    return false;
}

/* The input of a proof of one side. */
static struct transport_proof terms(const struct tcp_conn *conn, enum side side)
{
    static const char *const labels[2][2] = {
        {"tcp connector", "tcp listener"},
        {"tcp express connector", "tcp express listener"},
    };

    return (struct transport_proof){
        .secret = conn->ctx->secret,
        .label = labels[conn->express][side],
        .from = conn->from,
        .to = conn->to,
        .nonces = {conn->nonces[CONNECTOR], conn->nonces[LISTENER]},
    };
}

static void make_proof(const struct tcp_conn *conn, enum side side,
                       unsigned char *out)
{
    const struct transport_proof p = terms(conn, side);

    transport_prove(&p, out, TRANSPORT_PROOF_MAX);
}

static bool proven(const struct tcp_conn *conn, enum side side,
                   const unsigned char *found)
{
    const struct transport_proof p = terms(conn, side);

    return transport_proven(&p, found, TRANSPORT_PROOF_MAX);
}

static bool make_nonce(struct tcp_conn *conn, enum side side)
{
    if (getrandom(conn->nonces[side], TRANSPORT_NONCE, 0) == TRANSPORT_NONCE)
        return true;
    fail(conn, "there are no random numbers");
    return false;
}

/* Called when the network has connected this rank, or failed to. */
static void on_connected(struct tcp_conn *conn)
{
    struct epoll_event event = {
        .events = EPOLLIN,
        .data.ptr = &conn->watch,
    };
    struct hello hello = {.from = conn->from, .to = conn->to};
    socklen_t len = sizeof(int);
    int error = 0;

    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len))
        error = errno;
    if (error) {
        fail_with(conn, error, strerror(error));
        return;
    }
    if (conn->look) {
        tcp_conn_drop(conn);
        return;
    }
    if (!make_nonce(conn, CONNECTOR))
        return;
    epoll_ctl(conn->ctx->epoll, EPOLL_CTL_MOD, conn->fd, &event);
    memcpy(hello.magic, hello_magic[conn->express], sizeof(hello.magic));
    memcpy(hello.nonce, conn->nonces[CONNECTOR], sizeof(hello.nonce));
    conn->stage = TCP_AWAIT_CHALLENGE;
    say(conn, &hello, sizeof(hello));
}

static void on_hello(struct tcp_conn *conn)
{
    struct shunt_transport_ctx *ctx = conn->ctx;
    struct challenge reply;
    struct hello hello;

    memcpy(&hello, conn->message, sizeof(hello));
    conn->express =
        !memcmp(hello.magic, hello_magic[true], sizeof(hello.magic));
    if (memcmp(hello.magic, hello_magic[conn->express], sizeof(hello.magic)) ||
        hello.to != ctx->rank || hello.from <= ctx->rank ||
        hello.from >= ctx->nranks) {
        fail(conn, "it is not a rank of this communicator");
        return;
    }
    conn->from = hello.from;
    conn->to = hello.to;
    memcpy(conn->nonces[CONNECTOR], hello.nonce, TRANSPORT_NONCE);
    if (!make_nonce(conn, LISTENER))
        return;
    memcpy(reply.nonce, conn->nonces[LISTENER], TRANSPORT_NONCE);
    make_proof(conn, LISTENER, reply.proof);
    conn->stage = TCP_AWAIT_PROOF;
    say(conn, &reply, sizeof(reply));
}

static void on_challenge(struct tcp_conn *conn)
{
    struct challenge challenge;
    struct proof reply;

    memcpy(&challenge, conn->message, sizeof(challenge));
    memcpy(conn->nonces[LISTENER], challenge.nonce, TRANSPORT_NONCE);
    if (!proven(conn, LISTENER, challenge.proof)) {
        fail(conn, "who listens there does not know the communicator's secret");
        return;
    }
    make_proof(conn, CONNECTOR, reply.proof);
    conn->stage = TCP_AWAIT_ACCEPT;
    say(conn, &reply, sizeof(reply));
}

/* Does the endpoint wait for this connection? */
static bool is_awaited(const struct tcp_conn *conn)
{
    const struct shunt_transport_ep *ep = conn->ctx->eps[conn->from];

    return conn->express ? tcp_express_awaits(ep) : !ep->up && !ep->failed;
}

static void on_proof(struct tcp_conn *conn)
{
    struct shunt_transport_ep *ep;
    struct token reply;

    if (!proven(conn, CONNECTOR, conn->message)) {
        fail(conn, "it does not know the communicator's secret");
        return;
    }
    ep = tcp_endpoint(conn->ctx, conn->from);
    if (!ep || !is_awaited(conn)) {
        fail(conn, !ep ? "out of memory" : "the rank is connected, or failed");
        return;
    }
    /* The peer considers itself connected when it has read ACCEPT. So from now
     * on this connection must end only with the rank. It must not be dropped
     * because it is late, or because there are many others. */
    take_out(conn);
    keep(conn, INT64_MAX);
    conn->ctx->unauthenticated--;
    conn->stage = TCP_AWAIT_READY;
    memcpy(reply.magic, accept_magic, sizeof(reply.magic));
    say(conn, &reply, sizeof(reply));
}

static void on_accept(struct tcp_conn *conn)
{
    struct token reply;

    if (memcmp(conn->message, accept_magic, sizeof(accept_magic))) {
        fail(conn, "who listens there is no rank");
        return;
    }
    memcpy(reply.magic, ready_magic, sizeof(reply.magic));
    if (say(conn, &reply, sizeof(reply)))
        settle(conn, conn->to);
}

static void on_ready(struct tcp_conn *conn)
{
    if (memcmp(conn->message, ready_magic, sizeof(ready_magic)) ||
        !is_awaited(conn))
        fail(conn, "it is not ready");
    else
        settle(conn, conn->from);
}

static const struct {
    size_t bytes;
    void (*on_message)(struct tcp_conn *conn);
} stages[] = {
    [TCP_CONNECTING] = {0, NULL},
    [TCP_AWAIT_HELLO] = {sizeof(struct hello), on_hello},
    [TCP_AWAIT_CHALLENGE] = {sizeof(struct challenge), on_challenge},
    [TCP_AWAIT_PROOF] = {sizeof(struct proof), on_proof},
    [TCP_AWAIT_ACCEPT] = {sizeof(struct token), on_accept},
    [TCP_AWAIT_READY] = {sizeof(struct token), on_ready},
};

/* Read only the message of this stage. Data behind READY is for
 * tcp_receive(). */
void tcp_conn_event(struct tcp_conn *conn)
{
    size_t bytes;
    ssize_t n;

    if (conn->stage == TCP_CONNECTING) {
        on_connected(conn);
        return;
    }
    bytes = stages[conn->stage].bytes;
    n = recv(conn->fd, conn->message + conn->got, bytes - conn->got,
             MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        fail_with(conn, n < 0 ? errno : ECONNRESET,
                  n < 0 ? strerror(errno) : "it closed the connection");
        return;
    }
    conn->got += (size_t)n;
    if (conn->got < bytes)
        return;
    conn->got = 0;
    stages[conn->stage].on_message(conn);
}

void tcp_conns_expire(struct shunt_transport_ctx *ctx)
{
    int64_t now;

    if (!ctx->conns)
        return;
    now = tcp_now();
    while (ctx->conns && ctx->conns->deadline <= now)
        fail_with(ctx->conns, ETIMEDOUT,
                  ctx->conns->listener ? "it did not authenticate in time"
                                       : "no answer");
}
