// SPDX-License-Identifier: Apache-2.0
/* Puts without a record, and the signal words that both sides know:
 * direct_puts.c. */
#ifndef SHUNT_RDMA_DIRECT_PUTS_H
#define SHUNT_RDMA_DIRECT_PUTS_H

#include <stdbool.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "transports/rdma/limits.h"

struct rdma_rail;
struct rdma_request;

/* Fields of the immediate of a direct put, from the lowest bit on: its word,
 * its turn, and the number of requests of this rail that have arrived. */
#define RDMA_WORD_BITS 5
#define RDMA_TURN_BITS 6
#define RDMA_ARRIVED_BITS 7 /* as many as RDMA_NUMBER_BITS */

#define RDMA_DIRECTS (1u << RDMA_TURN_BITS)
#define RDMA_NO_WORD ((1u << RDMA_WORD_BITS) - 1) /* no signal */
#define RDMA_WORDS RDMA_NO_WORD

/* A signal word that both sides know. */
struct rdma_known {
    uint64_t region, offset; /* region 0: no word */
    uint64_t value, step; /* its last value, and by how much that had grown */
};

/* A direct put whose payload NICs may still read from the caller's memory. */
struct rdma_direct {
    struct shunt_transport_remote *remote; /* referenced; NULL: no put here */
    const unsigned char *local;
    /* referenced; NULL: the memory was returned to the caller */
    struct shunt_transport_reg *reg;
    unsigned *pending;
    uint32_t sequence; /* number of the record that the put replaces */
    bool under_way;    /* a NIC still has the request */
    bool unconfirmed;  /* the peer has not reported the put as arrived */
};

/* Learn a word: a record has named its signal in full. Both sides call this in
 * the order of records. */
void rdma_word_learn(struct rdma_known *words, uint64_t region, uint64_t offset,
                     uint64_t value);
/* Make a direct put, if possible. True: *status is the result of
 * rdma_post(). False: another kind of put is needed. */
bool rdma_put_direct(struct shunt_transport_ep *ep,
                     const struct shunt_transport_put *put,
                     enum shunt_status *status);
/* Post a direct put again over this rail. If the peer's NIC refused the write,
 * or the caller's memory has been returned, report the put as missing. */
enum shunt_status rdma_repost_direct(struct rdma_rail *rail,
                                     const struct rdma_request *request);
/* Has the caller's memory been returned, although the peer has not refused the
 * put? */
bool rdma_direct_is_forgotten(struct shunt_transport_ep *ep,
                              const struct rdma_request *request);
/* Events of the direct put with this number. refused: the peer's NIC refused
 * it. sent: this rank's NIC has completed it, and if `ok`, the peer's NIC has
 * acknowledged it. confirmed: the peer has reported it as arrived. */
void rdma_direct_refused(struct shunt_transport_ep *ep, uint32_t sequence);
void rdma_direct_sent(struct shunt_transport_ep *ep, uint32_t sequence,
                      bool ok);
void rdma_direct_confirmed(struct shunt_transport_ep *ep, uint32_t sequence);
/* rdma_end_directs() ends these direct puts and returns their memory to the
 * callers, when the connection ends. */
enum rdma_end {
    RDMA_END_UNPOSTED, /* puts that no NIC has */
    RDMA_END_LENT,     /* puts with `pending` */
    RDMA_END_ALL,
};
void rdma_end_directs(struct shunt_transport_ep *ep, enum rdma_end how);

#endif
