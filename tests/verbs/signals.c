// SPDX-License-Identifier: Apache-2.0
/*
 * Tests ways to signal to a receiver, by verbs alone, that a payload has
 * arrived:
 *
 *     signals flag       a second write, behind the payload, sets a word
 *     signals immediate  the payload's own completion at the receiver
 *     signals behind     the completion of an empty request with an immediate,
 *                        behind the payload
 *
 * prints how often the signal was visible before the payload. Many programs use
 * the first way. It is wrong if a NIC does not keep the order of writes. The
 * last way is wrong if a NIC does not keep the order of completions. A useful
 * stand-in must show both errors.
 */
#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#define BYTES ((size_t)64 << 10)
#define ROUNDS 300

struct side {
    struct ibv_context *device;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    /* the payload, and the word behind it */
    unsigned char *memory;
};

static void must(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s failed\n", what);
    exit(2);
}

static void make(struct side *s)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
    struct ibv_qp_init_attr qp = {
        .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 8},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
    };

    must(list && list[0], "ibv_get_device_list()");
    s->device = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    must(s->device != NULL, "ibv_open_device()");
    s->pd = ibv_alloc_pd(s->device);
    s->cq = qp.send_cq = qp.recv_cq =
        ibv_create_cq(s->device, 64, NULL, NULL, 0);
    s->srq = qp.srq = ibv_create_srq(s->pd, &srq);
    s->qp = ibv_create_qp(s->pd, &qp);
    s->memory = calloc(1, BYTES + 8);
    must(s->qp && s->memory, "ibv_create_qp()");
    s->mr = ibv_reg_mr(s->pd, s->memory, BYTES + 8,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(s->mr && !ibv_modify_qp(s->qp, &attr,
                                 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                                     IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "ibv_modify_qp() to INIT");
}

static void join(struct side *s, const struct side *to)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = to->qp->qp_num,
        .max_dest_rd_atomic = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 2}},
    };

    must(!ibv_query_gid(to->device, 1, 2, &attr.ah_attr.grh.dgid) &&
             !ibv_modify_qp(s->qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC |
                                IBV_QP_MIN_RNR_TIMER),
         "ibv_modify_qp() to RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
    };
    must(!ibv_modify_qp(s->qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC),
         "ibv_modify_qp() to RTS");
}

static void take_down(struct side *s)
{
    must(!ibv_destroy_qp(s->qp) && !ibv_destroy_srq(s->srq) &&
             !ibv_destroy_cq(s->cq) && !ibv_dereg_mr(s->mr) &&
             !ibv_dealloc_pd(s->pd) && !ibv_close_device(s->device),
         "taking down");
    free(s->memory);
}

/* Write `bytes` bytes from offset `at` of one side to the same offset of the
 * other side. */
static void write_there(struct side *from, const struct side *to, size_t at,
                        size_t bytes, int with_immediate)
{
    struct ibv_sge sge = {(uint64_t)(uintptr_t)from->memory + at,
                          (uint32_t)bytes, from->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {
            .sg_list = &sge,
            .num_sge = 1,
            .opcode =
                with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
            .send_flags = bytes <= 8 ? IBV_SEND_INLINE : 0,
            .imm_data = htonl(1),
            .wr.rdma = {(uint64_t)(uintptr_t)to->memory + at, to->mr->rkey},
        };
    int error;

    /* A full queue has room later. */
    while ((error = ibv_post_send(from->qp, &wr, &bad)) == ENOMEM)
        sched_yield();
    must(!error, "ibv_post_send()");
}

/* Poll one completion, if there is one. */
static int polled(struct side *s)
{
    struct ibv_wc wc;
    int n = ibv_poll_cq(s->cq, 1, &wc);

    must(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS), "a request");
    return n;
}

static int is_there(const struct side *s, unsigned char value)
{
    const volatile unsigned char *memory = s->memory;

    for (size_t i = 0; i < BYTES; i += 512)
        if (memory[i] != value)
            return 0;
    return 1;
}

enum way { IMMEDIATE, BEHIND, FLAG };

static const char *const ways[] = {"immediate", "behind", "flag"};

/* Send one message. Returns 1 if its signal was early. */
static int round_early(struct side *from, struct side *to, int k, enum way way)
{
    const int by_flag = way == FLAG;
    const uint64_t *flag = (const uint64_t *)(const void *)(to->memory + BYTES);
    const int requests = way == IMMEDIATE ? 1 : 2;
    const uint64_t value = (uint64_t)k;
    struct ibv_recv_wr *bad, receive = {.wr_id = 0};
    int early, complete = 0;

    memset(from->memory, k, BYTES);
    memcpy(from->memory + BYTES, &value, sizeof(value));
    if (!by_flag)
        must(!ibv_post_srq_recv(to->srq, &receive, &bad), "posting");
    write_there(from, to, 0, BYTES, way == IMMEDIATE);
    if (way == BEHIND)
        write_there(from, to, BYTES, 0, 1);
    if (by_flag) {
        write_there(from, to, BYTES, 8, 0);
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value)
            sched_yield();
    } else {
        while (!polled(to))
            sched_yield();
    }
    early = !is_there(to, (unsigned char)k);
    while (complete < requests) {
        complete += polled(from);
        sched_yield();
    }
    while (!is_there(to, (unsigned char)k))
        sched_yield();
    return early;
}

int main(int argc, char **argv)
{
    struct side from, to;
    int early = 0, way = 0;

    while (argc == 2 && way <= FLAG && strcmp(argv[1], ways[way]) != 0)
        way++;
    if (argc != 2 || way > FLAG) {
        fprintf(stderr, "usage: %s immediate|behind|flag\n", argv[0]);
        return 2;
    }
    make(&from);
    make(&to);
    join(&from, &to);
    join(&to, &from);
    for (int k = 1; k <= ROUNDS; k++)
        early += round_early(&from, &to, k, (enum way)way);
    printf("%d of %d signals were early\n", early, ROUNDS);
    take_down(&from);
    take_down(&to);
    return early > 0;
}
