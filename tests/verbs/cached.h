// SPDX-License-Identifier: Apache-2.0
/*
 * For a mutant of the transport rdma (meson.build). The mutant caches a
 * registration by its address, as some libraries do to save time. Meanwhile,
 * other memory may have been mapped at that address.
 */
#include "transports/rdma/rdma.h"

static struct ibv_mr *cached_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes,
                                    int access)
{
    static struct ibv_mr *last;

    if (!last || last->pd != pd || last->addr != addr || last->length != bytes)
        last = (ibv_reg_mr)(pd, addr, bytes, access);
    return last;
}

#undef ibv_reg_mr
#define ibv_reg_mr cached_reg_mr
#define ibv_dereg_mr(mr) ((void)(mr))
