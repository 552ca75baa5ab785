// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange: each rank has a block for every peer and gets one from each.
 * Any block may be empty. Most collectives are built on it.
 *
 * An exchange has one round. A rank sends every peer a control message
 * (src/op/note.h), which contains the block for that peer if it is small, or
 * says where it is. The order is rank + 1, rank + 2, ..., so that the ranks do
 * not all address the same peer at once. As the peers' control messages arrive,
 * the rank copies their blocks straight from the senders' memory. The exchange
 * is done when this rank has all blocks, and its peers have all of its own.
 *
 * Every pair exchanges control messages, even if both blocks are empty, so that
 * ranks notice that they disagree. A message says what is sent and what is
 * expected in return, so both ranks find out. If a direction disagrees, both
 * ranks drop it: nothing is copied, and no rank waits for it.
 */
#ifndef SHUNTI_EXCHANGE_H
#define SHUNTI_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/payload_source.h"
#include "src/op/note.h"
#include "src/op/request.h"
#include "src/op/stream.h"
#include "src/op/zcopy.h"

struct shunti_coll;

/* The state of this rank's block for a peer (OUT), and of the peer's block for
 * this rank (IN). */
enum {
    SHUNTI_OUT_POST = 0, /* this rank's control message has not been sent */
    SHUNTI_OUT_STREAM,   /* the block is being sent */
    SHUNTI_OUT_SKIP,  /* the peer does not want the block: skip the chunks that
                         are reserved for it */
    SHUNTI_OUT_ACK,   /* the block is offered, but not acked yet */
    SHUNTI_OUT_ZCOPY, /* the block is put to the address in the peer's
                         message */
    SHUNTI_OUT_DONE,
};
enum {
    SHUNTI_IN_NOTE = 0, /* the peer's control message has not arrived */
    SHUNTI_IN_READY,    /* `source` can be read */
    SHUNTI_IN_DONE,
};

struct shunti_exchange_peer {
    const void *send;
    size_t send_bytes;
    void *recv;
    size_t recv_bytes;
    uint8_t out, in;
    bool dropped; /* the peer does not want this rank's block */
    bool bad;     /* the peer made another call, or expects other sizes */
    struct shunti_stream tx;
    struct shunti_source source;
    struct shunti_zcopy *zcopy; /* NULL: neither block is sent by zero copy */
};

struct shunti_exchange {
    uint64_t ticket;
    int posted;   /* number of control messages sent, in the order of
                     shunti_nth_out() */
    int out_open; /* number of peers not in SHUNTI_OUT_DONE */
    int in_open;  /* number of peers not in SHUNTI_IN_DONE */
    int in_unmet; /* number of peers in SHUNTI_IN_NOTE */
    bool own_done;
    bool zcopies; /* allow zero copy for large blocks */
    void *owned;  /* scratch memory, released at the end; or NULL */
    struct shunti_exchange_peer peers[]; /* (nranks); [rank]: this rank's own
                                          * block */
};

/* Bytes of the state of an exchange of `nranks` ranks. */
size_t shunti_exchange_bytes(int nranks);

/* Create a request that is just an exchange. The caller fills in peers[], which
 * is zeroed, and launches the request. The exchange copies this rank's own
 * block itself. */
enum shunt_status shunti_exchange_create(const struct shunti_coll *call,
                                         const struct shunti_class *class,
                                         uint32_t signature,
                                         struct shunt_request **request,
                                         struct shunti_exchange **exchange);

/* Functions for a class whose state is an exchange. */
enum shunt_status shunti_exchange_step(struct shunt_request *request);
bool shunti_exchange_awaits(const struct shunt_request *request, int peer);
size_t shunti_exchange_sent(const struct shunt_request *request, int peer);
bool shunti_exchange_pauses(const struct shunt_request *request);
void shunti_exchange_cleanup(struct shunt_request *request);

/*
 * The order of streams. Sending a control message reserves chunks in the ring,
 * and the ring delivers chunks in the order of reservation. So the control
 * messages to one peer must be sent in the order of the calls, or two ranks'
 * streams could wait for each other. Waiting for a free slot does not ensure
 * this: a slot may become free after one operation has looked, and before the
 * next one does. So an operation takes a ticket when it is created. It sends
 * its control message to a peer when it is that ticket's turn at the peer.
 */
uint64_t shunti_ticket(struct shunt_request *request);
/* True if it is the ticket's turn at `peer`, and a slot for a message is free
 * there. */
bool shunti_turn(struct shunt_request *request, int peer, uint64_t ticket);
/* Pass the turn at `peer` to the next ticket, because the control message has
 * been sent. */
void shunti_turn_over(struct shunt_request *request, int peer);

/*
 * The parts of an exchange, for classes that do something else with the
 * received blocks. Each function does what can be done now, and returns whether
 * it did anything.
 */
void shunti_exchange_init(struct shunti_exchange *x,
                          struct shunt_request *request);
/* Send this rank's control messages. */
bool shunti_exchange_post(struct shunt_request *request,
                          struct shunti_exchange *x);
/* Look for the control message of `peer`. If it has arrived, p->in becomes
 * SHUNTI_IN_READY, or SHUNTI_IN_DONE if the ranks disagree. */
bool shunti_exchange_meet(struct shunt_request *request,
                          struct shunti_exchange *x, int peer);
/* Compare `bytes`, this rank's size of a block, with the size in the note of
 * `peer`: of the block that `peer` sends, or of the one that it expects. If
 * they differ, record the error. */
bool shunti_agree_received(struct shunt_request *request, int peer,
                           const struct shunti_note *note, size_t bytes);
bool shunti_agree_sent(struct shunt_request *request, int peer,
                       const struct shunti_note *note, size_t bytes);
/* Report that all of the peer's block has been copied: send an ack if the peer
 * waits for one. */
void shunti_exchange_taken(struct shunt_request *request,
                           struct shunti_exchange *x, int peer);
/* Send blocks by stream and by zero copy, and look for acks. */
bool shunti_exchange_send(struct shunt_request *request,
                          struct shunti_exchange *x);

/* True if all that is missing are small control messages of other nodes, so no
 * peer waits for this rank. For shunti_class.pauses. */
bool shunti_exchange_is_still(const struct shunt_request *request,
                              const struct shunti_exchange *x);

/* The i-th peer (i = 0 .. nranks - 2). shunti_nth_out(): in the order in which
 * this rank sends control messages. shunti_nth_in(): in the order in which the
 * peers' messages are likely to arrive. */
int shunti_nth_out(const struct shunt_comm *comm, int i);
int shunti_nth_in(const struct shunt_comm *comm, int i);

#endif
