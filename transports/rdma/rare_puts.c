// SPDX-License-Identifier: Apache-2.0
/*
 * Rare puts (shunt_transport_put.rare) to a peer without rails. They are sent
 * by tcp, straight to the peer's memory. That memory is also registered with
 * tcp if it is one piece and not brief.
 *
 * A later put over rails must take effect after the rare puts. The hello of
 * this rank (rail.c) is sent by tcp behind them, and without it no rail is
 * connected. So no rare put uses tcp once there are rails, reached or not.
 */
#include "transports/rdma/rdma.h"

enum shunt_status rdma_put_rare(struct shunt_transport_ep *ep,
                                const struct shunt_transport_put *put)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    struct shunt_transport_put by_tcp = *put;
    enum shunt_status status;

    if (put->pending || (put->bytes && !put->remote->tcp) ||
        (put->signal && !put->signal->tcp))
        return rdma_start_by_put(ep);
    by_tcp.remote = put->bytes ? put->remote->tcp : NULL;
    by_tcp.signal = put->signal ? put->signal->tcp : NULL;
    by_tcp.reg = NULL;
    by_tcp.channel = 0; /* that of the mail, which stays behind this put */
    status = ctx->tcp->put(ep->tcp, &by_tcp);
    if (status == SHUNT_ERR_PEER) { /* progress() decides which peer counts as
                                       gone first */
        ctx->look = true;
        return SHUNT_IN_PROGRESS;
    }
    if (status < SHUNT_OK)
        return rdma_fail(ctx, status, "%s", ctx->tcp->error(ctx->tcp_ctx));
    if (status == SHUNT_IN_PROGRESS) {
        ctx->full++;
        return status;
    }
    ep->by_tcp = true;
    ctx->rare = true;
    ctx->by_tcp++;
    ctx->puts++;
    ctx->put_bytes += put->bytes;
    return SHUNT_OK;
}

void rdma_flush_rare(struct shunt_transport_ep *ep)
{
    struct shunt_transport_ctx *ctx = ep->ctx;
    const enum shunt_status status = ctx->tcp->flush(ep->tcp);

    if (status == SHUNT_OK)
        ep->by_tcp = false;
    else if (status == SHUNT_ERR_PEER)
        ctx->look = true;
    else if (status != SHUNT_IN_PROGRESS)
        ep->failed = status;
}
