// SPDX-License-Identifier: Apache-2.0
/* Changes of a device while a test runs; see now.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/verbs/nic.h"
#include "tests/verbs/now.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nic *nics;

void nic_list(struct nic *nic)
{
    pthread_mutex_lock(&lock);
    nic->next = nics;
    nics = nic;
    pthread_mutex_unlock(&lock);
}

void nic_unlist(struct nic *nic)
{
    struct nic **p = &nics;

    pthread_mutex_lock(&lock);
    while (*p != nic)
        p = &(*p)->next;
    *p = nic->next;
    pthread_mutex_unlock(&lock);
}

bool nic_is_cut(const struct nic *nic, const struct nic_qp *qp)
{
    return nic->down || nic->lossy || nic->fatal || qp->gids != nic->gids;
}

/* Fail a random queue pair of those that are connected. Returns false if there
 * is none. */
static bool fail_a_qp(struct nic *nic)
{
    uint64_t count = 0, which;

    for (struct nic_qp *qp = nic->qps; qp; qp = qp->next)
        count += qp->ibv.state == IBV_QPS_RTS;
    if (!count)
        return false;
    which = nic_random(nic, count);
    for (struct nic_qp *qp = nic->qps; qp; qp = qp->next) {
        if (qp->ibv.state != IBV_QPS_RTS || which-- > 0)
            continue;
        nic_event(nic, IBV_EVENT_QP_FATAL, &qp->ibv, 0);
        nic_qp_fail(nic, qp);
        return true;
    }
    return false;
}

/* Fail the device. Requests that it acknowledged but whose completions were not
 * polled are lost, too. */
static void fail_device(struct nic *nic)
{
    nic->fatal = true;
    for (struct nic_qp *qp = nic->qps; qp; qp = qp->next) {
        qp->ibv.state = IBV_QPS_ERR;
        __atomic_store_n(&qp->current, 0, __ATOMIC_SEQ_CST);
        nic_arrivals_drop(qp);
        nic_cq_forget(qp->ibv.send_cq, qp);
        nic_cq_forget(qp->ibv.recv_cq, qp);
    }
    nic_event(nic, IBV_EVENT_DEVICE_FATAL, NULL, 1);
}

/* Change the addresses. With InfiniBand also change the LID, and report it by
 * one of the events that can mean this. */
static void change_addresses(struct nic *nic)
{
    static const enum ibv_event_type events[] = {
        IBV_EVENT_LID_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER};

    nic->gids++;
    if (harm()->infiniband) {
        nic->lid = nic_new_lid();
        nic_event(nic, events[nic->gids % 3], NULL, 1);
        return;
    }
    nic_event(nic, IBV_EVENT_GID_CHANGE, NULL, 1);
}

static bool do_it(struct nic *nic, const char *what)
{
    if (!strcmp(what, "qp"))
        return fail_a_qp(nic);
    if (!strcmp(what, "down")) {
        nic->down = true;
        nic_event(nic, IBV_EVENT_PORT_ERR, NULL, 1);
    } else if (!strcmp(what, "up")) {
        if (nic->down)
            nic_event(nic, IBV_EVENT_PORT_ACTIVE, NULL, 1);
        nic->down = nic->lossy = false;
    } else if (!strcmp(what, "lossy")) {
        nic->lossy = true;
    } else if (!strcmp(what, "gid")) {
        change_addresses(nic);
    } else if (!strcmp(what, "subnet")) {
        nic->moved ^= 16;
        change_addresses(nic);
    } else if (!strcmp(what, "fatal")) {
        fail_device(nic);
    } else {
        abort();
    }
    return true;
}

int verbs_count(void)
{
    int count = 0;

    pthread_mutex_lock(&lock);
    for (struct nic *nic = nics; nic; nic = nic->next) {
        pthread_mutex_lock(&nic->lock);
        for (struct nic_qp *qp = nic->qps; qp; qp = qp->next)
            count++;
        pthread_mutex_unlock(&nic->lock);
    }
    pthread_mutex_unlock(&lock);
    return count;
}

int verbs_do(int device, const char *what)
{
    bool done = false;

    if (strchr(what, '='))
        return !harm_set(what);
    pthread_mutex_lock(&lock);
    for (struct nic *nic = nics; nic; nic = nic->next) {
        if (nic->ibv.device->name[4] - '0' != device)
            continue;
        pthread_mutex_lock(&nic->lock);
        done = do_it(nic, what) || done;
        pthread_mutex_unlock(&nic->lock);
        nic_kick(nic);
    }
    pthread_mutex_unlock(&lock);
    return !done;
}
