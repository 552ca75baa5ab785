// SPDX-License-Identifier: Apache-2.0
/* Memory that is registered with NICs, in pieces where they take no more at once. */
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
    size_t bytes, piece; /* of all; of each piece but the last, at least 1 */
    size_t count;
    struct ibv_mr **mr[RDMA_RAILS]; /* of our NICs: (count). NULL: not there */
    struct ibv_mr
        *only[RDMA_RAILS]; /* where `mr` points if there is one piece */
};

/* Register with this NIC, or with all that are left (NULL), in at most so many
 * pieces (1: whole, or not at all). False: errno says why (E2BIG: they are too few),
 * nothing is registered. */
bool rdma_pieces_register(struct shunt_transport_ctx *ctx, struct rdma_nic *nic,
                          struct rdma_pieces *pieces, void *addr, size_t bytes,
                          int access, size_t most);
/* With one NIC more, in the same pieces. False: errno. */
bool rdma_pieces_add(struct rdma_nic *nic, struct rdma_pieces *pieces,
                     int access);
void rdma_pieces_unregister(struct rdma_pieces *pieces);
/* Which piece it is in. Most memory is one piece, and a division takes as long as all
 * else that a small put needs to know. */
static inline size_t rdma_piece_of(size_t piece, size_t at)
{
    return at < piece ? 0 : at / piece;
}

/* From here to the end of the piece. */
static inline size_t rdma_piece_rest(size_t piece, size_t at)
{
    return piece - (at < piece ? at : at % piece);
}

#endif
