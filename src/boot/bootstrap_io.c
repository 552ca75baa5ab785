// SPDX-License-Identifier: Apache-2.0
/* Blocking I/O with deadlines; see bootstrap_io.h. */
#include "src/boot/bootstrap_io.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "src/base/own_table.h"
#include "src/boot/bootstrap.h"
#include "src/boot/bootstrap_wire.h"
#include "src/boot/peer_user.h"
#include "transports/common/descriptor.h"

/* Time between two calls of shunti_parent_cancelled(). */
#define CANCEL_CHECK_SECONDS 0.02

double shunti_wire_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int shunti_wire_poll_ms(double deadline)
{
    double ms = ceil((deadline - shunti_wire_now()) * 1e3);

    if (ms <= 0)
        return 0;
    return ms < 1e6 ? (int)ms : 1000000;
}

int (*shunti_bootstrap_poll)(struct pollfd *fds, unsigned long n,
                             int ms) = poll;

/* Wait. If this thread has its own table of descriptors, make no progress on
 * communicators, because their descriptors are in the other table. */
static int poll_here(struct pollfd *fds, unsigned long n, int ms)
{
    return shunti_own_table_is_here() ? poll(fds, n, ms)
                                      : shunti_bootstrap_poll(fds, n, ms);
}

enum shunti_io shunti_io_wait(int fd, short events, double deadline,
                              struct shunti_parent *parent)
{
    const double soon = shunti_wire_now() + SHUNTI_WIRE_STOPPED_SECONDS;

    /* Wait at least a moment: this process may have been stopped, and the
     * message may be about to arrive. */
    if (deadline < soon)
        deadline = soon;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        double until = shunti_wire_now() + CANCEL_CHECK_SECONDS, late;
        int n;

        if (!parent || !parent->cancelled || until > deadline)
            until = deadline;
        n = poll_here(&p, 1, shunti_wire_poll_ms(until));
        if (n > 0)
            return SHUNTI_IO_OK;
        late = shunti_wire_now() - until;
        if (late > SHUNTI_WIRE_STOPPED_SECONDS)
            deadline += late;
        if (n == 0 && shunti_wire_now() >= deadline)
            return SHUNTI_IO_TIMEOUT;
        if (n == 0 && shunti_parent_cancelled(parent))
            return SHUNTI_IO_CANCELLED;
        if (n < 0 && errno != EINTR)
            return SHUNTI_IO_CLOSED;
    }
}

enum shunti_io shunti_io_send(int fd, const void *data, size_t len,
                              double deadline, struct shunti_parent *parent)
{
    const unsigned char *p = data;

    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        enum shunti_io io;

        if (n >= 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return SHUNTI_IO_CLOSED;
        io = shunti_io_wait(fd, POLLOUT, deadline, parent);
        if (io)
            return io;
    }
    return SHUNTI_IO_OK;
}

enum shunti_io shunti_io_receive(int fd, void *data, size_t len,
                                 double deadline, struct shunti_parent *parent)
{
    unsigned char *p = data;

    while (len) {
        ssize_t n = recv(fd, p, len, MSG_DONTWAIT);
        enum shunti_io io;

        if (n > 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            return SHUNTI_IO_CLOSED;
        io = shunti_io_wait(fd, POLLIN, deadline, parent);
        if (io)
            return io;
    }
    return SHUNTI_IO_OK;
}

void shunti_io_sleep(double seconds)
{
    poll_here(NULL, 0, (int)(seconds * 1e3)); /* may return early */
}

/* A TCP connection to a port of the kernel's ephemeral range can connect to
 * itself when nothing listens there. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage us = {0}, them = {0};
    socklen_t us_len = sizeof(us), them_len = sizeof(them);

    if (getsockname(fd, (struct sockaddr *)&us, &us_len) ||
        getpeername(fd, (struct sockaddr *)&them, &them_len))
        return false;
    return us.ss_family != AF_UNIX && us_len == them_len &&
           !memcmp(&us, &them, us_len);
}

int shunti_io_connect(const struct shunti_id_parts *parts, double deadline,
                      struct shunti_parent *parent)
{
    struct sockaddr_storage addr;
    socklen_t len, error_len = sizeof(int);
    int error = 0, one = 1, fd;

    shunti_id_sockaddr(parts, false, &addr, &len);
    fd = shunti_fd_lift(
        socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    if (parts->kind != SHUNTI_ID_LOCAL)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (struct sockaddr *)&addr, len)) {
        if (errno != EINPROGRESS && errno != EINTR) {
            error = errno;
        } else if (shunti_io_wait(fd, POLLOUT, deadline, parent)) {
            error = ETIMEDOUT;
        } else {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len);
        }
    }
    if (!error && is_self_connected(fd))
        error = ECONNREFUSED;
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Ask the kernel before the handshake. The name of a job's unix socket is
 * public, so a process of another user may bind it first. If that process never
 * answered, this rank would wait for the time limit of a handshake. */
bool shunti_io_is_other_user(int fd, char *why, size_t why_len)
{
    uid_t uid;

    if (!shunti_peer_uid(fd, &uid) || uid == geteuid())
        return false;
    snprintf(
        why, why_len,
        "the address of this job's root is held by user %lu, and this rank "
        "runs as another user: run all ranks as one user; if that process "
        "is not a rank, choose another MASTER_PORT",
        (unsigned long)uid);
    return true;
}
