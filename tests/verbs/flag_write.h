// SPDX-License-Identifier: Apache-2.0
/*
 * For a mutant of the transport rdma (meson.build). A put from registered
 * memory is two writes without an immediate over the first rail: the payload,
 * and then the signal's word. This is right only if NICs keep the order of
 * writes.
 */
#include "transports/rdma/rdma.h"

static void flag_write_post(struct shunt_transport_ep *ep, const void *from,
                            uint32_t lkey, size_t bytes,
                            const struct shunt_transport_remote *to,
                            size_t offset)
{
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)from,
        .length = (uint32_t)bytes,
        .lkey = lkey,
    };
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = lkey ? 0 : IBV_SEND_INLINE,
        .wr.rdma = {.remote_addr = to->addr + offset,
                    .rkey =
                        to->key[(size_t)ep->rail[0].theirs_nic * to->count]},
    };
    struct ibv_send_wr *bad;

    /* Repeat until there is room: the NIC works without the caller. */
    while (ibv_post_send(ep->rail[0].qp, &wr, &bad) == ENOMEM)
        ;
}

static enum shunt_status flag_write(struct shunt_transport_ep *ep,
                                    const struct shunt_transport_put *put)
{
    if (!ep->ready)
        return rdma_start_by_put(ep);
    if (put->bytes)
        flag_write_post(ep, put->local,
                        put->reg->pieces.only[ep->rail[0].nic->index]->lkey,
                        put->bytes, put->remote, put->offset);
    if (put->signal)
        flag_write_post(ep, &put->signal_value, 0, sizeof(put->signal_value),
                        put->signal, put->signal_offset);
    return SHUNT_OK;
}
