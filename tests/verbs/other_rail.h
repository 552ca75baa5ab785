// SPDX-License-Identifier: Apache-2.0
/*
 * For a mutant of the transport rdma (meson.build): the payload of a fragment
 * is sent over another rail than its immediate. This is wrong, because a
 * completion of one connection does not show that data on another connection
 * has been placed.
 */
#include "transports/rdma/rdma.h"

/* Write the payload over this rail, without an immediate. */
static void other_rail_write(const struct rdma_rail *rail,
                             const struct rdma_large *large, size_t from,
                             size_t to, size_t bytes)
{
    const struct rdma_pieces *pieces = large->from;
    const struct shunt_transport_remote *remote = large->remote;
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)(pieces->addr + from),
        .length = (uint32_t)bytes,
        .lkey = pieces->mr[rail->nic->index][from / pieces->piece]->lkey,
    };
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = remote->addr + to,
                    .rkey =
                        remote->key[(size_t)rail->theirs_nic * remote->count +
                                    to / remote->piece]},
    };
    struct ibv_send_wr *bad;

    /* Repeat until there is room: the NIC works without the caller. */
    while (ibv_post_send(rail->qp, &wr, &bad) == ENOMEM)
        ;
}

static enum shunt_status other_rail_post(struct rdma_large *large, size_t from,
                                         size_t to, struct rdma_rail *rail,
                                         const struct rdma_request *request,
                                         struct ibv_sge *sge, uint64_t address,
                                         uint32_t key)
{
    const struct rdma_rail *other = &large->ep->rail[!rail->index];
    struct ibv_sge nothing = {.length = 0};

    if (!large->from->mr[other->nic->index])
        return rdma_post(rail, request, sge, address, key);
    other_rail_write(other, large, from, to, sge->length);
    return rdma_post(rail, request, &nothing, address, key);
}
