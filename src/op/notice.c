// SPDX-License-Identifier: Apache-2.0
/* Notices of the end of a request; see notice.h. */
#include "src/op/notice.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/forks.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/request.h"
#include "src/progress/aside.h"
#include "src/progress/entry.h"
#include "src/progress/helper.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"

atomic_uint shunti_notices;

/* All that were awaited are the parent's to give. */
static void forked(void)
{
    atomic_store(&shunti_notices, 0);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.in_child = forked};

    shunti_fork_watch(&fork);
}

/* Notices are written one at a time, so that what poll() said holds when write()
 * is called. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/* Write to a descriptor that may be a blocking one, without blocking. O_NONBLOCK
 * is not set: it would hold for all who share the file. 0, or an errno. */
static int write_now(int fd)
{
    static const uint64_t one = 1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    ssize_t n = send(fd, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n >= 0 || errno != ENOTSOCK)
        return n < 0 ? errno : 0;
    if (poll(&p, 1, 0) < 0)
        return errno;
    if (p.revents & POLLERR) /* a pipe that nobody reads: no signal */
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
    if (error && error != EAGAIN) /* EAGAIN: full, so it is readable */
        shunti_warn("comm", "shunt_notify_fd: descriptor %d: %s", fd,
                    strerror(error));
}

/* NULL, or why nothing can be written to the descriptor. */
static const char *why_unfit(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    char path[40], target[40] = "";
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return strerror(errno);
    if ((flags & O_ACCMODE) == O_RDONLY || flags & O_PATH)
        return "it is read-only: give the end that is written to, or an "
               "eventfd";
    /* An epoll or a timer can be opened for writing, and not be written to. */
    if (poll(&p, 1, 0) > 0 && p.revents & POLLOUT)
        return NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof(target) - 1) > 0 &&
        !strncmp(target, "anon_inode:", 11) && !strstr(target, "[eventfd"))
        return "it is neither an eventfd nor a pipe or socket";
    return NULL;
}

static void tell(const struct shunti_notice *notice)
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
    tell(notice);
    free(notice);
}

/* A bad argument. The text is that of the communicator, too, if there is one. */
__attribute__((format(printf, 2, 3))) static enum shunt_status
refuse(struct shunt_request *request, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!request)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s", text);
    shunti_comm_enter(request->comm);
    shunti_fail(&request->comm->error, SHUNT_ERR_INVALID, "%s", text);
    shunti_comm_leave(request->comm);
    return SHUNT_ERR_INVALID;
}

/* The notice of a request that is under way, empty if it is new. Its time begins
 * now, as with a wait. */
static enum shunt_status notice_of(struct shunt_request *request,
                                   const char *call,
                                   struct shunti_notice **notice)
{
    struct shunt_comm *comm = request->comm;
    enum shunt_status st;

    if (request->class->run)
        return shunti_fail(&comm->error, SHUNT_ERR_UNSUPPORTED,
                           "%s: a %s is finished by the thread that waits for "
                           "it, so nothing would end it; wait for it",
                           call, shunti_request_name(request));
    st = shunti_help_notices(comm);
    if (st)
        return st;
    if (!request->notice) {
        request->notice = malloc(sizeof(*request->notice));
        if (!request->notice)
            return shunti_fail(&comm->error, SHUNT_ERR_MEMORY, "%s: no memory",
                               call);
        *request->notice = (struct shunti_notice){.fd = -1};
        comm->requests.notices++;
        atomic_fetch_add(&shunti_notices, 1);
        shunti_aside_each(shunti_help_ask);
    }
    if (!request->begun_ns)
        request->begun_ns = shunti_now_ns();
    *notice = request->notice;
    return SHUNT_OK;
}

enum shunt_status shunt_notify(struct shunt_request *request,
                               void (*done)(void *arg), void *arg)
{
    const struct shunti_notice now = {done, arg, -1};
    struct shunti_notice *notice;
    enum shunt_status st = SHUNT_OK;

    if (!done)
        return refuse(request, "shunt_notify: done is NULL");
    if (!request) {
        tell(&now);
        return SHUNT_OK;
    }
    if (request->comm->inherited.state)
        return shunti_inherited_check(request->comm);
    shunti_comm_enter(request->comm);
    if (request->status != SHUNT_IN_PROGRESS) {
        tell(&now);
    } else {
        st = notice_of(request, "shunt_notify", &notice);
        if (!st && notice->done)
            st = shunti_fail(&request->comm->error, SHUNT_ERR_BUSY,
                             "shunt_notify: the request has a callback");
        if (!st) {
            notice->done = done;
            notice->arg = arg;
        }
    }
    shunti_comm_leave(request->comm);
    return st;
}

enum shunt_status shunt_notify_fd(struct shunt_request *request, int fd)
{
    const struct shunti_notice now = {.fd = fd};
    const char *why = why_unfit(fd);
    struct shunti_notice *notice;
    enum shunt_status st = SHUNT_OK;

    if (why)
        return refuse(request, "shunt_notify_fd: descriptor %d: %s", fd, why);
    if (!request) {
        tell(&now);
        return SHUNT_OK;
    }
    if (request->comm->inherited.state)
        return shunti_inherited_check(request->comm);
    shunti_comm_enter(request->comm);
    if (request->status != SHUNT_IN_PROGRESS) {
        tell(&now);
    } else {
        st = notice_of(request, "shunt_notify_fd", &notice);
        if (!st && notice->fd >= 0)
            st = shunti_fail(&request->comm->error, SHUNT_ERR_BUSY,
                             "shunt_notify_fd: the request has a descriptor");
        if (!st)
            notice->fd = fd;
    }
    shunti_comm_leave(request->comm);
    return st;
}
