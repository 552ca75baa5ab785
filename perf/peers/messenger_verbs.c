// SPDX-License-Identifier: Apache-2.0
/*
 * Messages by plain libibverbs, with a queue pair of its own. A message with a
 * signal is a write with an immediate, one without is a plain write. As few
 * requests as possible ask for a completion, and receive requests are posted
 * half a queue at a time.
 *
 * A module, so that shunt-perf does not depend on libibverbs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "perf/peers/messenger.h"

#define DEPTH 128
#define RECEIVES 256
#define ASK 32 /* one in ASK requests has a completion */

struct place {
    union ibv_gid gid;
    uint64_t to;
    uint32_t key, qp, psn;
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
};

struct raw {
    struct ibv_context *device;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *from, *to;
    const unsigned char *from_at;
    uint8_t port, layer;
    int gid_index;
    uint32_t inlined;
    struct place mine, theirs;
    uint64_t posted, done; /* requests posted, completed */
    uint64_t asked;        /* value of `posted` at the last request that asked
                            * for a completion */
    uint64_t received;     /* immediates received */
    unsigned spins;
    unsigned used; /* receive requests used since receive requests were last
                    * posted */
    char text[256], where[128];
};

static const char *failed(struct raw *raw, const char *what, int error)
{
    snprintf(raw->text, sizeof(raw->text), "%s%s%s", what, error ? ": " : "",
             error ? strerror(error) : "");
    return raw->text;
}

/* --- the device: as the transport rdma chooses it ------------------------- */

static const char *set_or(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* Returns whether SHUNT_RDMA_DEVICE names this device first, or is not set. */
static bool is_asked_for(const char *name)
{
    const char *asked = set_or("SHUNT_RDMA_DEVICE");

    return !asked || (strcspn(asked, ":,") == strlen(name) &&
                      !strncmp(asked, name, strlen(name)));
}

static bool is_ipv4(const union ibv_gid *gid)
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};

    return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static bool find_gid(struct raw *raw, const struct ibv_port_attr *port)
{
    const char *asked = set_or("SHUNT_RDMA_GID_INDEX");
    bool found = false;

    for (int i = 0; i < port->gid_tbl_len; i++) {
        struct ibv_gid_entry entry;

        if (ibv_query_gid_ex(raw->device, raw->port, (uint32_t)i, &entry, 0))
            continue;
        if (asked ? atoi(asked) != i
                  : (port->link_layer == IBV_LINK_LAYER_ETHERNET &&
                     entry.gid_type != IBV_GID_TYPE_ROCE_V2))
            continue;
        if (found && !is_ipv4(&entry.gid))
            continue;
        raw->gid_index = i;
        raw->mine.gid = entry.gid;
        found = true;
        if (asked || is_ipv4(&entry.gid))
            break;
    }
    return found;
}

/* Open a device and choose an active port. Returns false if no port is
 * active. */
static bool use(struct raw *raw, struct ibv_device *which)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;

    raw->device = ibv_open_device(which);
    if (!raw->device)
        return false;
    for (raw->port = 1; !ibv_query_device(raw->device, &device) &&
                        raw->port <= device.phys_port_cnt;
         raw->port++) {
        if (ibv_query_port(raw->device, raw->port, &port) ||
            port.state != IBV_PORT_ACTIVE || !find_gid(raw, &port))
            continue;
        raw->layer = port.link_layer;
        raw->mine.lid = port.lid;
        raw->mine.mtu = (uint8_t)port.active_mtu;
        snprintf(raw->where, sizeof(raw->where), "%s, port %d, GID %d",
                 ibv_get_device_name(which), raw->port, raw->gid_index);
        return true;
    }
    ibv_close_device(raw->device);
    raw->device = NULL;
    return false;
}

static bool find_device(struct raw *raw)
{
    struct ibv_device **list;
    int count = 0;

    (void)ibv_fork_init();
    list = ibv_get_device_list(&count);
    for (int i = 0; list && i < count && !raw->device; i++)
        if (is_asked_for(ibv_get_device_name(list[i])))
            use(raw, list[i]);
    if (list)
        ibv_free_device_list(list);
    return raw->device != NULL;
}

/* --- the queue pair ------------------------------------------------------- */

static int create_qp(struct raw *raw)
{
    static const uint32_t inlined[] = {220, 128, 64, 0};
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = raw->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };

    for (size_t i = 0; !raw->qp && i < sizeof(inlined) / sizeof(*inlined);
         i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = raw->cq,
            .recv_cq = raw->cq,
            .srq = raw->srq,
            .cap = {.max_send_wr = DEPTH,
                    .max_send_sge = 1,
                    .max_inline_data = inlined[i]},
            .qp_type = IBV_QPT_RC,
        };

        raw->qp = ibv_create_qp(raw->pd, &init);
        raw->inlined = inlined[i];
    }
    return raw->qp ? ibv_modify_qp(raw->qp, &attr,
                                   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
                   : errno;
}

static int connect_qp(struct raw *raw)
{
    const uint8_t mtu =
        raw->theirs.mtu < raw->mine.mtu ? raw->theirs.mtu : raw->mine.mtu;
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)mtu,
        .dest_qp_num = raw->theirs.qp,
        .rq_psn = raw->theirs.psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = raw->theirs.lid,
                    .port_num = raw->port,
                    .is_global = raw->layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.dgid = raw->theirs.gid,
                            .sgid_index = (uint8_t)raw->gid_index,
                            .hop_limit = 64}},
    };
    struct ibv_qp_attr sends = {
        .qp_state = IBV_QPS_RTS,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .sq_psn = raw->mine.psn,
        .max_rd_atomic = 1,
    };
    int error = ibv_modify_qp(
        raw->qp, &ready,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

    if (!error)
        error = ibv_modify_qp(raw->qp, &sends,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                  IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}

static int post_receives(struct raw *raw, unsigned count)
{
    struct ibv_recv_wr wrs[RECEIVES] = {{.wr_id = 0}}, *bad;

    for (unsigned i = 0; i + 1 < count; i++)
        wrs[i].next = &wrs[i + 1];
    return count ? ibv_post_srq_recv(raw->srq, wrs, &bad) : 0;
}

static const char *raw_open(const struct perf_messenger_params *p, void **state)
{
    struct raw *raw = calloc(1, sizeof(*raw));
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    int error;

    *state = raw;
    if (!raw)
        return "out of memory";
    raw->spins = p->spins;
    if (!find_device(raw))
        return failed(
            raw, "no RDMA device with an active port (SHUNT_RDMA_DEVICE)", 0);
    raw->pd = ibv_alloc_pd(raw->device);
    raw->cq = ibv_create_cq(raw->device, DEPTH + RECEIVES, NULL, NULL, 0);
    if (raw->pd)
        raw->srq = ibv_create_srq(raw->pd, &srq);
    if (!raw->srq || !raw->cq)
        return failed(raw, "no queues", errno);
    raw->from_at = p->from;
    raw->from = ibv_reg_mr(raw->pd, p->from, p->bytes, 0);
    raw->to = ibv_reg_mr(raw->pd, p->to, p->bytes,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_RELAXED_ORDERING);
    if (!raw->from || !raw->to)
        return failed(raw, "memory cannot be registered (ulimit -l)", errno);
    error = create_qp(raw);
    if (!error)
        error = post_receives(raw, RECEIVES);
    if (error)
        return failed(raw, "no queue pair", error);
    raw->mine.to = (uint64_t)(uintptr_t)p->to;
    raw->mine.key = raw->to->rkey;
    raw->mine.qp = raw->qp->qp_num;
    if (getrandom(&raw->mine.psn, sizeof(raw->mine.psn), 0) < 0)
        return failed(raw, "no random number", errno);
    raw->mine.psn &= 0xffffff;
    p->swap(p->arg, &raw->mine, &raw->theirs, sizeof(raw->mine));
    error = connect_qp(raw);
    if (error)
        return failed(raw, "the queue pair cannot be connected", error);
    /* When this exchange returns, the other rank can receive. */
    p->swap(p->arg, &raw->mine, &raw->theirs, sizeof(raw->mine));
    return NULL;
}

static void raw_close(void *state)
{
    struct raw *raw = state;

    if (!raw)
        return;
    if (raw->qp)
        ibv_destroy_qp(raw->qp);
    if (raw->srq)
        ibv_destroy_srq(raw->srq);
    if (raw->to)
        ibv_dereg_mr(raw->to);
    if (raw->from)
        ibv_dereg_mr(raw->from);
    if (raw->cq)
        ibv_destroy_cq(raw->cq);
    if (raw->pd)
        ibv_dealloc_pd(raw->pd);
    if (raw->device)
        ibv_close_device(raw->device);
    free(raw);
}

/* --- messages ------------------------------------------------------------- */

static const char *poll(struct raw *raw)
{
    struct ibv_wc wc[16];
    const int count = ibv_poll_cq(raw->cq, 16, wc);

    if (count < 0)
        return failed(raw, "no completions", 0);
    for (int i = 0; i < count; i++) {
        if (wc[i].status)
            return failed(raw, ibv_wc_status_str(wc[i].status), 0);
        if (wc[i].wr_id) {
            raw->done = wc[i].wr_id;
        } else {
            raw->received++;
            raw->used++;
        }
    }
    if (raw->used < RECEIVES / 2)
        return NULL;
    const int error = post_receives(raw, raw->used);

    raw->used = 0;
    return error ? failed(raw, "no receive request", error) : NULL;
}

static const char *raw_send(void *state, size_t offset, size_t bytes,
                            bool signal)
{
    struct raw *raw = state;
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)(raw->from_at + offset),
        .length = (uint32_t)bytes,
        .lkey = raw->from->lkey,
    };
    struct ibv_send_wr wr = {
        .wr_id = raw->posted + 1,
        .sg_list = &sge,
        .num_sge = bytes ? 1 : 0,
        .opcode = signal ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
        .imm_data = htonl((uint32_t)raw->posted),
        .wr.rdma = {.remote_addr = raw->theirs.to + offset,
                    .rkey = raw->theirs.key},
    };
    struct ibv_send_wr *bad;
    struct perf_wait wait = {.spins = raw->spins};

    while (raw->posted - raw->done >= DEPTH) {
        const char *wrong = poll(raw);

        if (wrong)
            return wrong;
        if (!perf_wait_more(&wait))
            return failed(raw, "a request does not end", 0);
    }
    if (raw->posted + 1 - raw->asked >= ASK) {
        wr.send_flags |= IBV_SEND_SIGNALED;
        raw->asked = raw->posted + 1;
    }
    if (bytes && bytes <= raw->inlined)
        wr.send_flags |= IBV_SEND_INLINE;
    const int error = ibv_post_send(raw->qp, &wr, &bad);

    if (error)
        return failed(raw, "a request cannot be posted", error);
    raw->posted++;
    return NULL;
}

static const char *raw_await(void *state, uint64_t signals)
{
    struct raw *raw = state;
    struct perf_wait wait = {.spins = raw->spins};
    const char *wrong = NULL;

    while (!wrong && raw->received < signals) {
        wrong = poll(raw);
        if (!perf_wait_more(&wait))
            return failed(raw, "an immediate does not come", 0);
    }
    return wrong;
}

static double raw_requests(void *state)
{
    return (double)((struct raw *)state)->posted;
}

static const char *raw_route(void *state)
{
    return ((struct raw *)state)->where;
}

extern const struct perf_messenger perf_verbs_module;

__attribute__((visibility("default")))
const struct perf_messenger perf_verbs_module = {
    .abi = PERF_MESSENGER_ABI,
    .name = "libibverbs",
    .open = raw_open,
    .close = raw_close,
    .route = raw_route,
    .send = raw_send,
    .await = raw_await,
    .requests = raw_requests,
};
