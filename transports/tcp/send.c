// SPDX-License-Identifier: Apache-2.0
/*
 * Sending.
 *
 * A message is written to the socket at once. The rest that the socket does not
 * accept is queued, with a pointer to the payload. The payload does not change
 * until it has been sent (shunt_transport_put.local). progress() sends the rest
 * when there is room.
 *
 * A message that was sent has not necessarily taken effect. So flush() asks the
 * peer, which answers when all earlier puts have taken effect.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "transports/tcp/tcp.h"

#define MAX_SENDS 1024 /* messages in the queue of a peer */
#define BATCH 32       /* messages in one call of the kernel */

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

static void enqueue(struct tcp_line *line, struct tcp_send *send)
{
    tcp_reg_hold(send->reg);
    if (send->pending)
        ++*send->pending;
    send->next = NULL;
    if (line->first)
        *line->last = send;
    else
        line->first = send;
    line->last = &send->next;
    line->sends++;
    tcp_line_watch(line);
}

/* Remove the first message, which was sent, or never will be. */
static void dequeue(struct tcp_line *line)
{
    struct tcp_send *send = line->first;

    line->first = send->next;
    line->sends--;
    if (send->pending)
        --*send->pending;
    tcp_reg_drop(send->reg);
    give_spare(line->ep->ctx, send);
}

void tcp_drop_sends(struct tcp_line *line)
{
    while (line->first)
        dequeue(line);
    tcp_line_watch(line);
}

/* --- the socket ----------------------------------------------------------- */

/* Write the unsent parts of a message to `to`. Returns their number. */
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

/* Write to the socket. Returns the number of bytes that the socket accepted;
 * -1: the connection is broken. */
static ssize_t write_some(struct tcp_line *line, struct iovec *pieces,
                          int count)
{
    struct msghdr message = {
        .msg_iov = pieces,
        .msg_iovlen = (size_t)count,
    };
    ssize_t n;

    do
        n = sendmsg(line->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
        return 0;
    tcp_line_failed(line, errno);
    return -1;
}

void tcp_push(struct tcp_line *line)
{
    while (line->first && line->fd >= 0 && !line->failed) {
        struct iovec pieces[2 * BATCH];
        struct tcp_send *send = line->first;
        size_t done;
        int count = 0;
        ssize_t n;

        for (int i = 0; i < BATCH && send; i++, send = send->next)
            count += pieces_of(send, pieces + count);
        n = write_some(line, pieces, count);
        if (n < 0)
            return;
        for (done = (size_t)n; line->first;) {
            size_t rest = sizeof(line->first->header) + line->first->bytes -
                          line->first->sent;

            if (done < rest) {
                line->first->sent += done;
                break;
            }
            done -= rest;
            dequeue(line);
        }
        if ((size_t)n < bytes_of(pieces, count))
            return; /* progress() calls again when there is room */
    }
    tcp_line_watch(line);
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

/* Copy the unsent part of a piece of the tail behind the data, because the
 * caller may change the piece after put(). */
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

/* Returns the status for a connection that accepts no more data. The peer is
 * not lost while its data may still arrive on the other connection. */
static enum shunt_status ended(const struct shunt_transport_ep *ep)
{
    return tcp_is_ending(ep) ? SHUNT_IN_PROGRESS : SHUNT_ERR_PEER;
}

/* Send a message and its tail (shunt_transport_put.tail), at once or when there
 * is room. */
static enum shunt_status post(struct tcp_line *line,
                              const struct tcp_send *message,
                              const struct shunt_transport_piece *tail)
{
    struct shunt_transport_ctx *ctx = line->ep->ctx;
    struct tcp_send *send;

    if (line->fd < 0 || line->failed || line->ep->broken)
        return ended(line->ep);
    send = take_spare(ctx);
    if (!send)
        return tcp_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    *send = *message;
    if (!line->first) {
        struct iovec pieces[2 + SHUNT_TRANSPORT_PIECES];
        int count = pieces_of(send, pieces);
        ssize_t n;

        count += add_tail(pieces + count, tail);
        n = write_some(line, pieces, count);
        if (n < 0 || (size_t)n == bytes_of(pieces, count)) {
            give_spare(ctx, send);
            return n < 0 ? ended(line->ep) : SHUNT_OK;
        }
        send->sent = (size_t)n;
    }
    for (int i = 0; i < SHUNT_TRANSPORT_PIECES; i++)
        keep_piece(send, &tail[i]);
    enqueue(line, send);
    return SHUNT_OK;
}

enum shunt_status tcp_send_header(struct tcp_line *line,
                                  const struct tcp_header *header)
{
    const struct tcp_send message = {.header = *header};

    return post(line, &message, no_tail);
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

/* Return the failure of an earlier put, and clear it. */
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
    struct tcp_line *line = &ep->line[TCP_MAIN];
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
    if (put->channel < SHUNT_TRANSPORT_BULK) {
        tcp_express_consider(ep);
        line = tcp_line_of_short(ep);
    }
    if (line->sends >= MAX_SENDS) {
        ep->ctx->full++;
        return SHUNT_IN_PROGRESS;
    }
    ep->ctx->puts++;
    ep->ctx->put_bytes += bytes;
    ep->ctx->expressed += line != &ep->line[TCP_MAIN];
    ep->unwatched += bytes;
    ep->unflushed = true;
    ep->flush_stale = true;
    status = post(line, &message, put->tail);
    return status == SHUNT_ERR_PEER ? lost(ep) : status;
}

/* Ask the peer on each connection in use to confirm all earlier puts. */
static enum shunt_status ask_flush(struct shunt_transport_ep *ep)
{
    const struct tcp_header header = {
        .kind = TCP_FLUSH,
        .serial = ++ep->flush_asked,
    };

    for (int i = 0; i < TCP_LINES; i++) {
        struct tcp_line *line = &ep->line[i];
        enum shunt_status status;

        if (line != &ep->line[TCP_MAIN] && line != tcp_line_of_short(ep))
            continue;
        status = tcp_send_header(line, &header);
        if (status)
            return status;
        line->flush_asked = header.serial;
    }
    ep->flush_stale = false;
    return SHUNT_IN_PROGRESS;
}

enum shunt_status tcp_flush(struct shunt_transport_ep *ep)
{
    if (ep->put_lost)
        return take_failure(ep);
    if (!ep->unflushed)
        return SHUNT_OK;
    if (ep->gone || ep->broken || ep->left)
        return lost(ep);
    if (ep->flush_stale) {
        enum shunt_status status = ask_flush(ep);

        return status == SHUNT_ERR_PEER ? lost(ep) : status;
    }
    for (int i = 0; i < TCP_LINES; i++)
        if (ep->line[i].flush_done != ep->line[i].flush_asked)
            return SHUNT_IN_PROGRESS;
    ep->unflushed = false;
    return SHUNT_OK;
}

void tcp_wake(struct shunt_transport_ep *ep)
{
    const struct tcp_header header = {.kind = TCP_WAKE};
    struct tcp_line *line = tcp_line_of_short(ep);

    /* A message in the queue wakes the peer as well. */
    if (!ep->gone && !ep->left && !line->first)
        tcp_send_header(line, &header);
}

size_t tcp_counters(const struct shunt_transport_ctx *ctx,
                    struct shunt_transport_counter *counters, size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", ctx->puts},
        {"bytes", ctx->put_bytes},
        {"retries", ctx->full},
        {"express", ctx->expressed},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    return count;
}
