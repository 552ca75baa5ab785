// SPDX-License-Identifier: Apache-2.0
/* The state that a communicator keeps for each of its ranks. */
#ifndef SHUNTI_PEER_H
#define SHUNTI_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "src/wire/pair_costs.h"

struct shunti_context;

/*
 * init_connect.c, init_control.c and init_nodes.c fill in the connection, the
 * control window and the node; these do not change after init. Each other field
 * names the file that writes it.
 */
struct shunti_peer {
    const struct shunt_transport *transport; /* NULL for this rank itself */
    struct shunti_context *context;
    struct shunt_transport_ep *ep;
    unsigned caps;
    unsigned char *control; /* the peer's control window; NULL: not mapped */
    struct shunt_transport_remote *control_remote;
    /* If the peer is not mapped: copies of the notes and chunks put to its
     * control window; a part of context->outboxes. */
    unsigned char *outbox;
    /* Numbers of operations completed; note.c writes them. */
    uint64_t completed; /* completed by the peer, as far as this rank knows */
    /* completed by this rank: the last number that the peer got in a credit, or
     * confirmed in a note; only if not mapped */
    uint64_t reported;
    /* completed by this rank when it last found that the peer needs no
     * credit */
    uint64_t looked;
    /* Numbers of chunks; stream.c writes them. */
    uint64_t tx_reserved, tx_head; /* reserved for the peer, and sent to it */
    uint64_t rx_tail;              /* received from the peer */
    uint64_t rx_reported; /* value of rx_tail that was last sent to the peer */
    uint64_t tx_consumed; /* received by the peer, as this rank last read */
    uint64_t messages;    /* messages sent to the peer: shunt_peer_stats */
    /* bytes put to the peer: shunt_peer_stats; counted by wire.c, zcopy.c and
     * moe/route/rails.c */
    uint64_t bytes_put;
    /* collectives/exchange.c: the ticket of the operation whose note is sent
     * next. */
    uint64_t turn;
    /* probe.c: number of this rank's latest probe that was sent to the peer,
     * and of the peer's latest probe that this rank answered. */
    uint64_t probed, replied;
    bool lost; /* the transport reported that the peer is gone */
    /* wire.c: the transport had no room in this round of
     * shunti_control_retry() */
    bool full;
    int node, local; /* the peer's node, and its index in that node */
    /* costs of moving memory that is in no window: pair_costs.c */
    struct shunti_pair_costs costs;
    char how[48]; /* how the peer is reached, for reports: "shm (map, cma)" */
};

#endif
