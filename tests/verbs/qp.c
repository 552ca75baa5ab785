// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs: their states, and posting to them.
 *
 * In the error state all posted requests complete with a flush error, and
 * nothing is received. A reset drops everything, including completions that
 * have not been polled.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/verbs/nic.h"
#include "tests/verbs/pages.h"
#include "transports/common/descriptor.h"

#define MAX_SENDS 16384

/* --- sockets ----------------------------------------------------------------- */

/* Make the socket name of a queue pair. Names differ among all queue pairs of
 * this user's NICs, which are all on one network. */
static socklen_t name_of(uint32_t number, struct sockaddr_un *name)
{
    int n;

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
                 "shunt-verbs-%u-%06x", (unsigned)getuid(), number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Bind the socket to a number that no other queue pair has. */
static bool bind_any(struct nic_qp *qp)
{
    for (int i = 0; i < 100; i++) {
        struct sockaddr_un name;
        uint32_t number;
        socklen_t len;

        if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
            return false;
        number &= 0xffffff;
        if (number < 2)
            continue;
        len = name_of(number, &name);
        if (!bind(qp->fd, (struct sockaddr *)(void *)&name, len)) {
            qp->ibv.qp_num = number;
            return true;
        }
    }
    return false;
}

void nic_watch(struct nic *nic, struct nic_qp *qp, bool room)
{
    struct epoll_event event = {
        .events = room ? EPOLLIN | EPOLLOUT : EPOLLIN,
        .data.u32 = qp->ibv.qp_num,
    };

    if (qp->watches_room == room)
        return;
    qp->watches_room = room;
    epoll_ctl(nic->epoll, EPOLL_CTL_MOD, qp->fd, &event);
}

/* --- making and ending ------------------------------------------------------- */

static void link_qp(struct nic *nic, struct nic_qp *qp)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = qp->ibv.qp_num};

    epoll_ctl(nic->epoll, EPOLL_CTL_ADD, qp->fd, &event);
    qp->next = nic->qps;
    nic->qps = qp;
    ((struct nic_cq *)(void *)qp->ibv.send_cq)->qps++;
    ((struct nic_cq *)(void *)qp->ibv.recv_cq)->qps++;
    ((struct nic_srq *)(void *)qp->ibv.srq)->qps++;
    ((struct nic_pd *)(void *)qp->ibv.pd)->users++;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct nic *nic = nic_of(pd->context);
    struct nic_qp *qp;

    if (attr->qp_type != IBV_QPT_RC || !attr->srq || !attr->send_cq ||
        !attr->recv_cq || attr->cap.max_send_sge > NIC_SGES ||
        attr->cap.max_inline_data > NIC_INLINE ||
        attr->cap.max_send_wr > MAX_SENDS) {
        errno = EINVAL;
        return NULL;
    }
    if (harm_call_fails()) {
        errno = ENOMEM;
        return NULL;
    }
    qp = calloc(1, sizeof(*qp));
    if (!qp)
        return NULL;
    /* Move the descriptor above 2 (stdin to stderr), because a queue pair of a
     * real NIC has no descriptor. */
    qp->fd = shunti_fd_lift(
        socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (qp->fd < 0 || !bind_any(qp)) {
        if (qp->fd >= 0)
            close(qp->fd);
        free(qp);
        return NULL;
    }
    qp->ibv.context = pd->context;
    qp->ibv.qp_context = attr->qp_context;
    qp->ibv.pd = pd;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->ibv.srq = attr->srq;
    qp->ibv.qp_type = attr->qp_type;
    qp->ibv.state = IBV_QPS_RESET;
    qp->max_sends = attr->cap.max_send_wr;
    qp->max_inline = attr->cap.max_inline_data;
    qp->max_sges = attr->cap.max_send_sge;
    qp->all_signaled = attr->sq_sig_all;
    qp->last = &qp->first;
    qp->last_arrival = &qp->arrivals;
    pthread_mutex_lock(&nic->lock);
    link_qp(nic, qp);
    pthread_mutex_unlock(&nic->lock);
    return &qp->ibv;
}

static void drop_sends(struct nic_qp *qp)
{
    struct nic_send *send;
    struct nic_answer *answer;

    while ((send = qp->first)) {
        qp->first = send->next;
        free(send);
    }
    qp->last = &qp->first;
    qp->unsent = NULL;
    while ((answer = qp->answers)) {
        qp->answers = answer->next;
        free(answer);
    }
}

static void forget_all(struct nic_qp *qp)
{
    __atomic_store_n(&qp->current, 0, __ATOMIC_SEQ_CST);
    drop_sends(qp);
    nic_arrivals_drop(qp);
    nic_cq_forget(qp->ibv.send_cq, qp);
    nic_cq_forget(qp->ibv.recv_cq, qp);
    qp->used = 0;
    qp->next_send = qp->next_arrival = 0;
    qp->unreachable_at = 0;
}

/* Wait as the kernel does: connecting waits until an address is resolved, and
 * Soft-RoCE destroys a queue pair when the network has released its last
 * packet. */
static void wait_for_link(struct nic *nic)
{
    const int64_t until = nic_now() + harm()->stuck;
    bool down = true;

    while (harm()->stuck && down && nic_now() < until) {
        pthread_mutex_lock(&nic->lock);
        down = nic->down;
        pthread_mutex_unlock(&nic->lock);
        if (down)
            usleep(1000);
    }
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct nic_qp *qp = (struct nic_qp *)(void *)ibv, **p;
    struct nic *nic = nic_of(ibv->context);

    wait_for_link(nic);
    pthread_mutex_lock(&nic->lock);
    forget_all(qp);
    for (p = &nic->qps; *p != qp; p = &(*p)->next)
        ;
    *p = qp->next;
    ((struct nic_cq *)(void *)ibv->send_cq)->qps--;
    ((struct nic_cq *)(void *)ibv->recv_cq)->qps--;
    ((struct nic_srq *)(void *)ibv->srq)->qps--;
    ((struct nic_pd *)(void *)ibv->pd)->users--;
    close(qp->fd);
    pthread_mutex_unlock(&nic->lock);
    free(qp);
    return 0;
}

/* --- states ------------------------------------------------------------------ */

void nic_qp_fail(struct nic *nic, struct nic_qp *qp)
{
    if (qp->ibv.state == IBV_QPS_ERR)
        return;
    if (harm()->ghosts && qp->ibv.state == IBV_QPS_RTS)
        nic_ghosts_make(nic, qp);
    qp->ibv.state = IBV_QPS_ERR;
    __atomic_store_n(&qp->current, 0, __ATOMIC_SEQ_CST);
    nic_sends_end(nic, qp);
    nic_arrivals_end(nic, qp);
    nic_event(nic, IBV_EVENT_QP_LAST_WQE_REACHED, &qp->ibv, 0);
}

/* Returns the attributes that a reliable connection needs for each change of
 * state. */
static int required(enum ibv_qp_state from, enum ibv_qp_state to)
{
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
        return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    return to == IBV_QPS_RESET || to == IBV_QPS_ERR ? 0 : -1;
}

/* Report a connection to a LID of another subnet, which cannot work. */
static void check_subnet(const struct nic *nic, const struct ibv_ah_attr *ah)
{
    if (harm()->infiniband && ah->grh.dgid.raw[0] &&
        ah->grh.dgid.raw[7] != nic_subnet(nic))
        harm_report("a queue pair of subnet %d is connected to a LID of subnet "
                    "%d",
                    nic_subnet(nic), ah->grh.dgid.raw[7]);
}

static bool right_address(const struct ibv_ah_attr *ah)
{
    union ibv_gid gid;

    if (harm()->infiniband && (ah->dlid == 0 || ah->dlid >= 0xc000))
        return false;
    if (harm()->infiniband && !ah->is_global)
        return ah->port_num == 1;
    return ah->is_global && ah->port_num == 1 &&
           !ibv_query_gid(NULL, 1, ah->grh.sgid_index, &gid);
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct nic_qp *qp = (struct nic_qp *)(void *)ibv;
    struct nic *nic = nic_of(ibv->context);
    int need, error = 0;

    if (!(mask & IBV_QP_STATE))
        return EINVAL;
    if (attr->qp_state != IBV_QPS_ERR && harm_call_fails())
        return ENOMEM;
    if (attr->qp_state == IBV_QPS_RTR)
        wait_for_link(nic);
    pthread_mutex_lock(&nic->lock);
    need = required(ibv->state, attr->qp_state);
    if (nic->fatal) {
        error = EIO;
    } else if (need < 0 || (mask & ~IBV_QP_STATE) != need) {
        error = EINVAL;
    } else if (attr->qp_state == IBV_QPS_ERR) {
        nic_qp_fail(nic, qp);
    } else if (attr->qp_state == IBV_QPS_RESET) {
        forget_all(qp);
    } else if (attr->qp_state == IBV_QPS_RTR) {
        struct sockaddr_un name;
        socklen_t len = name_of(attr->dest_qp_num, &name);

        if (!right_address(&attr->ah_attr))
            error = EINVAL;
        check_subnet(nic, &attr->ah_attr);
        qp->peer = attr->dest_qp_num;
        qp->peer_base = attr->rq_psn;
        qp->to = attr->ah_attr;
        qp->gids = nic->gids;
        /* If the peer does not exist, that is noticed later, as on a real
         * NIC. */
        (void)connect(qp->fd, (struct sockaddr *)(void *)&name, len);
    } else if (attr->qp_state == IBV_QPS_RTS) {
        qp->base = attr->sq_psn;
        qp->current = qp->base + NIC_CURRENT;
        qp->timeout = attr->timeout;
        qp->retries = attr->retry_cnt;
        qp->rnr_retry = attr->rnr_retry;
    }
    if (!error)
        ibv->state = attr->qp_state;
    pthread_mutex_unlock(&nic->lock);
    return error;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    const struct nic_qp *qp = (struct nic_qp *)(void *)ibv;

    (void)mask;
    memset(attr, 0, sizeof(*attr));
    memset(init, 0, sizeof(*init));
    attr->qp_state = attr->cur_qp_state = ibv->state;
    attr->cap.max_send_wr = init->cap.max_send_wr = qp->max_sends;
    attr->cap.max_inline_data = init->cap.max_inline_data = qp->max_inline;
    return 0;
}

/* --- posting ----------------------------------------------------------------- */

/* Fill in the packet of a request. Returns false if the request is not
 * valid. */
static bool describe(struct nic *nic, const struct nic_qp *qp,
                     const struct ibv_send_wr *wr, struct nic_send *send)
{
    struct nic_packet *packet = &send->packet;

    if ((wr->opcode != IBV_WR_RDMA_WRITE &&
         wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) ||
        wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->max_sges)
        return false;
    packet->kind = NIC_REQUEST;
    packet->from = qp->ibv.qp_num;
    packet->to = qp->peer;
    packet->base = qp->base;
    packet->pid = getpid();
    memcpy(packet->to_gid, qp->to.grh.dgid.raw, sizeof(packet->to_gid));
    packet->to_lid = qp->to.dlid;
    packet->global = qp->to.is_global;
    packet->service = qp->to.sl;
    packet->subnet = nic_subnet(nic);
    packet->current = (uint64_t)(uintptr_t)&qp->current;
    packet->opcode = wr->opcode;
    packet->imm = wr->imm_data;
    packet->rkey = wr->wr.rdma.rkey;
    packet->address = wr->wr.rdma.remote_addr;
    packet->rnr_retry = qp->rnr_retry;
    packet->inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];

        if (packet->inlined) {
            if (packet->bytes + sge->length > qp->max_inline)
                return false;
            memcpy(packet->data + packet->bytes,
                   (const void *)(uintptr_t)sge->addr, sge->length);
        } else if (sge->length) {
            const struct nic_mr *mr =
                nic_mr_find(nic, sge->lkey, sge->addr, sge->length, 0);

            if (!mr) {
                harm_report("a request reads memory that is not registered");
                send->answered = true;
                send->status = IBV_WC_LOC_PROT_ERR;
            } else if (mr->pages &&
                       !nic_pages_are(mr->pages, sge->addr, sge->length)) {
                harm_report("a request reads pages that are not at its address "
                            "any more");
            }
        }
        packet->sge[i].address = sge->addr;
        packet->sge[i].bytes = sge->length;
        packet->bytes += sge->length;
    }
    packet->sges = (uint32_t)wr->num_sge;
    return true;
}

/* Apply SHUNT_TEST_VERBS to this request. Returns 0 or an errno. */
static int harm_post(struct nic *nic, struct nic_qp *qp, bool *error)
{
    const struct harm *h = harm();
    unsigned number;

    if (h->full && nic_random(nic, h->full) == 0)
        return ENOMEM;
    if (!h->broken && !h->error && !h->event_at)
        return 0;
    number = harm_next_request();
    *error = number == h->error;
    if (number == h->event_at) {
        const bool of_qp = h->event == IBV_EVENT_QP_FATAL;

        nic_event(nic, h->event, of_qp ? &qp->ibv : NULL, 1);
        if (of_qp)
            nic_qp_fail(nic, qp);
    }
    return number == h->broken ? EIO : 0;
}

static int post_one(struct nic *nic, struct nic_qp *qp,
                    const struct ibv_send_wr *wr)
{
    struct nic_send *send;
    bool error = false;
    int harmed = harm_post(nic, qp, &error);

    if (harmed || nic->fatal)
        return harmed ? harmed : EIO;
    if (qp->ibv.state != IBV_QPS_RTS && qp->ibv.state != IBV_QPS_ERR)
        return EINVAL;
    if (qp->used == qp->max_sends)
        return ENOMEM;
    send = calloc(1, sizeof(*send));
    if (!send)
        return ENOMEM;
    if (!describe(nic, qp, wr, send)) {
        free(send);
        return EINVAL;
    }
    send->wr_id = wr->wr_id;
    send->signaled = qp->all_signaled || (wr->send_flags & IBV_SEND_SIGNALED);
    send->harmed = error;
    send->leaves = harm()->slow ? nic_now() + harm()->slow : 0;
    send->packet.sequence = qp->next_send++;
    if (!qp->first) {
        qp->answered_at = nic_now();
        qp->wait = NIC_WAIT_US;
    }
    qp->used++;
    *qp->last = send;
    qp->last = &send->next;
    if (!qp->unsent)
        qp->unsent = send;
    if (send->status) /* the request cannot be sent, so the queue pair fails */
        nic_qp_fail(nic, qp);
    else if (qp->ibv.state == IBV_QPS_ERR)
        nic_sends_end(nic, qp);
    return 0;
}

int nic_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr,
                  struct ibv_send_wr **bad)
{
    struct nic_qp *qp = (struct nic_qp *)(void *)ibv;
    struct nic *nic = nic_of(ibv->context);
    int error = 0;
    bool was_idle;

    pthread_mutex_lock(&nic->lock);
    was_idle = !qp->first;
    for (; wr && !error; wr = wr->next) {
        error = post_one(nic, qp, wr);
        if (error)
            *bad = wr;
    }
    nic_send_some(nic, qp);
    pthread_mutex_unlock(&nic->lock);
    if (was_idle)
        nic_kick(nic); /* the NIC's thread must compute the time-out of the
                        * request */
    return error;
}
