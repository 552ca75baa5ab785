// SPDX-License-Identifier: Apache-2.0
/* Memory that is registered with NICs, in several pieces if a device limits
 * their size. */
#ifndef SHUNT_RDMA_PIECES_H
#define SHUNT_RDMA_PIECES_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

#include "transports/rdma/limits.h"

struct rdma_nic;
struct shunt_transport_ctx;

struct rdma_pieces {
    unsigned char *addr;
    /* bytes of the whole memory; and bytes of each piece except the last, which
     * may be shorter. At least 1. */
    size_t bytes, piece;
    size_t count; /* number of pieces */
    /* by NIC of this rank: (count) registrations. NULL: not registered */
    struct ibv_mr **mr[RDMA_RAILS];
    struct ibv_mr *only[RDMA_RAILS]; /* storage of `mr` if there is one piece */
};

/* Register memory with this NIC, or with all usable NICs (NULL), in at most
 * `most` pieces (1: whole, or not at all). False: nothing is registered, and
 * errno says why (E2BIG: more pieces are needed). */
bool rdma_pieces_register(struct shunt_transport_ctx *ctx, struct rdma_nic *nic,
                          struct rdma_pieces *pieces, void *addr, size_t bytes,
                          int access, size_t most);
/* Register the memory with one more NIC, in the same pieces. False: errno says
 * why. */
bool rdma_pieces_add(struct rdma_nic *nic, struct rdma_pieces *pieces,
                     int access);
void rdma_pieces_unregister(struct rdma_pieces *pieces);
/* Returns the number of the piece that has this offset. Most memory is one
 * piece, so most calls avoid the division: it takes as long as all other
 * look-ups of a small put. */
static inline size_t rdma_piece_of(size_t piece, size_t at)
{
    return at < piece ? 0 : at / piece;
}

/* Returns the bytes from this offset to the end of its piece. */
static inline size_t rdma_piece_rest(size_t piece, size_t at)
{
    return piece - (at < piece ? at : at % piece);
}

#endif
