// SPDX-License-Identifier: Apache-2.0
/*
 * The root accepts connections, and limits the unauthenticated ones in number
 * and time.
 */
#include "src/boot/bootstrap_root.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "transports/common/descriptor.h"

#define UNAUTHENTICATED_MAX 256
#define UNAUTHENTICATED_SHARE 4 /* at most 1/4 of RLIMIT_NOFILE */
#define ACCEPTS_PER_ROUND 64
#define ACCEPT_FAILS_SECONDS 1.0 /* fail the init after this time */
#define ACCEPT_RETRY_SECONDS 0.1 /* between two attempts to accept */
#define SEND_EACH_SECONDS 0.5    /* limit for notifying one rank of a failure */

/* A limit that leaves descriptors to the process, whose transports need
 * them. */
size_t shunti_root_unauthenticated_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) ||
        limit.rlim_cur / UNAUTHENTICATED_SHARE > UNAUTHENTICATED_MAX)
        return UNAUTHENTICATED_MAX;
    return (size_t)limit.rlim_cur / UNAUTHENTICATED_SHARE + 1;
}

/* Drop the oldest unauthenticated connection that was accepted before
 * `before`. */
static void drop_oldest_unauthenticated(struct shunti_root *root, double before)
{
    struct shunti_conn *oldest = NULL;

    for (size_t i = 0; i < root->nconns; i++) {
        struct shunti_conn *c = root->conns[i];

        if (shunti_conn_is_unauthenticated(c) && c->accepted_at < before &&
            (!oldest || c->deadline < oldest->deadline))
            oldest = c;
    }
    if (oldest && oldest->stage == SHUNTI_CONN_LEAVING)
        shunti_conn_close(oldest); /* the peer was refused before */
    else if (oldest)
        shunti_root_refuse(oldest,
                           "too many connections wait; it was the oldest");
}

/* The table and the array for poll(2) grow to the same size. */
bool shunti_root_make_room(struct shunti_root *root)
{
    size_t room = root->room ? root->room * 2 : 64;
    struct shunti_conn **conns;
    struct pollfd *polls;

    if (root->nconns < root->room)
        return true;
    conns = realloc(root->conns, room * sizeof(*conns));
    if (!conns)
        return false;
    root->conns = conns;
    polls = realloc(root->polls, (room + 1) * sizeof(*polls));
    if (!polls)
        return false;
    root->polls = polls;
    root->room = room;
    return true;
}

static void name_peer(struct shunti_conn *c,
                      const struct sockaddr_storage *addr)
{
    struct shunti_id_parts parts;

    if (shunti_id_set_sockaddr(&parts, addr)) {
        shunti_id_describe(&parts, c->from, sizeof(c->from));
    } else {
        struct ucred cred = {0};
        socklen_t len = sizeof(cred);

        getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
        snprintf(c->from, sizeof(c->from), "pid %ld", (long)cred.pid);
    }
}

/* The init has failed, and descriptors are short. Each rank that is still to be
 * notified needs the descriptor of another. So close the connections whose
 * error was sent, even if the rank has not read it yet, and shorten the
 * deadline of the others. False: there is no connection. */
static bool hurry_connections(struct shunti_root *root, double now)
{
    bool any = false;

    for (size_t i = 0; i < root->nconns; i++) {
        struct shunti_conn *c = root->conns[i];

        if (c->fd < 0)
            continue;
        c->deadline = fmin(c->deadline, now + SEND_EACH_SECONDS);
        if (c->stage == SHUNTI_CONN_LEAVING && !c->nout)
            shunti_conn_close(c);
        any = true;
    }
    return any;
}

/* accept() lacks descriptors or memory. Drop unauthenticated peers, and retry a
 * little later. After ACCEPT_FAILS_SECONDS the init fails, and ranks are
 * notified one after the other. */
static void cannot_accept(struct shunti_root *root, int error)
{
    struct pollfd p = {.fd = root->listen_fd, .events = POLLIN};
    double now = shunti_wire_now();

    if (poll(&p, 1, 0) <= 0)
        return; /* accept() fails also if no connection is pending */
    shunti_info("bootstrap", "root %s: accept: %s", root->where,
                strerror(error));
    if (shunti_root_is_complete(root)) {
        shunti_root_close_listener(root);
        return;
    }
    root->accept_after = now + ACCEPT_RETRY_SECONDS;
    if (root->failure && hurry_connections(root, now))
        return;
    /* Keep the newest connections: a rank needs a moment to send its proof. */
    drop_oldest_unauthenticated(root, now - ACCEPT_RETRY_SECONDS);
    if (!root->accept_fails_since)
        root->accept_fails_since = now;
    else if (root->failure) {
        /* No rank can be notified. Close the socket, so that no rank waits for
         * an answer. */
        shunti_root_close_listener(root);
    } else if (now - root->accept_fails_since > ACCEPT_FAILS_SECONDS) {
        shunti_root_fail(
            root, SHUNT_ERR_SYSTEM,
            "the process that ranks meet at (that made the id, or rank "
            "0) cannot take their connections: %s%s",
            strerror(error), shunti_remedy(error));
        shunti_root_release_spare(root);
        root->accept_after = 0;
    }
}

/* accept4(), or accept() if a filter of an older container denies that. */
static int accept_closed(int listen_fd, struct sockaddr *addr, socklen_t *len)
{
    int fd = shunti_fd_lift(
        accept4(listen_fd, addr, len, SOCK_CLOEXEC | SOCK_NONBLOCK));

    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return fd;
    fd = shunti_fd_lift(accept(listen_fd, addr, len));
    if (fd >= 0 &&
        (fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, O_NONBLOCK))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Accept one connection. False: none is pending, or resources are short. */
static bool accept_one(struct shunti_root *root)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    struct shunti_conn *c;
    int one = 1;
    int fd = accept_closed(root->listen_fd, (struct sockaddr *)&addr, &len);

    if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)
            return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            cannot_accept(root, errno);
        return false;
    }
    root->accept_fails_since = 0;
    c = shunti_root_make_room(root) ? calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        close(fd);
        root->accept_after = shunti_wire_now() + ACCEPT_RETRY_SECONDS;
        return false;
    }
    if (root->parts.kind != SHUNTI_ID_LOCAL)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->fd = fd;
    c->rank = -1;
    c->stage = SHUNTI_CONN_HELLO;
    c->accepted_at = shunti_wire_now();
    c->deadline =
        c->accepted_at + fmin(SHUNTI_WIRE_HANDSHAKE_SECONDS, root->timeout);
    name_peer(c, &addr);
    root->conns[root->nconns++] = c;
    return true;
}

void shunti_root_accept(struct shunti_root *root)
{
    size_t unauthenticated = 0;

    for (int i = 0; i < ACCEPTS_PER_ROUND && accept_one(root); i++)
        ;
    for (size_t i = 0; i < root->nconns; i++)
        unauthenticated += shunti_conn_is_unauthenticated(root->conns[i]);
    for (; unauthenticated > root->unauthenticated_max; unauthenticated--)
        drop_oldest_unauthenticated(root, INFINITY);
}

void shunti_root_expire(struct shunti_root *root, double now)
{
    for (size_t i = 0; i < root->nconns; i++) {
        struct shunti_conn *c = root->conns[i];

        if (c->fd < 0 || c->stage == SHUNTI_CONN_MEMBER || now < c->deadline)
            continue;
        if (c->stage == SHUNTI_CONN_LEAVING)
            shunti_conn_close(c);
        else
            shunti_root_refuse(c,
                               "it did not prove to know the secret in time");
    }
}
