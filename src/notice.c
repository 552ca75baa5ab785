// SPDX-License-Identifier: Apache-2.0
/* Notices of the end of a request; see notice.h. */
#include "src/notice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/aside.h"
#include "src/comm.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/helper.h"
#include "src/inline.h"
#include "src/log.h"
#include "src/request.h"
#include "src/trace.h"
#include "src/track.h"

atomic_uint shunti_notices;

static void signal_fd(int fd)
{
    static const uint64_t one = 1;

    while (write(fd, &one, sizeof(one)) < 0)
        if (errno != EINTR) {
            if (errno != EAGAIN) /* full, so it is readable */
                shunti_warn("comm", "shunt_notify_fd: descriptor %d: %s", fd,
                            strerror(errno));
            break;
        }
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
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_notify: done is NULL");
    if (!request) {
        tell(&now);
        return SHUNT_OK;
    }
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
    struct shunti_notice *notice;
    enum shunt_status st = SHUNT_OK;

    if (fcntl(fd, F_GETFD) < 0)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_notify_fd: descriptor %d: %s", fd,
                           strerror(errno));
    if (!request) {
        tell(&now);
        return SHUNT_OK;
    }
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
