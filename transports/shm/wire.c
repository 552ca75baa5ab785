// SPDX-License-Identifier: Apache-2.0
/*
 * Messages over a socket, with descriptors, and a queue for a socket that is
 * full. All messages have the same size, whatever their type.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transports/common/descriptor.h"
#include "transports/shm/shm.h"

#define MAGIC 0x6d687373u

union ancillary {
    struct cmsghdr header; /* unused: aligns `bytes` */
    char bytes[CMSG_SPACE(sizeof(int) * SHM_MESSAGE_FDS)];
};

static int watch(struct shm_link *link, int op)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLRDHUP | (link->out ? EPOLLOUT : 0u),
        .data.ptr = link,
    };

    return epoll_ctl(link->ctx->epoll, op, link->fd, &event);
}

struct shm_link *shm_link_create(struct shunt_transport_ctx *ctx, int fd)
{
    struct shm_link *link = calloc(1, sizeof(*link));
    int error = ENOMEM;

    if (!link)
        goto fail;
    link->watch = SHM_WATCH_LINK;
    link->ctx = ctx;
    link->fd = fd;
    link->out_tail = &link->out;
    if (!watch(link, EPOLL_CTL_ADD))
        return link;
    error = errno;
fail:
    free(link);
    close(fd);
    errno = error;
    return NULL;
}

static void outgoing_free(struct shm_outgoing *out)
{
    for (int i = 0; i < out->nfds; i++)
        close(out->fds[i]);
    free(out);
}

void shm_link_drop(struct shm_link *link)
{
    struct shunt_transport_ctx *ctx = link->ctx;

    if (link->state == SHM_DOWN)
        return;
    link->state = SHM_DOWN;
    if (link->fd >= 0) {
        /* Remove the descriptor explicitly, because a forked child may hold the
         * socket open. */
        epoll_ctl(ctx->epoll, EPOLL_CTL_DEL, link->fd, NULL);
        close(link->fd);
        link->fd = -1;
    }
    while (link->out) {
        struct shm_outgoing *out = link->out;

        link->out = out->next;
        outgoing_free(out);
    }
    if (link->ep) {
        link->ep->link = NULL;
        link->ep->down = true;
        ctx->look = true;
    } else {
        for (struct shm_link **p = &ctx->unauthenticated; *p; p = &(*p)->next) {
            if (*p == link) {
                *p = link->next;
                ctx->nunauthenticated--;
                break;
            }
        }
    }
    link->next = ctx->dead;
    ctx->dead = link;
}

void shm_links_free_dropped(struct shunt_transport_ctx *ctx)
{
    while (ctx->dead) {
        struct shm_link *link = ctx->dead;

        ctx->dead = link->next;
        free(link);
    }
}

/* --- sending -------------------------------------------------------------- */

/* Send a message at once. Returns 0, or an errno. */
static int send_now(int socket, const struct shm_message *message,
                    const int *fds, int nfds)
{
    union ancillary ancillary;
    struct iovec iov = {(void *)message, sizeof(*message)};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (nfds > 0) {
        size_t bytes = sizeof(int) * (size_t)nfds;
        struct cmsghdr *cmsg;

        memset(&ancillary, 0, sizeof(ancillary));
        header.msg_control = ancillary.bytes;
        header.msg_controllen = CMSG_SPACE(bytes);
        cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(cmsg), fds, bytes);
    }
    while (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* May the message be sent later? ETOOMANYREFS: too many descriptors of the user
 * are in flight, as many as one process may have open. The peers' progress()
 * receives them. */
static bool try_later(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ETOOMANYREFS;
}

static bool peer_gone(int error)
{
    return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

static int enqueue(struct shm_link *link, const struct shm_message *message,
                   const int *fds, int nfds)
{
    struct shm_outgoing *out = calloc(1, sizeof(*out));

    if (!out)
        return ENOMEM;
    out->message = *message;
    for (int i = 0; i < nfds; i++) {
        out->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (out->fds[i] < 0) {
            int error = errno;

            outgoing_free(out);
            return error;
        }
        out->nfds++;
    }
    *link->out_tail = out;
    link->out_tail = &out->next;
    link->ctx->look = true;
    watch(link, EPOLL_CTL_MOD);
    return 0;
}

int shm_send(struct shm_link *link, const struct shm_message *message,
             const int *fds, int nfds)
{
    struct shm_message copy = *message;
    int error;

    if (link->state == SHM_DOWN)
        return 0; /* the reader of the socket handles its end */
    copy.magic = MAGIC;
    if (link->out)
        return enqueue(link, &copy, fds, nfds);
    error = send_now(link->fd, &copy, fds, nfds);
    if (try_later(error))
        return enqueue(link, &copy, fds, nfds);
    if (peer_gone(error))
        return 0;
    if (!error && link->ep && link->ep->control)
        atomic_fetch_add_explicit(&link->ep->control->news, 1,
                                  memory_order_release);
    return error;
}

void shm_link_flush(struct shm_link *link)
{
    if (!link->out)
        return;
    while (link->out) {
        struct shm_outgoing *out = link->out;
        int error = send_now(link->fd, &out->message, out->fds, out->nfds);

        if (try_later(error)) {
            link->ctx->look = true;
            return;
        }
        /* On any other failure the socket has ended, which its reader
         * notices. */
        link->out = out->next;
        outgoing_free(out);
    }
    link->out_tail = &link->out;
    if (link->ep && link->ep->control)
        atomic_fetch_add_explicit(&link->ep->control->news, 1,
                                  memory_order_release);
    watch(link, EPOLL_CTL_MOD);
}

/* --- receiving ------------------------------------------------------------ */

/* Copy the descriptors of a message to `fds`, moved above 2. If this process
 * has no room for some of them, these are closed, and *error is set. */
static int take_fds(struct msghdr *header, int *fds, int *error)
{
    int nfds = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c;
         c = CMSG_NXTHDR(header, c)) {
        size_t n;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n && nfds < SHM_MESSAGE_FDS; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            fd = shunti_fd_move(fd);
            if (fd < 0)
                *error = errno;
            else
                fds[nfds++] = fd;
        }
    }
    return nfds;
}

int shm_link_read(struct shm_link *link)
{
    int events = 0;

    while (link->state != SHM_DOWN) {
        union ancillary ancillary;
        struct shm_message message;
        struct iovec iov = {&message, sizeof(message)};
        struct msghdr header = {
            .msg_iov = &iov,
            .msg_iovlen = 1,
            .msg_control = ancillary.bytes,
            .msg_controllen = sizeof(ancillary.bytes),
        };
        int fds[SHM_MESSAGE_FDS];
        int nfds, lost = 0;
        ssize_t n;

        shunti_stdio_occupy();
        n = recvmsg(link->fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        shunti_stdio_release();
        /* recvmsg() returns ECONNRESET before the messages that are queued. */
        if (n < 0 && (errno == EINTR || errno == ECONNRESET))
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        events++;
        if (n <= 0) {
            shm_link_drop(link);
            break;
        }
        nfds = take_fds(&header, fds, &lost);
        if (n != (ssize_t)sizeof(message) || header.msg_flags & MSG_TRUNC ||
            message.magic != MAGIC) {
            while (nfds > 0)
                close(fds[--nfds]);
            shm_link_drop(link);
            break;
        }
        /* MSG_CTRUNC: the kernel dropped descriptors. The buffer had room for
         * all of them, so this process's descriptor table was full. */
        shm_handle(link, &message, fds, nfds,
                   header.msg_flags & MSG_CTRUNC ? EMFILE : lost);
    }
    return events;
}
