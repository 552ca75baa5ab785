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
    uint64_t completed; /* by the peer, as far as this rank knows */
    uint64_t reported; /* by this rank, as the peer knows; only if not mapped */
    /* by this rank, when it last decided whether to report to the peer */
    uint64_t looked;
    /* Numbers of chunks; stream.c writes them. */
    uint64_t tx_reserved, tx_head; /* offered, and sent, to the peer */
    uint64_t rx_tail;              /* received from the peer */
    uint64_t rx_reported; /* received from the peer, as the peer knows */
    uint64_t tx_consumed; /* received by the peer, as last read here */
    uint64_t messages;    /* sent: shunt_peer_stats */
    uint64_t bytes_put;   /* by wire.c: shunt_peer_stats */
    /* collectives/exchange.c: the ticket of the operation whose note is sent
     * next. */
    uint64_t turn;
    /* probe.c: number of the latest probe of this rank that the peer received,
     * and of the peer's latest probe that this rank answered. */
    uint64_t probed, replied;
    bool lost; /* its transport reported that the peer is gone */
    /* wire.c: the transport had no room in this round of
     * shunti_control_retry() */
    bool full;
    int node, local; /* number of its node, index within it */
    /* how memory outside of windows is moved: pair_costs.c */
    struct shunti_pair_costs costs;
    char how[48]; /* "shm (map, cma)" */
};

#endif
