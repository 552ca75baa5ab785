// SPDX-License-Identifier: Apache-2.0
/* Puts without a record, and the signal words that both sides know: see direct_puts.c. */
#ifndef SHUNT_RDMA_DIRECT_PUTS_H
#define SHUNT_RDMA_DIRECT_PUTS_H

#include <stdbool.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "transports/rdma/limits.h"

struct rdma_rail;
struct rdma_request;

/* Of the immediate of a direct put, from the lowest bit on: its word, its turn, and how
 * many requests of this rail have come. */
#define RDMA_WORD_BITS 5
#define RDMA_TURN_BITS 6
#define RDMA_CAME_BITS 7 /* as of the number of a request */

#define RDMA_DIRECTS (1u << RDMA_TURN_BITS)
#define RDMA_NO_WORD ((1u << RDMA_WORD_BITS) - 1) /* no signal */
#define RDMA_WORDS RDMA_NO_WORD

/* A signal word that both sides know: its last value, and what it grew by. */
struct rdma_known {
    uint64_t region, offset; /* 0: none */
    uint64_t value, step;
};

/* A direct put whose payload has to be read from the caller's memory, for now. */
struct rdma_direct {
    struct shunt_transport_remote *remote; /* held; NULL: none */
    const unsigned char *local;
    struct shunt_transport_reg *reg; /* held, or NULL: it is given back */
    unsigned *pending;
    uint32_t sequence; /* as of a record */
    bool under_way;    /* a NIC has it */
    bool untold;       /* we do not know that it has come */
};

/* A signal is named in full: both sides learn it, in the order of records. */
void rdma_word_learn(struct rdma_known *words, uint64_t region, uint64_t offset,
                     uint64_t value);
/* Put it directly, if that is possible: then as of rdma_post(). */
bool rdma_put_direct(struct shunt_transport_ep *ep,
                     const struct shunt_transport_put *put,
                     enum shunt_status *status);
/* Post it again over this rail; or that it is missing for good, if the peer's NIC does
 * not let us write there, or its memory has been given back. */
enum shunt_status rdma_repost_direct(struct rdma_rail *rail,
                                     const struct rdma_request *request);
/* Would it have to be missing, without having been refused? */
bool rdma_direct_is_forgotten(struct shunt_transport_ep *ep,
                              const struct rdma_request *request);
/* The direct put with this number of a record: the peer's NIC does not let us write
 * there; our NIC is done with it, ok: and has heard from the peer's; and it has come. */
void rdma_direct_refused(struct shunt_transport_ep *ep, uint32_t sequence);
void rdma_direct_sent(struct shunt_transport_ep *ep, uint32_t sequence,
                      bool ok);
void rdma_direct_told(struct shunt_transport_ep *ep, uint32_t sequence);
/* Which memory of direct puts is given back when the connection ends. */
enum rdma_end {
    RDMA_END_UNPOSTED, /* of those that no NIC has */
    RDMA_END_LENT,     /* of those with `pending` */
    RDMA_END_ALL,
};
void rdma_end_directs(struct shunt_transport_ep *ep, enum rdma_end how);

#endif
