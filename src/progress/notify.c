// SPDX-License-Identifier: Apache-2.0
/* Asking for a notice: shunt_notify() and shunt_notify_fd(); see notice.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/comm.h"
#include "src/op/notice.h"
#include "src/op/request.h"
#include "src/progress/helper.h"
#include "src/progress/parked.h"
#include "src/progress/turns.h"
#include "src/trace/trace.h"

/* The reason why a notice cannot be written to the descriptor; NULL: it can. */
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
    /* An epoll or a timer can be opened for writing, but cannot be written
     * to. */
    if (poll(&p, 1, 0) > 0 && p.revents & POLLOUT)
        return NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof(target) - 1) > 0 &&
        !strncmp(target, "anon_inode:", 11) && !strstr(target, "[eventfd"))
        return "it is neither an eventfd nor a pipe or socket";
    return NULL;
}

/* Return the error of a bad argument. If there is a request, its communicator
 * gets the text, too. */
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

/* Set *notice to the notice of a request that is under way. If the request has
 * none, it gets an empty one. The request's timeout begins now, as in a
 * wait. */
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
        shunti_parked_each(shunti_help_ask);
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
        shunti_notice_deliver(&now);
        return SHUNT_OK;
    }
    if (request->comm->inherited.state)
        return shunti_inherited_check(request->comm);
    shunti_comm_enter(request->comm);
    if (request->status != SHUNT_IN_PROGRESS) {
        shunti_notice_deliver(&now);
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
        shunti_notice_deliver(&now);
        return SHUNT_OK;
    }
    if (request->comm->inherited.state)
        return shunti_inherited_check(request->comm);
    shunti_comm_enter(request->comm);
    if (request->status != SHUNT_IN_PROGRESS) {
        shunti_notice_deliver(&now);
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
