// SPDX-License-Identifier: Apache-2.0
/* Completion queues, their channels, and shared receive queues. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/verbs/nic.h"

/* --- completion channels ----------------------------------------------------- */

/* A channel is a pipe through which pointers to queues are sent. */
struct nic_channel {
    struct ibv_comp_channel ibv; /* must be the first member */
    int write;
};

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct nic_channel *channel = calloc(1, sizeof(*channel));
    int fds[2];

    if (!channel || pipe2(fds, O_CLOEXEC)) {
        free(channel);
        return NULL;
    }
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    channel->ibv.context = context;
    channel->ibv.fd = fds[0];
    channel->write = fds[1];
    return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
    struct nic_channel *channel = (struct nic_channel *)(void *)ibv;

    if (ibv->refcnt) {
        harm_report("a completion channel is destroyed before its queues");
        return EBUSY;
    }
    close(channel->ibv.fd);
    close(channel->write);
    free(channel);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                     void **cq_context)
{
    struct ibv_cq *which;
    ssize_t n;

    do
        n = read(channel->fd, &which, sizeof(which));
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(which))
        return -1;
    *cq = which;
    *cq_context = which->cq_context;
    pthread_mutex_lock(&nic_of(channel->context)->lock);
    which->comp_events_completed--; /* minus the number of unacknowledged
                                     * events */
    pthread_mutex_unlock(&nic_of(channel->context)->lock);
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int events)
{
    pthread_mutex_lock(&nic_of(cq->context)->lock);
    cq->comp_events_completed += events;
    pthread_mutex_unlock(&nic_of(cq->context)->lock);
}

static void tell_channel(struct nic_cq *cq)
{
    struct nic_channel *channel = (struct nic_channel *)(void *)cq->ibv.channel;
    struct ibv_cq *which = &cq->ibv;

    if (!cq->armed || !channel)
        return;
    cq->armed = false;
    if (write(channel->write, &which, sizeof(which)) < 0)
        harm_report("a completion channel is full");
}

/* --- completion queues ------------------------------------------------------- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
                             void *cq_context, struct ibv_comp_channel *channel,
                             int vector)
{
    struct nic_cq *cq = calloc(1, sizeof(*cq));

    (void)vector;
    if (!cq || cqe <= 0) {
        free(cq);
        errno = EINVAL;
        return NULL;
    }
    cq->capacity = (size_t)cqe;
    cq->ring = calloc(cq->capacity, sizeof(*cq->ring));
    if (!cq->ring) {
        free(cq);
        return NULL;
    }
    cq->ibv.context = context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = cqe;
    if (channel)
        channel->refcnt++;
    return &cq->ibv;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
    struct nic_cq *cq = (struct nic_cq *)(void *)ibv;

    if (cq->qps) {
        harm_report("a completion queue is destroyed before its queue pairs");
        return EBUSY;
    }
    if (ibv->comp_events_completed) /* the real libibverbs would wait for
                                     * ever */
        harm_report("completion events were not acknowledged");
    if (ibv->channel)
        ibv->channel->refcnt--;
    free(cq->ring);
    free(cq);
    return 0;
}

void nic_complete(struct nic *nic, struct ibv_cq *ibv, const struct ibv_wc *wc,
                  struct nic_qp *of, bool frees_place)
{
    struct nic_cq *cq = (struct nic_cq *)(void *)ibv;

    if (cq->count == cq->capacity) {
        harm_report("a completion queue of %zu entries overran", cq->capacity);
        nic_event(nic, IBV_EVENT_CQ_ERR, ibv, 0);
        return;
    }
    cq->ring[(cq->head + cq->count++) % cq->capacity] =
        (struct nic_completion){*wc, frees_place ? of : NULL, of};
    tell_channel(cq);
}

void nic_cq_forget(struct ibv_cq *ibv, const struct nic_qp *qp)
{
    struct nic_cq *cq = (struct nic_cq *)(void *)ibv;
    size_t kept = 0;

    for (size_t i = 0; i < cq->count; i++) {
        struct nic_completion c = cq->ring[(cq->head + i) % cq->capacity];

        if (c.of != qp)
            cq->ring[(cq->head + kept++) % cq->capacity] = c;
    }
    cq->count = kept;
}

int nic_poll_cq(struct ibv_cq *ibv, int room, struct ibv_wc *wc)
{
    struct nic_cq *cq = (struct nic_cq *)(void *)ibv;
    struct nic *nic = nic_of(ibv->context);
    int n = 0;

    pthread_mutex_lock(&nic->lock);
    /* Return at least one completion: if a poll after arming returns none, the
     * queue must really be empty. */
    if (harm()->partial && room > 1)
        room =
            1 + (int)nic_random(nic, (uint64_t)room < 4 ? (uint64_t)room : 4);
    while (n < room && cq->count > 0) {
        const struct nic_completion *c = &cq->ring[cq->head];

        wc[n++] = c->wc;
        if (c->qp)
            c->qp->used--;
        cq->head = (cq->head + 1) % cq->capacity;
        cq->count--;
    }
    pthread_mutex_unlock(&nic->lock);
    return n;
}

int nic_req_notify_cq(struct ibv_cq *ibv, int solicited)
{
    struct nic *nic = nic_of(ibv->context);

    (void)solicited;
    pthread_mutex_lock(&nic->lock);
    ((struct nic_cq *)(void *)ibv)->armed = true;
    pthread_mutex_unlock(&nic->lock);
    return 0;
}

/* --- shared receive queues --------------------------------------------------- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
                               struct ibv_srq_init_attr *attr)
{
    struct nic_srq *srq = calloc(1, sizeof(*srq));

    if (!srq)
        return NULL;
    srq->capacity = attr->attr.max_wr;
    srq->wr_id = calloc(srq->capacity, sizeof(*srq->wr_id));
    if (!srq->wr_id) {
        free(srq);
        return NULL;
    }
    srq->ibv.context = pd->context;
    srq->ibv.pd = pd;
    ((struct nic_pd *)(void *)pd)->users++;
    return &srq->ibv;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
    struct nic_srq *srq = (struct nic_srq *)(void *)ibv;

    if (srq->qps) {
        harm_report("a shared receive queue is destroyed before its queue "
                    "pairs");
        return EBUSY;
    }
    ((struct nic_pd *)(void *)ibv->pd)->users--;
    free(srq->wr_id);
    free(srq);
    return 0;
}

int nic_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr,
                      struct ibv_recv_wr **bad)
{
    struct nic_srq *srq = (struct nic_srq *)(void *)ibv;
    struct nic *nic = nic_of(ibv->context);
    bool was_empty;
    int error = 0;

    if (!srq->qps && harm_call_fails()) { /* before there are queue pairs, not
                                           * when requests are replaced */
        *bad = wr;
        return ENOMEM;
    }
    pthread_mutex_lock(&nic->lock);
    was_empty = srq->count == 0;
    for (; wr; wr = wr->next) {
        if (srq->count == srq->capacity) {
            *bad = wr;
            error = ENOMEM;
            break;
        }
        srq->wr_id[(srq->head + srq->count++) % srq->capacity] = wr->wr_id;
    }
    pthread_mutex_unlock(&nic->lock);
    if (was_empty)
        nic_kick(nic);
    return error;
}

bool nic_srq_take(struct ibv_srq *ibv, uint64_t *wr_id)
{
    struct nic_srq *srq = (struct nic_srq *)(void *)ibv;

    if (!srq->count)
        return false;
    *wr_id = srq->wr_id[srq->head];
    srq->head = (srq->head + 1) % srq->capacity;
    srq->count--;
    return true;
}
