// SPDX-License-Identifier: Apache-2.0
/*
 * Sending.
 *
 * A message goes to the socket at once. What it does not take is queued, with a
 * pointer to the payload, which does not change until it has been sent
 * (shunt_transport_put.local); progress() sends it when there is room.
 *
 * A message that was sent has not necessarily taken effect. So flush() asks the
 * peer, whose answer comes when all puts before the question have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "transports/tcp/tcp.h"

#define MAX_SENDS 1024 /* messages in the queue of a peer */
#define BATCH 32       /* messages in one call of the kernel */

/* Ask the epoll whether the socket has room. */
static void watch_room(struct shunt_transport_ep *ep, bool watch)
{
    struct epoll_event event = {
        .events = watch ? EPOLLIN | EPOLLOUT : EPOLLIN,
        .data.ptr = &ep->watch,
    };

    if (ep->watched == watch || ep->fd < 0)
        return;
    ep->watched = watch;
    epoll_ctl(ep->ctx->epoll, EPOLL_CTL_MOD, ep->fd, &event);
}

/* --- the queue ------------------------------------------------------------ */

static struct tcp_send *take_spare(struct shunt_transport_ctx *ctx)
{
    struct tcp_send *send = ctx->spare;

    if (!send)
        return malloc(sizeof(*send));
    ctx->spare = send->next;
    return send;
}

static void give_spare(struct shunt_transport_ctx *ctx, struct tcp_send *send)
{
    send->next = ctx->spare;
    ctx->spare = send;
}

static void enqueue(struct shunt_transport_ep *ep, struct tcp_send *send)
{
    tcp_reg_hold(send->reg);
    if (send->pending)
        ++*send->pending;
    send->next = NULL;
    if (ep->first)
        *ep->last = send;
    else
        ep->first = send;
    ep->last = &send->next;
    ep->sends++;
    watch_room(ep, true);
}

/* The first message was sent, or will not be. */
static void dequeue(struct shunt_transport_ep *ep)
{
    struct tcp_send *send = ep->first;

    ep->first = send->next;
    ep->sends--;
    if (send->pending)
        --*send->pending;
    tcp_reg_drop(send->reg);
    give_spare(ep->ctx, send);
}

void tcp_drop_sends(struct shunt_transport_ep *ep)
{
    while (ep->first)
        dequeue(ep);
    watch_room(ep, false);
}

/* --- the socket ----------------------------------------------------------- */

/* What is to be sent of a message. */
static int pieces_of(struct tcp_send *send, struct iovec *to)
{
    const size_t head = sizeof(send->header);
    int n = 0;

    if (send->sent < head)
        to[n++] = (struct iovec){(unsigned char *)&send->header + send->sent,
                                 head - send->sent};
    if (send->bytes > 0) {
        size_t at = send->sent > head ? send->sent - head : 0;

        to[n++] = (struct iovec){(void *)(uintptr_t)(send->data + at),
                                 send->bytes - at};
    }
    return n;
}

static size_t bytes_of(const struct iovec *pieces, int count)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    return bytes;
}

/* The bytes that the socket took; -1: the connection is broken. */
static ssize_t write_some(struct shunt_transport_ep *ep, struct iovec *pieces,
                          int count)
{
    struct msghdr message = {
        .msg_iov = pieces,
        .msg_iovlen = (size_t)count,
    };
    ssize_t n;

    do
        n = sendmsg(ep->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        return 0;
    tcp_broken(ep, errno);
    return -1;
}

void tcp_push(struct shunt_transport_ep *ep)
{
    while (ep->first && ep->fd >= 0) {
        struct iovec pieces[2 * BATCH];
        struct tcp_send *send = ep->first;
        size_t done;
        int count = 0;
        ssize_t n;

        for (int i = 0; i < BATCH && send; i++, send = send->next)
            count += pieces_of(send, pieces + count);
        n = write_some(ep, pieces, count);
        if (n < 0)
            return;
        for (done = (size_t)n; ep->first;) {
            size_t rest =
                sizeof(ep->first->header) + ep->first->bytes - ep->first->sent;

            if (done < rest) {
                ep->first->sent += done;
                break;
            }
            done -= rest;
            dequeue(ep);
        }
        if ((size_t)n < bytes_of(pieces, count))
            return; /* progress() calls again when there is room */
    }
    watch_room(ep, false);
}

static const struct shunt_transport_piece no_tail[SHUNT_TRANSPORT_PIECES];

static int add_tail(struct iovec *to, const struct shunt_transport_piece *tail)
{
    int n = 0;

    for (int i = 0; i < SHUNT_TRANSPORT_PIECES; i++)
        if (tail[i].bytes > 0)
            to[n++] =
                (struct iovec){(void *)(uintptr_t)tail[i].data, tail[i].bytes};
    return n;
}

/* The caller may change the piece after put(): copy what has not been sent of
 * it to where the data ends. */
static void keep_piece(struct tcp_send *send,
                       const struct shunt_transport_piece *piece)
{
    const size_t before = sizeof(send->header) + send->bytes;
    const size_t sent = send->sent > before ? send->sent - before : 0;

    if (sent < piece->bytes)
        memcpy((unsigned char *)(uintptr_t)send->data + send->bytes + sent,
               (const unsigned char *)piece->data + sent, piece->bytes - sent);
    send->bytes += piece->bytes;
}

/* Send a message and its tail (shunt_transport_put.tail): at once, or as room
 * allows. */
static enum shunt_status post(struct shunt_transport_ep *ep,
                              const struct tcp_send *message,
                              const struct shunt_transport_piece *tail)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct tcp_send *send;

    if (ep->fd < 0 || ep->broken)
        return SHUNT_ERR_PEER;
    send = take_spare(ctx);
    if (!send)
        return tcp_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    *send = *message;
    if (!ep->first) {
        struct iovec pieces[2 + SHUNT_TRANSPORT_PIECES];
        int count = pieces_of(send, pieces);
        ssize_t n;

        count += add_tail(pieces + count, tail);
        n = write_some(ep, pieces, count);
        if (n < 0 || (size_t)n == bytes_of(pieces, count)) {
            give_spare(ctx, send);
            return n < 0 ? SHUNT_ERR_PEER : SHUNT_OK;
        }
        send->sent = (size_t)n;
    }
    for (int i = 0; i < SHUNT_TRANSPORT_PIECES; i++)
        keep_piece(send, &tail[i]);
    enqueue(ep, send);
    return SHUNT_OK;
}

enum shunt_status tcp_tell(struct shunt_transport_ep *ep,
                           const struct tcp_header *header)
{
    const struct tcp_send message = {.header = *header};

    return post(ep, &message, no_tail);
}

/* --- puts ----------------------------------------------------------------- */

static enum shunt_status lost(struct shunt_transport_ep *ep)
{
    return transport_fail_gone(&ep->ctx->error, ep->peer, ep->left,
                               ep->error ? strerror(ep->error) : NULL);
}

static enum shunt_status outside(struct shunt_transport_ep *ep)
{
    return transport_fail_outside(&ep->ctx->error, ep->peer);
}

/* Return the failure of an earlier put. */
static enum shunt_status take_failure(struct shunt_transport_ep *ep)
{
    enum shunt_status status = ep->put_lost;

    ep->put_lost = SHUNT_OK;
    return transport_fail_refused(&ep->ctx->error, ep->peer, status);
}

enum shunt_status tcp_put(struct shunt_transport_ep *ep,
                          const struct shunt_transport_put *put)
{
    const size_t bytes = put->bytes + shunt_transport_tail_bytes(put);
    struct tcp_send message = {
        .header =
            {
                .kind = TCP_PUT,
                .bytes = bytes,
                .offset = put->offset,
                .signal_offset = put->signal_offset,
                .signal_value = put->signal_value,
            },
        .data = put->local,
        .bytes = put->bytes,
        .reg = bytes > 0 ? put->reg : NULL,
        .pending = put->pending,
    };
    enum shunt_status status;

    if (ep->gone || ep->broken || ep->left)
        return lost(ep);
    if (ep->put_lost)
        return take_failure(ep);
    if (bytes > 0) {
        if (!transport_far_has(&put->remote->far, put->offset, bytes))
            return outside(ep);
        message.header.region = put->remote->far.region;
    }
    if (put->signal) {
        if (put->signal_offset % 8 ||
            !transport_far_has(&put->signal->far, put->signal_offset, 8))
            return outside(ep);
        message.header.signal_region = put->signal->far.region;
    }
    if (!message.header.region && !message.header.signal_region)
        return SHUNT_OK;
    if (ep->sends >= MAX_SENDS) {
        ep->ctx->full++;
        return SHUNT_IN_PROGRESS;
    }
    ep->ctx->puts++;
    ep->ctx->put_bytes += bytes;
    ep->unflushed = true;
    ep->flush_stale = true;
    status = post(ep, &message, put->tail);
    return status == SHUNT_ERR_PEER ? lost(ep) : status;
}

enum shunt_status tcp_flush(struct shunt_transport_ep *ep)
{
    struct tcp_header header = {
        .kind = TCP_FLUSH,
        .serial = ep->flush_asked + 1,
    };
    enum shunt_status status;

    if (ep->put_lost)
        return take_failure(ep);
    if (!ep->unflushed)
        return SHUNT_OK;
    if (ep->gone || ep->broken || ep->left)
        return lost(ep);
    if (ep->flush_stale) {
        status = tcp_tell(ep, &header);
        if (status)
            return status == SHUNT_ERR_PEER ? lost(ep) : status;
        ep->flush_asked = header.serial;
        ep->flush_stale = false;
        return SHUNT_IN_PROGRESS;
    }
    if (ep->flush_done != ep->flush_asked)
        return SHUNT_IN_PROGRESS;
    ep->unflushed = false;
    return SHUNT_OK;
}

void tcp_wake(struct shunt_transport_ep *ep)
{
    const struct tcp_header header = {.kind = TCP_WAKE};

    /* A message under way wakes the peer, too. */
    if (!ep->gone && !ep->left && !ep->first)
        tcp_tell(ep, &header);
}

size_t tcp_counters(const struct shunt_transport_ctx *ctx,
                    struct shunt_transport_counter *counters, size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", ctx->puts},
        {"bytes", ctx->put_bytes},
        {"retries", ctx->full},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    return count;
}
