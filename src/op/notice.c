// SPDX-License-Identifier: Apache-2.0
/* Notices of the end of a request; see notice.h. */
#include "src/op/notice.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/forks.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/request.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"

atomic_uint shunti_notices;

/* The parent delivers the notices that were awaited at the fork(). */
static void forked(void)
{
    atomic_store(&shunti_notices, 0);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.in_child = forked};

    shunti_fork_watch(&fork);
}

/* Notices are written one at a time, so that the result of poll() still holds
 * when write() is called. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/* Write to a descriptor, which may be a blocking one, without blocking.
 * O_NONBLOCK is not set, because it would hold for all who share the file.
 * Returns 0, or an errno. */
static int write_now(int fd)
{
    static const uint64_t one = 1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    ssize_t n = send(fd, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n >= 0 || errno != ENOTSOCK)
        return n < 0 ? errno : 0;
    if (poll(&p, 1, 0) < 0)
        return errno;
    if (p.revents & POLLERR) /* a pipe without a reader: avoid the signal */
        return EPIPE;
    if (!(p.revents & (POLLOUT | POLLNVAL)))
        return EAGAIN;
    return write(fd, &one, sizeof(one)) < 0 ? errno : 0;
}

static void signal_fd(int fd)
{
    int error;

    pthread_mutex_lock(&writing);
    do
        error = write_now(fd);
    while (error == EINTR);
    pthread_mutex_unlock(&writing);
    /* EAGAIN: the descriptor is full, so it is readable */
    if (error && error != EAGAIN)
        shunti_warn("comm", "shunt_notify_fd: descriptor %d: %s", fd,
                    strerror(error));
}

void shunti_notice_deliver(const struct shunti_notice *notice)
{
    if (notice->done) {
        SHUNTI_TRACK(COMPUTE);
        notice->done(notice->arg);
    }
    if (notice->fd >= 0)
        signal_fd(notice->fd);
}

SHUNTI_NOINLINE void shunti_notice_give(struct shunt_request *request)
{
    struct shunti_notice *notice = request->notice;

    request->notice = NULL;
    request->comm->requests.notices--;
    atomic_fetch_sub(&shunti_notices, 1);
    shunti_notice_deliver(notice);
    free(notice);
}
