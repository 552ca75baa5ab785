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
    size_t bytes, piece; /* of all; of each piece except the last, at least 1 */
    size_t count;
    struct ibv_mr **mr[RDMA_RAILS];  /* by NIC of this rank: (count). NULL: not
                                        registered */
    struct ibv_mr *only[RDMA_RAILS]; /* storage of `mr` if there is one piece */
};

/* Register with this NIC, or with all usable ones (NULL), in at most `most`
 * pieces (1: whole, or not at all). False: nothing is registered, and errno
 * says why (E2BIG: more pieces are needed). */
bool rdma_pieces_register(struct shunt_transport_ctx *ctx, struct rdma_nic *nic,
                          struct rdma_pieces *pieces, void *addr, size_t bytes,
                          int access, size_t most);
/* Register with one more NIC, in the same pieces. False: errno says why. */
bool rdma_pieces_add(struct rdma_nic *nic, struct rdma_pieces *pieces,
                     int access);
void rdma_pieces_unregister(struct rdma_pieces *pieces);
/* The piece that has this offset. Most memory is one piece, and a division
 * takes as long as all other look-ups of a small put. */
static inline size_t rdma_piece_of(size_t piece, size_t at)
{
    return at < piece ? 0 : at / piece;
}

/* Bytes from this offset to the end of its piece. */
static inline size_t rdma_piece_rest(size_t piece, size_t at)
{
    return piece - (at < piece ? at : at % piece);
}

#endif
