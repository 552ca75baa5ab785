// SPDX-License-Identifier: Apache-2.0
/*
 * Asynchronous events of devices. When a port is down, its rails break at once,
 * except a rail that is the last one of its peer. The last rail gets some time
 * to come up again, in which the NIC sends lost packets again. After that the
 * peer is lost.
 */
#include <string.h>

#include "transports/rdma/rdma.h"

#define DOWN_MS 500

/* --- rails of a NIC ---------------------------------------------------------- */

/* Returns the next rail of this NIC, or NULL. Begin with *p = *i = 0. */
static struct rdma_rail *next_rail(const struct rdma_nic *nic, int *p, int *i)
{
    const struct shunt_transport_ctx *ctx = nic->ctx;

    for (; *p < ctx->nranks; ++*p, *i = 0)
        for (; ctx->eps[*p] && *i < ctx->eps[*p]->rails; ++*i)
            if (ctx->eps[*p]->rail[*i].nic == nic)
                return &ctx->eps[*p]->rail[(*i)++];
    return NULL;
}

static struct rdma_rail *find_qp(const struct rdma_nic *nic,
                                 const struct ibv_qp *qp)
{
    struct rdma_rail *rail;
    int p = 0, i = 0;

    while ((rail = next_rail(nic, &p, &i)))
        if (rail->qp == qp && rail->task != RDMA_DESTROY)
            return rail;
    return NULL;
}

static void break_rails(struct rdma_nic *nic, const char *why, bool last_too)
{
    struct rdma_rail *rail;
    int p = 0, i = 0;

    while ((rail = next_rail(nic, &p, &i)))
        if (rail->stage >= RDMA_HELLO && (last_too || !rdma_rail_is_last(rail)))
            rdma_rail_break(rail, "%s", why);
}

static void try_now(struct rdma_nic *nic)
{
    struct rdma_rail *rail;
    int p = 0, i = 0;

    while ((rail = next_rail(nic, &p, &i)))
        rail->try_at = 0;
}

/* --- events ------------------------------------------------------------------ */

static void fail_device(struct rdma_nic *nic, const char *what)
{
    if (nic->ctx->host->log && !nic->dead)
        nic->ctx->host->log(SHUNT_TRANSPORT_WARN, "rdma",
                            "%s is not used any more: %s", nic->name, what);
    nic->dead = true;
    break_rails(nic, what, true);
}

static void on_port(struct rdma_nic *nic, enum ibv_event_type type,
                    const char *what)
{
    if (nic->ctx->host->log)
        nic->ctx->host->log(SHUNT_TRANSPORT_INFO, "rdma", "%s: %s", nic->name,
                            what);
    if (type == IBV_EVENT_PORT_ERR) {
        nic->down = true;
        nic->down_at = rdma_now();
        break_rails(nic, "its port is down", false);
    } else {
        nic->down = false;
        try_now(nic);
    }
}

/* Break connections whose address no longer exists. */
static void on_new_addresses(struct rdma_nic *nic)
{
    struct ibv_port_attr port;
    const bool known = !ibv_query_port(nic->device, nic->port, &port);
    struct rdma_rail *rail;
    union ibv_gid gid;
    int p = 0, i = 0;

    try_now(nic);
    while ((rail = next_rail(nic, &p, &i)))
        if (rail->stage >= RDMA_HELLO &&
            (ibv_query_gid(nic->device, nic->port, rail->gid_index, &gid) ||
             memcmp(&gid, &rail->ours.place.gid, sizeof(gid)) != 0 ||
             (known && port.lid != rail->ours.place.lid)))
            rdma_rail_break(rail, "its address has changed");
}

static void on_event(struct rdma_nic *nic, const struct ibv_async_event *event)
{
    const char *what = ibv_event_type_str(event->event_type);
    struct rdma_rail *rail = NULL;

    switch (event->event_type) {
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        rail = find_qp(nic, event->element.qp);
        if (rail)
            rail->drained = true;
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        rail = find_qp(nic, event->element.qp);
        if (rail)
            rdma_rail_break(rail, "the device says: %s", what);
        break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
        fail_device(nic, what);
        break;
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
        if (event->element.port_num == nic->port)
            on_port(nic, event->event_type, what);
        break;
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_SM_CHANGE: /* another subnet manager, which may assign other
                                 addresses */
    case IBV_EVENT_CLIENT_REREGISTER:
        if (event->element.port_num == nic->port)
            on_new_addresses(nic);
        break;
    default:
        if (nic->ctx->host->log)
            nic->ctx->host->log(SHUNT_TRANSPORT_INFO, "rdma", "%s: %s",
                                nic->name, what);
    }
}

void rdma_read_events(struct shunt_transport_ctx *ctx, int64_t now)
{
    struct ibv_async_event event;

    for (int n = 0; n < ctx->nic_count; n++) {
        struct rdma_nic *nic = &ctx->nics[n];

        while (!ibv_get_async_event(nic->device, &event)) {
            on_event(nic, &event);
            ibv_ack_async_event(&event);
        }
        if (nic->down && now > nic->down_at + DOWN_MS)
            break_rails(nic, "its port is down", true);
    }
}
