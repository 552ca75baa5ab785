// SPDX-License-Identifier: Apache-2.0
/*
 * Sends posted requests to the other NIC. A socket loses nothing while both
 * ends exist. But a receiver may drop a request because it is not ready. So
 * unanswered requests are sent again after some time, from the first one on.
 * The receiver finds by the numbers which of them it already has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "tests/verbs/nic.h"

#define WAIT_MOST_US 200000

/* Returns false if the packet was not sent: there is no room now, or (`*gone`)
 * there is no receiver. */
static bool send_packet(struct nic_qp *qp, const struct nic_packet *packet,
                        bool *gone)
{
    *gone = false;
    if (send(qp->fd, packet, sizeof(*packet), MSG_DONTWAIT | MSG_NOSIGNAL) ==
        (ssize_t)sizeof(*packet))
        return true;
    *gone = errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM;
    return false;
}

/* Drop requests and answers that were not sent. */
static void drop_unsent(struct nic_qp *qp)
{
    struct nic_answer *answer;

    while ((answer = qp->answers)) {
        qp->answers = answer->next;
        free(answer);
    }
    if (qp->unsent && !qp->unreachable_at)
        qp->unreachable_at = nic_now();
    qp->unsent = NULL;
}

void nic_send_some(struct nic *nic, struct nic_qp *qp)
{
    bool gone = false;

    if (nic_is_cut(nic, qp)) {
        drop_unsent(qp);
        nic_watch(nic, qp, false);
        return;
    }
    while (qp->answers && send_packet(qp, &qp->answers->packet, &gone)) {
        struct nic_answer *answer = qp->answers;

        qp->answers = answer->next;
        free(answer);
    }
    if (gone) {
        while (qp->answers) {
            struct nic_answer *answer = qp->answers;

            qp->answers = answer->next;
            free(answer);
        }
    }
    while (qp->unsent && !gone && !qp->answers &&
           (!qp->unsent->leaves || qp->unsent->leaves <= nic_now())) {
        if (!send_packet(qp, &qp->unsent->packet, &gone))
            break;
        qp->unsent = qp->unsent->next;
    }
    if (gone && !qp->unreachable_at)
        qp->unreachable_at = nic_now();
    nic_watch(nic, qp, !gone && (qp->unsent || qp->answers));
}

void nic_stay_silent(struct nic_qp *qp, const struct nic_packet *packet)
{
    const struct nic_packet silence = {
        .kind = NIC_ANSWER,
        .from = qp->ibv.qp_num,
        .to = qp->peer,
        .base = qp->peer_base,
        .sequence = packet->sequence,
        .status = NIC_NOT_READY,
    };
    bool gone;

    if (packet->kind == NIC_REQUEST)
        send_packet(qp, &silence, &gone);
}

void nic_answer(struct nic_qp *qp, uint64_t sequence, int status)
{
    struct nic_answer *answer = calloc(1, sizeof(*answer)), **p = &qp->answers;

    if (!answer)
        abort();
    answer->packet = (struct nic_packet){
        .kind = NIC_ANSWER,
        .from = qp->ibv.qp_num,
        .to = qp->peer,
        .base = qp->peer_base,
        .sequence = sequence,
        .status = status,
    };
    while (*p)
        p = &(*p)->next;
    *p = answer;
}

/* --- completions ------------------------------------------------------------- */

static void complete(struct nic *nic, struct nic_qp *qp, struct nic_send *send,
                     enum ibv_wc_status status)
{
    const struct ibv_wc wc = {
        .wr_id = send->wr_id,
        .status = status,
        .opcode = IBV_WC_RDMA_WRITE,
        .qp_num = qp->ibv.qp_num,
    };

    if (send->signaled || status)
        nic_complete(nic, qp->ibv.send_cq, &wc, qp, true);
    else
        qp->used--; /* a real NIC frees the entry later, so this is less
                     * strict */
    free(send);
}

static void unlink_send(struct nic_qp *qp, struct nic_send **at)
{
    struct nic_send *send = *at;

    if (qp->unsent == send)
        qp->unsent = send->next;
    *at = send->next;
    if (!*at)
        qp->last = at;
}

void nic_sends_end(struct nic *nic, struct nic_qp *qp)
{
    struct nic_send *send;
    bool reported = false;

    while ((send = qp->first)) {
        enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;

        unlink_send(qp, &qp->first);
        if (!reported && send->answered)
            status = send->status;
        reported = reported || status;
        complete(nic, qp, send, status);
    }
}

/* Complete answered requests: in order, or in any order if NICs need not keep
 * the order. */
static void complete_answered(struct nic *nic, struct nic_qp *qp)
{
    struct nic_send **p = &qp->first;

    while (*p) {
        struct nic_send *send = *p;

        if (!send->answered) {
            if (!harm()->unordered)
                return;
            p = &send->next;
            continue;
        }
        if (send->harmed)
            send->status = IBV_WC_RETRY_EXC_ERR;
        if (send->status) {
            enum ibv_wc_status status = send->status;

            unlink_send(qp, p);
            complete(nic, qp, send, status);
            nic_qp_fail(nic, qp);
            return;
        }
        unlink_send(qp, p);
        complete(nic, qp, send, IBV_WC_SUCCESS);
    }
}

void nic_on_answer(struct nic *nic, struct nic_qp *qp,
                   const struct nic_packet *packet)
{
    struct nic_send *send = qp->first;

    if (packet->base != qp->base || qp->ibv.state != IBV_QPS_RTS)
        return; /* the answer is for an earlier connection */
    if (packet->status == NIC_NOT_READY) {
        if (!qp->unreachable_at)
            qp->unreachable_at = nic_now();
        return;
    }
    qp->answered_at = nic_now();
    qp->wait = NIC_WAIT_US;
    qp->unreachable_at = 0;
    while (send && send->packet.sequence != packet->sequence)
        send = send->next;
    if (!send)
        return;
    send->answered = true;
    send->status = (enum ibv_wc_status)packet->status;
    complete_answered(nic, qp);
}

/* --- time-outs --------------------------------------------------------------- */

/* Returns the connection's time-out in us, after all its retries. */
static int64_t patience(const struct nic_qp *qp)
{
    int64_t once = (int64_t)(4.096 * (double)(1u << qp->timeout));

    return once * (qp->retries + 1);
}

int64_t nic_look_at_time(struct nic *nic, struct nic_qp *qp, int64_t now)
{
    int64_t due;

    if (!qp->first || qp->ibv.state != IBV_QPS_RTS)
        return -1;
    if (qp->unsent && qp->unsent->leaves > now)
        return qp->unsent->leaves - now;
    due = qp->answered_at + qp->wait;
    if (qp->unreachable_at && due > qp->unreachable_at + patience(qp))
        due = qp->unreachable_at + patience(qp) + 1;
    if (now < due)
        return due - now;
    if (qp->unreachable_at && now - qp->unreachable_at > patience(qp)) {
        struct nic_send *send = qp->first;

        unlink_send(qp, &qp->first);
        complete(nic, qp, send, IBV_WC_RETRY_EXC_ERR);
        nic_qp_fail(nic, qp);
        return -1;
    }
    qp->answered_at = now;
    qp->wait = qp->wait * 2 < WAIT_MOST_US ? qp->wait * 2 : WAIT_MOST_US;
    qp->unsent = qp->first;
    nic_send_some(nic, qp);
    return qp->wait;
}
