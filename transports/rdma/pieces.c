// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that NICs register. If a device cannot register the memory at once,
 * the memory is registered in pieces of equal size, the same for all NICs. No
 * request crosses a boundary. A device may claim a limit (max_mr_size) that is
 * more than it can do. So pieces are halved when a device refuses one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

/* A piece may begin anywhere, because devices accept any address. This is only
 * a round number. */
#define UNIT ((size_t)4096)
#define LEAST_PIECE (16 * UNIT)
#define HALVED_MOST 8

static void cut(struct rdma_pieces *pieces, size_t piece)
{
    pieces->piece = piece < pieces->bytes ? piece : pieces->bytes;
    pieces->count = (pieces->bytes - 1) / pieces->piece + 1;
}

/* Deregister all pieces with one NIC. */
static void drop(struct rdma_pieces *pieces, int nic)
{
    struct ibv_mr **mr = pieces->mr[nic];

    for (size_t i = 0; mr && i < pieces->count && mr[i]; i++)
        ibv_dereg_mr(mr[i]);
    if (mr != &pieces->only[nic])
        free(mr);
    pieces->mr[nic] = NULL;
    pieces->only[nic] = NULL;
}

void rdma_pieces_unregister(struct rdma_pieces *pieces)
{
    for (int n = 0; n < RDMA_RAILS; n++)
        drop(pieces, n);
}

bool rdma_pieces_add(struct rdma_nic *nic, struct rdma_pieces *pieces,
                     int access)
{
    const int n = nic->index;

    pieces->mr[n] = pieces->count == 1
                        ? &pieces->only[n]
                        : calloc(pieces->count, sizeof(struct ibv_mr *));
    if (!pieces->mr[n])
        return false;
    for (size_t i = 0, at = 0; i < pieces->count; i++, at += pieces->piece) {
        const size_t rest = pieces->bytes - at;

        pieces->mr[n][i] =
            ibv_reg_mr(nic->pd, pieces->addr + at,
                       rest < pieces->piece ? rest : pieces->piece, access);
        if (!pieces->mr[n][i]) {
            const int error = errno;

            drop(pieces, n);
            errno = error;
            return false;
        }
    }
    return true;
}

/* nic: as in rdma_pieces_register(). */
static bool add_to_all(struct shunt_transport_ctx *ctx, struct rdma_nic *nic,
                       struct rdma_pieces *pieces, int access)
{
    for (int n = 0; n < ctx->nic_count; n++) {
        struct rdma_nic *one = &ctx->nics[n];
        int error;

        if ((nic ? nic != one : one->dead) ||
            rdma_pieces_add(one, pieces, access))
            continue;
        error = errno;

        rdma_pieces_unregister(pieces);
        errno = error;
        return false;
    }
    return true;
}

bool rdma_pieces_register(struct shunt_transport_ctx *ctx, struct rdma_nic *nic,
                          struct rdma_pieces *pieces, void *addr, size_t bytes,
                          int access, size_t most)
{
    int error = E2BIG;

    *pieces = (struct rdma_pieces){.addr = addr, .bytes = bytes};
    cut(pieces, most == 1 ? bytes : ctx->piece);
    for (int halved = 0; pieces->count <= most; halved++) {
        if (add_to_all(ctx, nic, pieces, access)) {
            if (halved) /* remember the size that worked */
                ctx->piece = pieces->piece;
            return true;
        }
        error = halved ? error : errno;
        if ((errno != ENOMEM && errno != EINVAL) || halved == HALVED_MOST ||
            pieces->piece < 2 * LEAST_PIECE)
            break;
        cut(pieces, (pieces->piece / 2 + UNIT - 1) / UNIT * UNIT);
    }
    *pieces = (struct rdma_pieces){.count = 0};
    errno = error;
    return false;
}
