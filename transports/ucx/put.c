// SPDX-License-Identifier: Apache-2.0
/*
 * Sending.
 *
 * UCP queues messages without a limit if the fabric has no room. This transport
 * limits them to MAX_SENDS for each peer, beyond which put() has no room. (The
 * pieces of a put that has begun may exceed the limit.)
 *
 * Over TCP UCP's "zero copy" is not used. Assume that the socket accepts a part
 * of such a message, and the next write to it fails because the peer was
 * killed. UCX then completes the message twice and aborts this process (all
 * versions from 1.11 to 1.20: uct_tcp_ep_sendv() completes it although
 * uct_tcp_ep_handle_send_err() has). A "short" message, of up to one segment,
 * does the same work: the kernel reads the caller's memory, and UCX copies only
 * the bytes that the socket does not accept.
 *
 * A message that UCP has sent has not necessarily taken effect. So flush() asks
 * the peer, which answers when all earlier puts have taken effect. The message
 * of flush() has the number of puts on each channel.
 */
#include <stdlib.h>
#include <string.h>

#include "transports/ucx/ucx.h"

#define MAX_SENDS 1024
/* Bytes of a piece. A piece with its header is one segment of UCX's TCP, whose
 * size ucx.c sets. */
#define PIECE ((size_t)60 << 10)

_Static_assert(sizeof(struct ucx_put) <=
                   sizeof(((struct ucx_send *)NULL)->header),
               "see send_from()");
_Static_assert(sizeof(struct ucx_flush) <=
                   sizeof(((struct ucx_send *)NULL)->header),
               "see send_from()");

static struct ucx_send *take_send(struct shunt_transport_ctx *ctx)
{
    struct ucx_send *send = ctx->spare;

    if (!send)
        return malloc(sizeof(*send));
    ctx->spare = send->next;
    return send;
}

/* Count the caller's memory as in use (take_back() undoes it). */
static void lend(struct ucx_send *send, unsigned *pending)
{
    struct shunt_transport_ep *ep = send->ep;

    send->pending = pending;
    if (!pending)
        return;
    ++*pending;
    send->next_lent = ep->lent;
    send->lent_at = &ep->lent;
    if (ep->lent)
        ep->lent->lent_at = &send->next_lent;
    ep->lent = send;
}

static void take_back(struct ucx_send *send)
{
    if (!send->pending)
        return;
    --*send->pending;
    send->pending = NULL;
    *send->lent_at = send->next_lent;
    if (send->next_lent)
        send->next_lent->lent_at = send->lent_at;
}

void ucx_forget_pending(struct shunt_transport_ep *ep)
{
    while (ep->lent)
        take_back(ep->lent);
}

static void give_send(struct ucx_send *send)
{
    struct shunt_transport_ctx *ctx = send->ep->ctx;

    ucx_reg_drop(send->reg);
    take_back(send);
    send->ep->copied = true;
    send->ep->sends--;
    send->next = ctx->spare;
    ctx->spare = send;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    struct ucx_send *send = arg;

    /* UCS_ERR_CANCELED: this rank has closed the endpoint, so the peer is
     * already marked as lost. */
    if (status != UCS_OK && status != UCS_ERR_CANCELED)
        ucx_ep_broken(send->ep, status);
    give_send(send);
    ucp_request_free(request);
}

/* Send a message. `reg` is the registration of `data`, which UCP may read until
 * the message is sent. A reference keeps the memory mapped if the caller
 * deregisters it earlier, for example after a failure. */
static enum shunt_status send_from(struct shunt_transport_ep *ep, unsigned kind,
                                   const void *header, size_t header_bytes,
                                   const void *data, size_t bytes,
                                   struct shunt_transport_reg *reg,
                                   unsigned *pending)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
    };
    struct shunt_transport_ctx *outer;
    struct ucx_sender *sender;
    struct ucx_send *send;
    void *request;

    if (ep->broken || !ep->ucp)
        return SHUNT_ERR_PEER;
    send = take_send(ctx);
    if (!send)
        return ucx_fail(ctx, SHUNT_ERR_MEMORY, "out of memory");
    send->ep = ep;
    send->reg = bytes > 0 ? reg : NULL;
    ucx_reg_hold(send->reg);
    lend(send, pending);
    memcpy(send->header, header, header_bytes);
    sender = (struct ucx_sender *)(void *)send->header;
    memcpy(sender->token, ep->token_out, sizeof(sender->token));
    sender->rank = ctx->rank;
    sender->received_bytes = ep->received_bytes;
    ep->sends++;
    ep->sent_bytes += header_bytes + bytes;
    param.user_data = send;
    if (bytes <= ep->eager_max) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_EAGER;
    }
    if (kind == UCX_HELLO) /* HELLO also makes UCP set up the connection */
        param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    outer = ucx_enter(ctx);
    request = ucp_am_send_nbx(ep->ucp, kind, send->header, header_bytes, data,
                              bytes, &param);
    ucx_leave(outer);
    if (!request) {
        give_send(send);
    } else if (UCS_PTR_IS_ERR(request)) {
        give_send(send);
        ucx_ep_broken(ep, UCS_PTR_STATUS(request));
        return SHUNT_ERR_PEER;
    }
    return SHUNT_OK;
}

enum shunt_status ucx_send(struct shunt_transport_ep *ep, unsigned kind,
                           const void *header, size_t header_bytes,
                           const void *data, size_t bytes)
{
    return send_from(ep, kind, header, header_bytes, data, bytes, NULL, NULL);
}

enum shunt_status ucx_send_empty(struct shunt_transport_ep *ep, unsigned kind,
                                 uint32_t flag)
{
    struct ucx_sender sender = {.flag = flag};

    return ucx_send(ep, kind, &sender, sizeof(sender), NULL, 0);
}

static enum shunt_status lost(struct shunt_transport_ep *ep)
{
    return transport_fail_gone(&ep->ctx->error, ep->peer, ep->left,
                               ep->why ? ucs_status_string(ep->why) : NULL);
}

static enum shunt_status outside(struct shunt_transport_ep *ep)
{
    return transport_fail_outside(&ep->ctx->error, ep->peer);
}

/* Return the failure of an earlier put, and clear it. */
static enum shunt_status take_failure(struct shunt_transport_ep *ep)
{
    enum shunt_status status = ep->failed;

    ep->failed = SHUNT_OK;
    return transport_fail_refused(&ep->ctx->error, ep->peer, status);
}

/* Send `bytes` at offset `at` of the payload; the last piece carries the
 * signal. */
static enum shunt_status put_piece(struct shunt_transport_ep *ep,
                                   const struct shunt_transport_put *put,
                                   struct ucx_put *header, size_t at,
                                   size_t bytes)
{
    struct ucx_channel *channel = &ep->channels[header->channel];
    struct ucx_put piece = *header;
    enum shunt_status status;

    piece.sequence = channel->sent;
    piece.offset += at;
    if (at + bytes < put->bytes)
        piece.signal_region = 0;
    status = send_from(ep, UCX_PUT, &piece, sizeof(piece),
                       (const unsigned char *)put->local + at, bytes, put->reg,
                       put->pending);
    if (!status)
        channel->sent++;
    return status;
}

/*
 * Put, over TCP in pieces of one segment each. For a larger message UCP would
 * either use a rendezvous or assemble the segments in a buffer of its own. With
 * the error handling mode of this transport, a rendezvous also moves the
 * payload in such pieces, and costs three more messages.
 */
static enum shunt_status put_pieces(struct shunt_transport_ep *ep,
                                    const struct shunt_transport_put *put,
                                    struct ucx_put *header)
{
    const size_t most = ep->eager_max ? PIECE : put->bytes;
    enum shunt_status status;
    size_t at = 0;

    do {
        size_t bytes = put->bytes - at < most ? put->bytes - at : most;

        status = put_piece(ep, put, header, at, bytes);
        at += bytes;
    } while (!status && at < put->bytes);
    return status;
}

enum shunt_status ucx_put(struct shunt_transport_ep *ep,
                          const struct shunt_transport_put *put)
{
    struct ucx_put header = {
        .channel = (uint32_t)put->channel % UCX_CHANNELS,
        .offset = put->offset,
        .signal_offset = put->signal_offset,
        .signal_value = put->signal_value,
    };
    enum shunt_status status;

    if (ep->gone || ep->broken || ep->left)
        return lost(ep);
    if (ep->failed)
        return take_failure(ep);
    if (put->bytes > 0) {
        if (!transport_far_has(&put->remote->far, put->offset, put->bytes))
            return outside(ep);
        header.region = put->remote->far.region;
    }
    if (put->signal) {
        if (put->signal_offset % 8 ||
            !transport_far_has(&put->signal->far, put->signal_offset, 8))
            return outside(ep);
        header.signal_region = put->signal->far.region;
    }
    if (!header.region && !header.signal_region)
        return SHUNT_OK;
    if (ep->sends >= MAX_SENDS) {
        ep->ctx->full++;
        return SHUNT_IN_PROGRESS;
    }
    ep->ctx->puts++;
    ep->ctx->put_bytes += put->bytes;
    ep->unflushed = true; /* also if the put fails half-way */
    ep->flush_stale = true;
    status = put_pieces(ep, put, &header);
    return status == SHUNT_ERR_PEER ? lost(ep) : status;
}

enum shunt_status ucx_flush(struct shunt_transport_ep *ep)
{
    struct ucx_flush header = {.serial = ep->flush_asked + 1};
    enum shunt_status status;

    if (ep->failed)
        return take_failure(ep);
    if (!ep->unflushed)
        return SHUNT_OK;
    if (ep->gone || ep->broken || ep->left)
        return lost(ep);
    if (ep->flush_stale) {
        for (int c = 0; c < UCX_CHANNELS; c++)
            header.sequence[c] = ep->channels[c].sent;
        status = ucx_send(ep, UCX_FLUSH, &header, sizeof(header), NULL, 0);
        if (status == SHUNT_ERR_PEER)
            return lost(ep);
        if (status)
            return status;
        ep->flush_asked = header.serial;
        ep->flush_stale = false;
        return SHUNT_IN_PROGRESS;
    }
    if (ep->flush_done != ep->flush_asked)
        return SHUNT_IN_PROGRESS;
    ep->unflushed = false;
    return SHUNT_OK;
}

void ucx_wake(struct shunt_transport_ep *ep)
{
    /* A message that is under way wakes the peer as well. */
    if (ep->gone || ep->left || ep->sends > 0)
        return;
    ucx_send_empty(ep, UCX_WAKE, 0);
}

size_t ucx_counters(const struct shunt_transport_ctx *ctx,
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
