// SPDX-License-Identifier: Apache-2.0
/*
 * The queues of a NIC, which all peers share; and queue pairs.
 *
 * A peer has at most one rail over a NIC (start.c). A rail has at most
 * `credits` requests that are not complete, and as many receive requests, where
 * `credits` is at most ctx.credits. RDMA_SPARE more receive requests allow used
 * ones to be posted again in groups. connect() admits at most P peers. So with
 * P peers,
 *
 *     receive requests  <=  P x ctx.credits + RDMA_SPARE
 *     completions       <=  P x ctx.credits of requests, and those of receive requests
 *
 * and queues of these depths cannot overflow. The queues are made for all P
 * peers when the NIC is opened, so that a device with less room is refused
 * then. Receive requests are posted when a rail needs them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transports/rdma/rdma.h"

#define RNR_FOR_EVER 7
#define RNR_TIMER 12 /* 0.64 ms */

/* --- queues ------------------------------------------------------------------ */

static enum shunt_status refuse(const struct rdma_nic *nic, char *why,
                                size_t why_len, const char *what, int need,
                                int most)
{
    snprintf(why, why_len, "%s has room for %d %s, and %d are needed",
             nic->name, most, what, need);
    return SHUNT_ERR_UNSUPPORTED;
}

/* Post `count` receive requests. Returns how many were posted; if not all,
 * errno says why. */
static unsigned post_receives(struct rdma_nic *nic, unsigned count)
{
    struct ibv_recv_wr *wrs = nic->receives, *bad, *after;

    if (!count)
        return 0;
    after = wrs[count - 1].next;
    wrs[count - 1].next = NULL;
    errno = ibv_post_srq_recv(nic->srq, wrs, &bad);
    wrs[count - 1].next = after;
    return errno ? (unsigned)(bad - wrs) : count;
}

static void chain_receives(struct rdma_nic *nic)
{
    const size_t count = sizeof(nic->receives) / sizeof(nic->receives[0]);

    for (size_t i = 0; i + 1 < count; i++)
        nic->receives[i].next = &nic->receives[i + 1];
}

static int receives_of(const struct rdma_nic *nic)
{
    return nic->ctx->peers * (int)nic->ctx->credits + RDMA_SPARE;
}

static enum shunt_status create_queues(struct rdma_nic *nic, char *why,
                                       size_t why_len)
{
    const int receives = receives_of(nic);
    const int completions = receives + nic->ctx->peers * (int)nic->ctx->credits;
    struct ibv_srq_init_attr srq = {
        .attr = {.max_wr = (uint32_t)receives, .max_sge = 1}};
    struct ibv_device_attr attr;
    size_t hashes = 16;

    if (ibv_query_device(nic->device, &attr))
        return SHUNT_ERR_SYSTEM;
    if (completions > attr.max_cqe)
        return refuse(nic, why, why_len, "completions", completions,
                      attr.max_cqe);
    if (receives > attr.max_srq_wr)
        return refuse(nic, why, why_len, "receive requests", receives,
                      attr.max_srq_wr);
    nic->piece = attr.max_mr_size ? (size_t)attr.max_mr_size : SIZE_MAX;
    while (hashes < 2 * (size_t)nic->ctx->peers)
        hashes *= 2;
    nic->by_qp_mask = (uint32_t)hashes - 1;
    nic->by_qp = calloc(hashes, sizeof(struct rdma_rail *));
    nic->pd = ibv_alloc_pd(nic->device);
    nic->channel = ibv_create_comp_channel(nic->device);
    if (!nic->by_qp || !nic->pd || !nic->channel)
        return SHUNT_ERR_SYSTEM;
    nic->cq = ibv_create_cq(nic->device, completions, NULL, nic->channel, 0);
    nic->srq = ibv_create_srq(nic->pd, &srq);
    if (!nic->cq || !nic->srq || fcntl(nic->channel->fd, F_SETFL, O_NONBLOCK) ||
        fcntl(nic->device->async_fd, F_SETFL, O_NONBLOCK))
        return SHUNT_ERR_SYSTEM;
    chain_receives(nic);
    return post_receives(nic, RDMA_SPARE) == RDMA_SPARE ? SHUNT_OK
                                                        : SHUNT_ERR_SYSTEM;
}

enum shunt_status rdma_nic_open(struct rdma_nic *nic, char *why, size_t why_len)
{
    enum shunt_status status;

    errno = 0;
    status = create_queues(nic, why, why_len);
    if (status == SHUNT_ERR_SYSTEM)
        snprintf(why, why_len,
                 "%s: its queues for %d peers cannot be made: %s%s", nic->name,
                 nic->ctx->peers, strerror(errno),
                 errno == ENOMEM ? "; raise `ulimit -l`" : "");
    return status;
}

void rdma_nic_close(struct rdma_nic *nic)
{
    if (nic->srq)
        ibv_destroy_srq(nic->srq);
    if (nic->cq)
        ibv_destroy_cq(nic->cq);
    if (nic->channel)
        ibv_destroy_comp_channel(nic->channel);
    if (nic->pd)
        ibv_dealloc_pd(nic->pd);
    if (nic->device)
        ibv_close_device(nic->device);
    free(nic->by_qp);
}

bool rdma_post_receives(struct rdma_rail *rail)
{
    const unsigned rest = rail->credits - rail->receives;
    const unsigned posted = post_receives(rail->nic, rest);

    rail->receives += posted;
    return posted == rest;
}

void rdma_post_receives_again(struct rdma_nic *nic)
{
    const unsigned used = nic->used;

    nic->used = 0;
    /* The queue has room, since these requests were used. */
    if (post_receives(nic, used) != used && nic->ctx->host->log && !nic->dead)
        nic->ctx->host->log(SHUNT_TRANSPORT_ERROR, "rdma",
                            "%s: a receive request cannot be posted",
                            nic->name);
}

/* --- queue pairs ------------------------------------------------------------- */

static bool initialise(const struct rdma_nic *nic, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = nic->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };

    errno = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              IBV_QP_ACCESS_FLAGS);
    return !errno;
}

struct ibv_qp *rdma_qp_create(const struct rdma_nic *nic, uint32_t sends,
                              uint32_t *inlined)
{
    static const uint32_t tries[] = {RDMA_INLINED, 64, 0};
    struct ibv_qp *qp = NULL;

    for (size_t i = 0; !qp && i < sizeof(tries) / sizeof(tries[0]); i++) {
        if (tries[i] > rdma_inlined_of(nic->ctx->nic_count))
            continue;
        struct ibv_qp_init_attr attr = {
            .send_cq = nic->cq,
            .recv_cq = nic->cq,
            .srq = nic->srq,
            .cap = {.max_send_wr = sends,
                    .max_send_sge = 1,
                    .max_inline_data = tries[i]},
            .qp_type = IBV_QPT_RC,
        };

        qp = ibv_create_qp(nic->pd, &attr);
        *inlined = tries[i];
    }
    if (qp && !initialise(nic, qp)) {
        const int error = errno;

        ibv_destroy_qp(qp);
        errno = error;
        return NULL;
    }
    return qp;
}

int rdma_qp_connect(struct rdma_rail *rail)
{
    const struct rdma_nic *nic = rail->nic;
    const struct rdma_place *ours = &rail->ours.place,
                            *to = &rail->theirs.place;
    const uint8_t mtu = to->mtu < ours->mtu ? to->mtu : ours->mtu;
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)mtu,
        .dest_qp_num = rail->theirs.qp,
        .rq_psn = rail->theirs.psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.dlid = to->lid,
                    .sl = nic->service,
                    .port_num = nic->port,
                    .is_global = ours->global || to->global,
                    .grh = {.dgid = to->gid,
                            .sgid_index = (uint8_t)rail->gid_index,
                            .hop_limit = 64}},
    };
    struct ibv_qp_attr sends = {
        .qp_state = IBV_QPS_RTS,
        .timeout = RDMA_TIMEOUT,
        .retry_cnt = RDMA_RETRIES,
        .rnr_retry = RNR_FOR_EVER,
        .sq_psn = rail->ours.psn,
        .max_rd_atomic = 1,
    };
    int error = ibv_modify_qp(
        rail->qp, &ready,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

    if (!error)
        error = ibv_modify_qp(rail->qp, &sends,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                  IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}
