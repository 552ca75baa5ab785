// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange: each rank has a block for every peer and gets one from each;
 * any of them may be empty. Most collectives are made of it.
 *
 * One round. A rank tells every peer where the block for it is, or sends it
 * along if it is small (note.h), in the order rank + 1, rank + 2, ..., so that
 * not all fall upon the same one. Then it takes what the others offer, as
 * their notes arrive, straight from where it lies: blocks are pulled by their
 * receivers. It is done when it has all blocks, and all of its own have been
 * taken.
 *
 * Every pair exchanges notes, also if it has nothing to exchange: that is how
 * ranks notice that they disagree. A note says what is sent and what is
 * expected in turn, so that both find out. A direction that disagrees is
 * dropped by both: nothing is taken, and nobody waits for it.
 */
#ifndef SHUNTI_EXCHANGE_H
#define SHUNTI_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/source.h"
#include "src/request.h"
#include "src/stream.h"
#include "src/zcopy.h"

/* How far we are with a peer. */
enum {
    SHUNTI_OUT_POST = 0, /* it has not had our note */
    SHUNTI_OUT_STREAM,   /* the block is being sent */
    SHUNTI_OUT_SKIP,     /* the peer does not want it; chunks are reserved */
    SHUNTI_OUT_ACK,      /* offered, not yet taken */
    SHUNTI_OUT_ZCOPY,    /* to be put where the peer's note says, or being so */
    SHUNTI_OUT_DONE,
};
enum {
    SHUNTI_IN_NOTE = 0, /* its note has not come */
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
    bool bad;     /* it made another call, or expected other sizes */
    struct shunti_stream tx;
    struct shunti_source source;
    struct shunti_zcopy *zcopy; /* of a block that goes or comes so; or NULL */
};

struct shunti_exchange {
    uint64_t ticket;
    int posted;   /* notes sent, in rotated order */
    int out_open; /* peers not SHUNTI_OUT_DONE */
    int in_open;  /* peers not SHUNTI_IN_DONE */
    int in_unmet; /* peers SHUNTI_IN_NOTE */
    bool own_done;
    bool zcopies; /* large blocks go, and come, by zero copy if that can be */
    void *owned;  /* scratch, put back at the end; or NULL */
    struct shunti_exchange_peer peers[]; /* (nranks); [rank]: our own block */
};

/* Bytes of a request's state that is an exchange of so many ranks. */
size_t shunti_exchange_bytes(int nranks);

/* A request that is nothing but an exchange. The caller fills in peers[]
 * (zeroed), then launches it. Copies our own block itself. */
enum shunt_status shunti_exchange_create(struct shunt_comm *comm,
                                         const struct shunti_class *class,
                                         uint32_t signature,
                                         struct shunt_request **request,
                                         struct shunti_exchange **exchange);

/* Functions for a class whose state is an exchange. */
enum shunt_status shunti_exchange_step(struct shunt_request *request);
bool shunti_exchange_awaits(const struct shunt_request *request, int peer);
size_t shunti_exchange_sent(const struct shunt_request *request, int peer);
void shunti_exchange_cleanup(struct shunt_request *request);

/*
 * The order of streams. Chunks are reserved when a note is sent, and the ring
 * carries them in this order: so the notes of collectives must reach a peer in
 * the order of the calls, or two ranks' streams could wait for each other. (A
 * note's room does not see to that: it may come between an operation's look
 * and the next one's.) An operation takes a ticket when it is created, and
 * sends its note to a peer when it is its turn there.
 */
uint64_t shunti_ticket(struct shunt_request *request);
/* Its turn, and the note has room. */
bool shunti_turn(struct shunt_request *request, int peer, uint64_t ticket);
/* The note has been sent. */
void shunti_turn_over(struct shunt_request *request, int peer);

/*
 * The parts, for classes that do something else with what they receive. Each
 * does what it can now, and says whether it did anything.
 */
void shunti_exchange_init(struct shunti_exchange *x,
                          struct shunt_request *request);
/* Tell peers of their blocks. */
bool shunti_exchange_post(struct shunt_request *request,
                          struct shunti_exchange *x);
/* See whose notes have come: they become READY, or DONE if they disagree. */
bool shunti_exchange_meet(struct shunt_request *request,
                          struct shunti_exchange *x, int peer);
/* This peer's block has been taken, all of it. */
void shunti_exchange_taken(struct shunt_request *request,
                           struct shunti_exchange *x, int peer);
/* Send streams, look for acks. */
bool shunti_exchange_send(struct shunt_request *request,
                          struct shunti_exchange *x);

/* The i-th peer in the order in which notes go out (i = 0 .. nranks - 2), and
 * in which they are likely to come in. */
int shunti_nth_out(const struct shunt_comm *comm, int i);
int shunti_nth_in(const struct shunt_comm *comm, int i);

#endif
