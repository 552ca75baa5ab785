// SPDX-License-Identifier: Apache-2.0
/*
 * Which device, port and GID; and what all peers share of it.
 *
 * The completion queue has room for all requests and receive requests of all
 * peers, so it cannot overrun.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transports/rdma/rdma.h"

/* 4.096 us times 2 to this power, and tries after the first: half a second until
 * a NIC gives up a request. */
#define TIMEOUT 14
#define RETRIES 6
#define RNR_FOR_EVER 7
#define RNR_TIMER 12 /* 0.64 ms */

/* --- choosing ---------------------------------------------------------------- */

/* A knob, if it is set to something. */
static const char *knob(const struct shunt_transport_host *host,
                        const char *name)
{
    const char *value = host->env ? host->env(name) : NULL;

    return value && value[0] ? value : NULL;
}

static bool is_ipv4(const union ibv_gid *gid)
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};

    return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* How well a GID serves; 0: not at all. */
static int rank_of_gid(const struct ibv_gid_entry *entry, uint8_t layer)
{
    if (layer != IBV_LINK_LAYER_ETHERNET)
        return entry->gid_index == 0;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
        return 0;
    return is_ipv4(&entry->gid) ? 3 : is_link_local(&entry->gid) ? 1 : 2;
}

/* The best GID of the port, or that of SHUNT_RDMA_GID_INDEX. False: none. */
static bool find_gid(const struct shunt_transport_host *host,
                     struct ibv_context *device, uint8_t port,
                     const struct ibv_port_attr *attr, int *index,
                     union ibv_gid *gid)
{
    const char *asked = knob(host, "SHUNT_RDMA_GID_INDEX");
    int best = 0;

    for (int i = 0; i < attr->gid_tbl_len; i++) {
        struct ibv_gid_entry entry;
        int rank;

        if (ibv_query_gid_ex(device, port, (uint32_t)i, &entry, 0))
            continue;
        rank = rank_of_gid(&entry, attr->link_layer);
        if (asked)
            rank = atoi(asked) == i;
        if (rank <= best)
            continue;
        best = rank;
        *index = i;
        *gid = entry.gid;
    }
    return best > 0;
}

/* A port that can be used: fills in what ctx says of it. */
static bool use_port(const struct shunt_transport_host *host,
                     struct shunt_transport_ctx *ctx,
                     struct ibv_context *device, uint8_t port, char *why,
                     size_t why_len)
{
    const char *name = device->device->name;
    struct ibv_port_attr attr;

    if (ibv_query_port(device, port, &attr))
        return false;
    if (attr.state != IBV_PORT_ACTIVE) {
        snprintf(why, why_len, "port %d of %s is %s", port, name,
                 ibv_port_state_str(attr.state));
        return false;
    }
    if (!find_gid(host, device, port, &attr, &ctx->gid_index,
                  &ctx->place.gid)) {
        snprintf(why, why_len,
                 "port %d of %s has no GID of RoCE v2: does its network "
                 "interface have an address?",
                 port, name);
        return false;
    }
    ctx->port = port;
    ctx->place.lid = attr.lid;
    ctx->place.mtu = (uint8_t)attr.active_mtu;
    ctx->place.layer = attr.link_layer;
    ctx->fragment = RDMA_FRAGMENT;
    if (attr.max_msg_sz && attr.max_msg_sz < ctx->fragment)
        ctx->fragment = attr.max_msg_sz;
    snprintf(why, why_len, "%s, port %d, GID %d", name, port, ctx->gid_index);
    return true;
}

/* SHUNT_RDMA_DEVICE: "mlx5_0" or "mlx5_0:1". The port: 0: any. */
static bool is_asked_for(const char *asked, const char *name, int *port)
{
    size_t len = strlen(name);

    *port = 0;
    if (!asked)
        return true;
    if (strncmp(asked, name, len) || (asked[len] && asked[len] != ':'))
        return false;
    if (asked[len])
        *port = atoi(asked + len + 1);
    return true;
}

static bool use_device(const struct shunt_transport_host *host,
                       struct shunt_transport_ctx *ctx,
                       struct ibv_device *which, int port, char *why,
                       size_t why_len)
{
    struct ibv_context *device = ibv_open_device(which);
    struct ibv_device_attr attr;

    if (!device) {
        snprintf(why, why_len, "%s cannot be opened: %s",
                 ibv_get_device_name(which), strerror(errno));
        return false;
    }
    if (!ibv_query_device(device, &attr)) {
        for (int p = 1; p <= attr.phys_port_cnt; p++) {
            if (port && p != port)
                continue;
            if (use_port(host, ctx, device, (uint8_t)p, why, why_len)) {
                ctx->device = device;
                return true;
            }
        }
    }
    ibv_close_device(device);
    return false;
}

/* --- what all peers share ---------------------------------------------------- */

static enum shunt_status refuse(char *why, size_t why_len, const char *what,
                                int need, int most)
{
    snprintf(why, why_len, "the device has room for %d %s, and %d are needed",
             most, what, need);
    return SHUNT_ERR_UNSUPPORTED;
}

static enum shunt_status post_all_receives(struct shunt_transport_ctx *ctx)
{
    for (int i = 0; i < ctx->peers * RDMA_CREDITS; i++) {
        struct ibv_recv_wr wr = {.wr_id = 0}, *bad;

        if (ibv_post_srq_recv(ctx->srq, &wr, &bad))
            return SHUNT_ERR_SYSTEM;
    }
    return SHUNT_OK;
}

static enum shunt_status create_queues(struct shunt_transport_ctx *ctx,
                                       char *why, size_t why_len)
{
    const int receives = ctx->peers * RDMA_CREDITS;
    const int completions = receives + ctx->peers * RDMA_CREDITS;
    struct ibv_srq_init_attr srq = {
        .attr = {.max_wr = (uint32_t)receives, .max_sge = 1}};
    struct ibv_device_attr attr;

    if (ibv_query_device(ctx->device, &attr))
        return SHUNT_ERR_SYSTEM;
    if (completions > attr.max_cqe)
        return refuse(why, why_len, "completions", completions, attr.max_cqe);
    if (receives > attr.max_srq_wr)
        return refuse(why, why_len, "receive requests", receives,
                      attr.max_srq_wr);
    ctx->pd = ibv_alloc_pd(ctx->device);
    ctx->channel = ibv_create_comp_channel(ctx->device);
    if (!ctx->pd || !ctx->channel)
        return SHUNT_ERR_SYSTEM;
    ctx->cq = ibv_create_cq(ctx->device, completions, NULL, ctx->channel, 0);
    ctx->srq = ibv_create_srq(ctx->pd, &srq);
    if (!ctx->cq || !ctx->srq || fcntl(ctx->channel->fd, F_SETFL, O_NONBLOCK) ||
        fcntl(ctx->device->async_fd, F_SETFL, O_NONBLOCK))
        return SHUNT_ERR_SYSTEM;
    return post_all_receives(ctx);
}

enum shunt_status rdma_device_find(const struct shunt_transport_host *host,
                                   struct shunt_transport_ctx *ctx, char *why,
                                   size_t why_len)
{
    const char *asked = knob(host, "SHUNT_RDMA_DEVICE");
    struct shunt_transport_ctx look = {.host = host};
    struct shunt_transport_ctx *found = ctx ? ctx : &look;
    enum shunt_status status = SHUNT_OK;
    struct ibv_device **list;
    int count = 0, port;

    snprintf(why, why_len, "%s",
             asked ? "there is no device of this name (SHUNT_RDMA_DEVICE)"
                   : "there is no RDMA device");
    /* Where the kernel does not copy pages of NICs at a fork, the library keeps
     * them from the child. Too late (EINVAL), if others use the library. */
    (void)ibv_fork_init();
    list = ibv_get_device_list(&count);
    for (int i = 0; list && i < count && !found->device; i++)
        if (is_asked_for(asked, ibv_get_device_name(list[i]), &port))
            use_device(host, found, list[i], port, why, why_len);
    if (list)
        ibv_free_device_list(list);
    if (!found->device)
        return SHUNT_ERR_UNSUPPORTED;
    if (!ctx) {
        ibv_close_device(look.device);
        return SHUNT_OK;
    }
    errno = 0;
    status = create_queues(ctx, why, why_len);
    if (status == SHUNT_ERR_SYSTEM)
        snprintf(why, why_len,
                 "%s: its queues for %d peers cannot be made: %s%s",
                 ctx->device->device->name, ctx->peers, strerror(errno),
                 errno == ENOMEM ? "; raise `ulimit -l`" : "");
    return status;
}

void rdma_device_close(struct shunt_transport_ctx *ctx)
{
    if (ctx->srq)
        ibv_destroy_srq(ctx->srq);
    if (ctx->cq)
        ibv_destroy_cq(ctx->cq);
    if (ctx->channel)
        ibv_destroy_comp_channel(ctx->channel);
    if (ctx->pd)
        ibv_dealloc_pd(ctx->pd);
    if (ctx->device)
        ibv_close_device(ctx->device);
}

/* --- queue pairs ------------------------------------------------------------- */

static bool initialise(struct shunt_transport_ctx *ctx, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = ctx->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };

    errno = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              IBV_QP_ACCESS_FLAGS);
    return !errno;
}

struct ibv_qp *rdma_qp_create(struct shunt_transport_ctx *ctx)
{
    static const uint32_t inlined[] = {128, 64, 0};
    struct ibv_qp *qp = NULL;

    for (size_t i = 0; !qp && i < sizeof(inlined) / sizeof(inlined[0]); i++) {
        struct ibv_qp_init_attr attr = {
            .send_cq = ctx->cq,
            .recv_cq = ctx->cq,
            .srq = ctx->srq,
            .cap = {.max_send_wr = RDMA_CREDITS,
                    .max_send_sge = 1,
                    .max_inline_data = inlined[i]},
            .qp_type = IBV_QPT_RC,
        };

        qp = ibv_create_qp(ctx->pd, &attr);
        ctx->inlined = inlined[i];
    }
    if (qp && !initialise(ctx, qp)) {
        const int error = errno;

        ibv_destroy_qp(qp);
        errno = error;
        return NULL;
    }
    return qp;
}

int rdma_qp_connect(struct shunt_transport_ep *ep)
{
    const struct shunt_transport_ctx *ctx = ep->ctx;
    const uint8_t mtu =
        ep->place.mtu < ctx->place.mtu ? ep->place.mtu : ctx->place.mtu;
    const bool global = ctx->place.layer == IBV_LINK_LAYER_ETHERNET;
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)mtu,
        .dest_qp_num = ep->theirs.qp,
        .rq_psn = ep->theirs.psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.dlid = ep->place.lid,
                    .port_num = ctx->port,
                    .is_global = global,
                    .grh = {.dgid = ep->place.gid,
                            .sgid_index = (uint8_t)ctx->gid_index,
                            .hop_limit = 64}},
    };
    struct ibv_qp_attr sends = {
        .qp_state = IBV_QPS_RTS,
        .timeout = TIMEOUT,
        .retry_cnt = RETRIES,
        .rnr_retry = RNR_FOR_EVER,
        .sq_psn = ep->ours.psn,
        .max_rd_atomic = 1,
    };
    int error = ibv_modify_qp(
        ep->qp, &ready,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

    if (!error)
        error = ibv_modify_qp(ep->qp, &sends,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                  IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}
