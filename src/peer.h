// SPDX-License-Identifier: Apache-2.0
/* What a communicator knows of each of its ranks. */
#ifndef SHUNTI_PEER_H
#define SHUNTI_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "src/ways.h"

struct shunti_context;

/*
 * init_connect.c, init_control.c and init_nodes.c fill in the connection, the
 * control window and the node; they do not change after init. The file named
 * with each of the others writes it.
 */
struct shunti_peer {
    const struct shunt_transport *transport; /* NULL for this rank itself */
    struct shunti_context *context;
    struct shunt_transport_ep *ep;
    unsigned caps;
    unsigned char *control; /* its control window; NULL: it is not mapped */
    struct shunt_transport_remote *control_remote;
    /* Not mapped: copies of the notes and chunks that were put there; of
     * context->outboxes. */
    unsigned char *outbox;
    /* note.c: operations completed, */
    uint64_t completed; /* by the peer, as far as is known here */
    uint64_t told;      /* by us, as the peer knows for certain; not mapped */
    uint64_t looked;    /* by us, when we last checked whether to tell it */
    /* stream.c: chunk numbers, */
    uint64_t tx_reserved, tx_head; /* offered to the peer, sent to it */
    uint64_t rx_tail;              /* received from it, */
    uint64_t rx_told;              /* as the peer knows */
    uint64_t tx_consumed;          /* received by the peer, as we last saw */
    uint64_t messages;             /* sent: shunt_peer_stats */
    uint64_t bytes_put;            /* by wire.c: shunt_peer_stats */
    /* collectives/exchange.c: the ticket whose note goes out next. */
    uint64_t turn;
    /* probe.c: numbers of the latest probes, ours that it got and its that we
     * answered. */
    uint64_t probed, replied;
    bool lost; /* its transport said so */
    bool full; /* wire.c: no room, in this round of shunti_control_retry() */
    int node, local;         /* number of its node, index within it */
    struct shunti_ways ways; /* by which way raw memory goes: ways.c */
    char how[48];            /* "shm (map, cma)" */
};

#endif
