// SPDX-License-Identifier: Apache-2.0
/*
 * Arrivals at a NIC. Requests have numbers and are accepted in their order, as
 * on a reliable connection. Then their payload is placed and their completions
 * are raised, in the order that SHUNT_TEST_VERBS allows. An RDMA write without
 * an immediate has no completion at the receiver. If completions are in order,
 * the completion of a later request shows that the write has been placed. By
 * the InfiniBand specification, a receive request completes when everything
 * that arrived before it on its connection has been placed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "tests/verbs/nic.h"
#include "tests/verbs/pages.h"

#define NEAR 8   /* how many of the oldest requests are placed in any order */
#define STEPS 16 /* pieces placed in a round */
/* One in DELAYED requests is delayed: later requests overtake it in this
 * time. */
#define DELAYED 4
#define DELAY_US 200

static bool shuffles(void)
{
    return harm()->out_of_order || harm()->late || harm()->pages;
}

/* --- the payload ------------------------------------------------------------- */

/* Does the connection that sent this packet still exist? */
static bool is_current(const struct nic_packet *packet)
{
    uint64_t word = 0;
    struct iovec from = {(void *)(uintptr_t)packet->current, sizeof(word)};
    struct iovec to = {&word, sizeof(word)};

    return process_vm_readv(packet->pid, &to, 1, &from, 1, 0) ==
               (ssize_t)sizeof(word) &&
           word == packet->base + NIC_CURRENT;
}

/* Read the payload from the sender's memory to `to`. Returns false if the
 * sender's connection has ended. Then its packets are no longer valid. */
static bool pull(const struct nic_packet *packet, unsigned char *to)
{
    struct iovec from[NIC_SGES], target = {to, packet->bytes};
    size_t count = 0;
    ssize_t n = 0;

    if (packet->inlined) {
        memcpy(to, packet->data, packet->bytes);
        return true;
    }
    for (uint32_t i = 0; i < packet->sges; i++)
        if (packet->sge[i].bytes)
            from[count++] =
                (struct iovec){(void *)(uintptr_t)packet->sge[i].address,
                               packet->sge[i].bytes};
    if (count)
        n = process_vm_readv(packet->pid, &target, 1, from, count, 0);
    if (!is_current(packet))
        return false;
    if ((size_t)n == packet->bytes)
        return true;
    harm_report("the memory of a request went away before it was sent: %s",
                n < 0 ? strerror(errno) : "a part of it");
    return false;
}

static size_t common_divisor(size_t a, size_t b)
{
    while (b) {
        size_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Choose the order in which the pieces of a request are placed: from `first`
 * on, in steps of `stride`. */
static void shuffle(struct nic *nic, struct nic_arrival *a)
{
    a->first = nic_random(nic, a->pieces);
    do
        a->stride = 1 + nic_random(nic, a->pieces);
    while (common_divisor(a->stride, a->pieces) != 1);
    if (harm()->out_of_order && nic_random(nic, DELAYED) == 0)
        a->not_before = nic_now() + (int64_t)nic_random(nic, DELAY_US);
}

/* Place one more piece. Returns false if its memory is not registered any
 * more. */
static bool place_piece(struct nic *nic, struct nic_arrival *a)
{
    size_t at = (a->first + a->placed * a->stride) % a->pieces * NIC_PIECE;
    size_t n = a->bytes - at < NIC_PIECE ? a->bytes - at : NIC_PIECE;
    struct nic_mr *mr = nic_mr_find(nic, a->rkey, a->address, a->bytes,
                                    IBV_ACCESS_REMOTE_WRITE);

    if (!mr)
        return false;
    if (mr->pages)
        nic_pages_write(mr->pages, a->address + at, a->data + at, n);
    else
        memcpy((void *)(uintptr_t)(a->address + at), a->data + at, n);
    if (++a->placed == a->pieces) {
        free(a->data);
        a->data = NULL;
    }
    return true;
}

/* --- requests ---------------------------------------------------------------- */

static void finish_some(struct nic *nic, struct nic_qp *qp);

/* The refusal of a request tells the sender that all requests before it are
 * complete. So complete these first. Returns the first request that must be
 * refused: `sequence`, or an earlier one. */
static uint64_t finish_before(struct nic *nic, struct nic_qp *qp,
                              uint64_t sequence)
{
    for (struct nic_arrival *a = qp->arrivals; a; a = a->next) {
        while (a->sequence < sequence && a->data)
            if (!place_piece(nic, a))
                sequence = a->sequence;
    }
    finish_some(nic, qp);
    return sequence;
}

static void refuse(struct nic *nic, struct nic_qp *qp, uint64_t sequence,
                   enum ibv_wc_status status)
{
    sequence = finish_before(nic, qp, sequence);
    if (qp->ibv.state == IBV_QPS_ERR)
        return;
    nic_answer(qp, sequence, status);
    nic_send_some(nic, qp);
    nic_event(nic, IBV_EVENT_QP_ACCESS_ERR, &qp->ibv, 0);
    nic_qp_fail(nic, qp);
}

static void add(struct nic_qp *qp, struct nic_arrival *a)
{
    *qp->last_arrival = a;
    qp->last_arrival = &a->next;
}

/* Answer a request that was accepted before. The first answer may have been
 * lost. */
static void answer_again(struct nic_qp *qp, uint64_t sequence)
{
    for (struct nic_arrival *a = qp->arrivals; a; a = a->next)
        if (a->sequence == sequence && !a->answered)
            return; /* its first answer follows later */
    nic_answer(qp, sequence, IBV_WC_SUCCESS);
}

static void take(struct nic *nic, struct nic_qp *qp,
                 const struct nic_packet *packet)
{
    struct nic_arrival *a;
    unsigned char *to = (unsigned char *)(uintptr_t)packet->address;

    if (packet->bytes && !nic_mr_find(nic, packet->rkey, packet->address,
                                      packet->bytes, IBV_ACCESS_REMOTE_WRITE)) {
        refuse(nic, qp, packet->sequence, IBV_WC_REM_ACCESS_ERR);
        return;
    }
    a = calloc(1, sizeof(*a));
    if (!a)
        abort();
    a->sequence = packet->sequence;
    a->address = packet->address;
    a->bytes = packet->bytes;
    a->rkey = packet->rkey;
    a->imm = packet->imm;
    a->with_imm = packet->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    a->rnr_retry = packet->rnr_retry;
    if (packet->bytes && shuffles()) {
        a->pieces = (packet->bytes + NIC_PIECE - 1) / NIC_PIECE;
        to = a->data = malloc(packet->bytes);
        if (!a->data)
            abort();
        shuffle(nic, a);
    }
    if (!pull(packet, to)) {
        free(a->data);
        free(a);
        return;
    }
    qp->next_arrival++;
    add(qp, a);
    if (harm()->late) {
        a->answered = true;
        nic_answer(qp, a->sequence, IBV_WC_SUCCESS);
    }
}

/* Does this NIC have the address to which the packet was sent? */
static bool is_for_us(struct nic *nic, const struct nic_packet *packet)
{
    union ibv_gid gid;

    if (harm()->service >= 0 && packet->service != harm()->service)
        return false;
    if (harm()->infiniband &&
        (packet->to_lid != nic->lid || packet->subnet != nic_subnet(nic)))
        return false;
    if (harm()->infiniband && !packet->global)
        return !harm()->grh;
    for (int i = 0; !ibv_query_gid(&nic->ibv, 1, i, &gid); i++)
        if (!memcmp(gid.raw, packet->to_gid, sizeof(gid.raw)))
            return true;
    return false;
}

void nic_on_request(struct nic *nic, struct nic_qp *qp,
                    const struct nic_packet *packet)
{
    if (packet->from != qp->peer || packet->base != qp->peer_base)
        return; /* the packet is from another connection */
    if (!is_for_us(nic, packet)) {
        nic_stay_silent(qp, packet);
        return;
    }
    if (qp->ibv.state ==
        IBV_QPS_ERR) /* a real NIC is silent, and the sender's time-out ends the
                      * connection */
        nic_answer(qp, packet->sequence, NIC_NOT_READY);
    if (qp->ibv.state != IBV_QPS_RTR && qp->ibv.state != IBV_QPS_RTS)
        return;
    if (packet->sequence < qp->next_arrival) {
        answer_again(qp, packet->sequence);
        return;
    }
    if (packet->sequence > qp->next_arrival)
        return;
    if (harm()->not_ready && nic_random(nic, 200) == 0)
        return; /* drop the request: the sender repeats it */
    take(nic, qp, packet);
}

/* --- completions ------------------------------------------------------------- */

/* Raise the completion of a request with an immediate. Returns false if there
 * is no receive request for it. */
static bool raise(struct nic *nic, struct nic_qp *qp, struct nic_arrival *a,
                  enum ibv_wc_status status)
{
    struct ibv_wc wc = {
        .status = status,
        .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
        .byte_len = (uint32_t)a->bytes,
        .imm_data = a->imm,
        .qp_num = qp->ibv.qp_num,
        .src_qp = qp->peer,
        .wc_flags = IBV_WC_WITH_IMM,
    };

    if (!nic_srq_take(qp->ibv.srq, &wc.wr_id)) {
        if (!a->rnr_sent)
            harm_report("receiver not ready: no receive request for an "
                        "immediate");
        a->rnr_sent = true;
        return false;
    }
    nic_complete(nic, qp->ibv.recv_cq, &wc, qp, false);
    return true;
}

static void finish(struct nic_qp *qp, struct nic_arrival **at)
{
    struct nic_arrival *a = *at;

    if (!a->answered)
        nic_answer(qp, a->sequence, IBV_WC_SUCCESS);
    *at = a->next;
    if (!*at)
        qp->last_arrival = at;
    free(a->data);
    free(a);
}

/* Finish requests whose payload has been placed, and raise their
 * completions. */
static void finish_some(struct nic *nic, struct nic_qp *qp)
{
    struct nic_arrival **p = &qp->arrivals;
    bool hold = false;

    while (*p) {
        struct nic_arrival *a = *p;

        if (!a->data && a->with_imm && !hold && harm()->receive &&
            harm_next_receive() == harm()->receive) {
            raise(nic, qp, a, IBV_WC_LOC_PROT_ERR);
            nic_answer(qp, a->sequence, IBV_WC_REM_OP_ERR);
            nic_send_some(nic, qp);
            nic_qp_fail(nic, qp);
            return;
        }
        if (a->data || (a->with_imm && hold) ||
            (a->with_imm && !raise(nic, qp, a, IBV_WC_SUCCESS))) {
            hold = hold || !harm()->unordered;
            p = &a->next;
            continue;
        }
        finish(qp, p);
    }
}

/* Returns one of the oldest requests of which a piece can be placed now.
 * Otherwise returns NULL, and sets `*next` to the time when there will be one
 * (-1: never). */
static struct nic_arrival *choose(struct nic *nic, struct nic_qp *qp,
                                  int64_t now, int64_t *next)
{
    struct nic_arrival *open[NEAR];
    size_t count = 0;

    *next = -1;
    for (struct nic_arrival *a = qp->arrivals; a && count < NEAR; a = a->next) {
        if (!a->data)
            continue;
        if (a->not_before <= now)
            open[count++] = a;
        else if (*next < 0 || a->not_before < *next)
            *next = a->not_before;
    }
    if (!count)
        return NULL;
    return open[harm()->out_of_order ? nic_random(nic, count) : 0];
}

int64_t nic_place_some(struct nic *nic, struct nic_qp *qp, int64_t now)
{
    struct nic_arrival *a = NULL;
    int64_t next = -1;

    if (!qp->arrivals)
        return -1;
    for (int i = 0; i < STEPS && (a = choose(nic, qp, now, &next)); i++) {
        if (!place_piece(nic, a)) {
            refuse(nic, qp, a->sequence, IBV_WC_REM_ACCESS_ERR);
            return -1;
        }
    }
    finish_some(nic, qp);
    if (choose(nic, qp, now, &next))
        return 0;
    return next < 0 ? -1 : next - now;
}

/* The queue pair enters an error state. The sender does not repeat requests
 * that were acknowledged. So these are still placed and completed. */
void nic_arrivals_end(struct nic *nic, struct nic_qp *qp)
{
    for (struct nic_arrival *a = qp->arrivals; a; a = a->next) {
        while (a->answered && a->data)
            if (!place_piece(nic, a))
                break;
        if (a->answered && !a->data && a->with_imm)
            raise(nic, qp, a, IBV_WC_SUCCESS);
    }
    nic_arrivals_drop(qp);
}

void nic_arrivals_drop(struct nic_qp *qp)
{
    struct nic_arrival *a;

    while ((a = qp->arrivals)) {
        qp->arrivals = a->next;
        free(a->data);
        free(a);
    }
    qp->last_arrival = &qp->arrivals;
}
