// SPDX-License-Identifier: Apache-2.0
/*
 * Accepts connections, and keeps unauthenticated peers.
 *
 * Each context listens under a random name in the abstract namespace. A
 * connection is unauthenticated until its proof has arrived (connect.c). Until
 * then it has no endpoint, and is dropped after at most UNAUTHENTICATED_MS.
 * Connections of another user are dropped unread.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/shm/shm.h"

#define UNAUTHENTICATED_MS 10000
#define CROWDED_MS 1000
#define ACCEPTS 64 /* most connections accepted in one call of shm_accept() */
#define MAX_UNAUTHENTICATED 128 /* most peers, besides one for each rank */
#define MAX_LOGGED_REFUSALS 8

bool shm_random(void *to, size_t n)
{
    return getrandom(to, n, 0) == (ssize_t)n;
}

socklen_t shm_abstract(struct sockaddr_un *sun, const char *name)
{
    size_t n = strlen(name);

    memset(sun, 0, sizeof(*sun));
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path + 1, name, n); /* a leading 0: the name is abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

enum shunt_status shm_listen(struct shunt_transport_ctx *ctx, char *why,
                             size_t why_len)
{
    struct sockaddr_un sun;
    struct epoll_event event = {
        .events = EPOLLIN,
        .data.ptr = &ctx->listen_watch,
    };
    uint64_t r[2];

    if (!shm_random(r, sizeof(r))) {
        snprintf(why, why_len, "no random numbers: %s", strerror(errno));
        return SHUNT_ERR_SYSTEM;
    }
    snprintf(ctx->name, sizeof(ctx->name), "shunt-%016llx%016llx",
             (unsigned long long)r[0], (unsigned long long)r[1]);
    ctx->listen_watch = SHM_WATCH_LISTEN;
    ctx->listen = shunti_fd_lift(
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (ctx->listen < 0 ||
        bind(ctx->listen, (struct sockaddr *)&sun,
             shm_abstract(&sun, ctx->name)) ||
        listen(ctx->listen, SOMAXCONN) ||
        epoll_ctl(ctx->epoll, EPOLL_CTL_ADD, ctx->listen, &event)) {
        snprintf(why, why_len, "no socket to listen on: %s%s", strerror(errno),
                 transport_remedy(ctx->host, errno));
        return SHUNT_ERR_SYSTEM;
    }
    return SHUNT_OK;
}

void shm_refuse(struct shm_link *link, const char *why)
{
    struct shunt_transport_ctx *ctx = link->ctx;

    if (ctx->refusals++ < MAX_LOGGED_REFUSALS && ctx->host->log)
        ctx->host->log(SHUNT_TRANSPORT_INFO, "shm",
                       "refused a connection of pid %ld: %s", (long)link->pid,
                       why);
    shm_link_drop(link);
}

bool shm_same_user(int fd, pid_t *pid)
{
    struct ucred cred = {0};
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
        return false;
    *pid = cred.pid;
    return cred.uid == geteuid();
}

/*
 * If there are many unauthenticated peers, further connections stay in the
 * kernel's queue until some peers have been dropped or authenticated. No peer
 * is dropped to make room for another one, because it may be a rank whose
 * messages have not been read yet.
 */
static bool crowded(const struct shunt_transport_ctx *ctx)
{
    return ctx->nunauthenticated >= MAX_UNAUTHENTICATED + ctx->nranks;
}

static void pause_accepting(struct shunt_transport_ctx *ctx, bool pause)
{
    struct epoll_event event = {
        .events = pause ? 0u : EPOLLIN,
        .data.ptr = &ctx->listen_watch,
    };

    if (ctx->accept_error || ctx->paused == pause)
        return;
    ctx->paused = pause;
    epoll_ctl(ctx->epoll, EPOLL_CTL_MOD, ctx->listen, &event);
}

/* Stop watching the socket. Otherwise its descriptor would stay ready, and this
 * rank could not sleep. */
void shm_stop_accepting(struct shunt_transport_ctx *ctx, int error)
{
    ctx->accept_error = error;
    epoll_ctl(ctx->epoll, EPOLL_CTL_DEL, ctx->listen, NULL);
}

void shm_accept(struct shunt_transport_ctx *ctx)
{
    /* The loop is bounded, so that other users that keep connecting do not hold
     * this rank here. */
    for (int n = 0; n < ACCEPTS; n++) {
        struct shm_link *link, **p;
        pid_t pid = 0;
        int fd;

        if (crowded(ctx)) {
            pause_accepting(ctx, true);
            return;
        }
        fd = shunti_fd_lift(
            accept4(ctx->listen, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                shm_stop_accepting(ctx, errno);
            return;
        }
        if (!shm_same_user(fd, &pid)) {
            close(fd);
            continue;
        }
        link = shm_link_create(ctx, fd);
        if (!link) {
            shm_stop_accepting(ctx, errno);
            return;
        }
        link->pid = pid;
        link->state = SHM_AWAIT_HELLO;
        link->deadline = shm_now() + UNAUTHENTICATED_MS;
        for (p = &ctx->unauthenticated; *p; p = &(*p)->next)
            ;
        *p = link;
        ctx->nunauthenticated++;
    }
}

void shm_expire_unauthenticated(struct shunt_transport_ctx *ctx)
{
    int64_t now;

    if (!ctx->unauthenticated && !ctx->paused)
        return;
    now = shm_now();
    if (ctx->paused)
        now += UNAUTHENTICATED_MS - CROWDED_MS;
    while (ctx->unauthenticated && ctx->unauthenticated->deadline <= now)
        shm_refuse(ctx->unauthenticated, "it did not authenticate in time");
    if (!crowded(ctx))
        pause_accepting(ctx, false);
}
