// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange: each rank has a block for every peer and gets one from each;
 * any block may be empty. Most collectives are built on it.
 *
 * It has one round. A rank sends every peer a control message (src/op/note.h) that
 * says where the block for it is, or contains the block if that is small, in
 * the order rank + 1, rank + 2, ..., so that the ranks do not all address the
 * same peer at once. Then it takes the blocks that the others offer, as their
 * control messages arrive, straight from the sender's memory: receivers copy.
 * It is done when it has all blocks, and all of its own have been taken.
 *
 * Every pair exchanges control messages, even if both blocks are empty, so that
 * ranks notice that they disagree. A message says what is sent and what is
 * expected in return, so both ranks find out. If a direction disagrees, both
 * ranks drop it: nothing is taken, and no rank waits for it.
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

/* The state of our block for a peer, and of the peer's block for us. */
enum {
    SHUNTI_OUT_POST = 0, /* our control message has not been sent */
    SHUNTI_OUT_STREAM,   /* the block is being sent */
    SHUNTI_OUT_SKIP,     /* the peer does not want it, but chunks are
                          * reserved */
    SHUNTI_OUT_ACK,      /* offered, and not acked yet */
    SHUNTI_OUT_ZCOPY,    /* put, now or later, where the peer's message says */
    SHUNTI_OUT_DONE,
};
enum {
    SHUNTI_IN_NOTE = 0, /* its control message has not arrived */
    SHUNTI_IN_READY,    /* `source` can be taken */
    SHUNTI_IN_DONE,
};

struct shunti_exchange_peer {
    const void *send;
    size_t send_bytes;
    void *recv;
    size_t recv_bytes;
    uint8_t out, in;
    bool dropped; /* the peer does not want our block */
    bool bad;     /* it made another call, or expects other sizes */
    struct shunti_stream tx;
    struct shunti_source source;
    struct shunti_zcopy *zcopy; /* NULL: neither block is sent by zero copy */
};

struct shunti_exchange {
    uint64_t ticket;
    int posted;   /* control messages sent, in the order of shunti_nth_out() */
    int out_open; /* peers not SHUNTI_OUT_DONE */
    int in_open;  /* peers not SHUNTI_IN_DONE */
    int in_unmet; /* peers SHUNTI_IN_NOTE */
    bool own_done;
    bool zcopies; /* large blocks may be sent by zero copy */
    void *owned;  /* scratch, put back at the end; or NULL */
    struct shunti_exchange_peer peers[]; /* (nranks); [rank]: our own block */
};

/* Bytes of the state of a request that is an exchange of `nranks` ranks. */
size_t shunti_exchange_bytes(int nranks);

/* Create a request that is just an exchange. The caller fills in peers[]
 * (zeroed), then launches it. The exchange copies our own block itself. */
enum shunt_status shunti_exchange_create(struct shunt_comm *comm,
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
 * The order of streams. Chunks are reserved when a control message is sent, and
 * the ring delivers them in that order. So the control messages of collectives
 * must be sent to a peer in the order of the calls, or two ranks' streams could
 * wait for each other. (Waiting for a free slot does not ensure this: a slot
 * may become free after one operation has looked, and before the next one
 * does.) An operation takes a ticket when it is created, and sends its control
 * message to a peer when it is its turn there.
 */
uint64_t shunti_ticket(struct shunt_request *request);
/* Is it the ticket's turn, and is a slot free? */
bool shunti_turn(struct shunt_request *request, int peer, uint64_t ticket);
/* The control message has been sent: the turn passes to the next ticket. */
void shunti_turn_over(struct shunt_request *request, int peer);

/*
 * The parts of an exchange, for classes that do something else with the blocks
 * that they receive. Each does what can be done now, and returns whether it did
 * anything.
 */
void shunti_exchange_init(struct shunti_exchange *x,
                          struct shunt_request *request);
/* Send the peers our control messages. */
bool shunti_exchange_post(struct shunt_request *request,
                          struct shunti_exchange *x);
/* Look for the peer's control message: if it has arrived, the peer becomes
 * READY, or DONE if it disagrees. */
bool shunti_exchange_meet(struct shunt_request *request,
                          struct shunti_exchange *x, int peer);
/* Do this rank and `peer`, whose note this is, agree about the bytes that the
 * peer sends, and about those that it gets? If not, the error is recorded. */
bool shunti_agree_received(struct shunt_request *request, int peer,
                           const struct shunti_note *note, size_t bytes);
bool shunti_agree_sent(struct shunt_request *request, int peer,
                       const struct shunti_note *note, size_t bytes);
/* All of this peer's block has been taken. */
void shunti_exchange_taken(struct shunt_request *request,
                           struct shunti_exchange *x, int peer);
/* Send streams and zero-copy blocks, and look for acks. */
bool shunti_exchange_send(struct shunt_request *request,
                          struct shunti_exchange *x);

/* All that is missing are control messages of other nodes with what is small, so
 * no peer waits for this rank: shunti_class.pauses. */
bool shunti_exchange_is_still(const struct shunt_request *request,
                              const struct shunti_exchange *x);

/* The i-th peer (i = 0 .. nranks - 2) in the order in which control messages
 * are sent, and in which they are likely to arrive. */
int shunti_nth_out(const struct shunt_comm *comm, int i);
int shunti_nth_in(const struct shunt_comm *comm, int i);

#endif
