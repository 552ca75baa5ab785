// SPDX-License-Identifier: Apache-2.0
/*
 * Two levels: collectives of several nodes, in which most messages stay inside
 * a node, and those between nodes are few and large (the 2DH order of Hwang et
 * al., "Tutel", 2022).
 *
 * A rank exchanges messages with the ranks of its own node, its *local peers*,
 * and with its *rail peers*: the rank of each other node that is its rail peer,
 * and those whose rail peer it is (src/wire/nodes.h). With nodes of equal size that
 * is one on each node. Both sets are disjoint, so one operation, which has one
 * control message for each pair, is enough for two phases:
 *
 *     local peers first:  first between local peers, then between rail peers
 *                         (alltoall, reduce_scatter, allreduce, barrier)
 *     rail peers first:   first between rail peers, then between local peers
 *                         (allgather, broadcast)
 *
 * The payload of a control message is a *package*. The packages of the second
 * phase are made from those of the first, when all of these have arrived. A
 * *block* may follow a package as a second payload. One between local peers may
 * be *late*: made from all packages, and from the blocks of rail peers, which
 * is a third phase without control messages. Any two ranks may also exchange a
 * block *directly*, without regard to phases.
 *
 * Every rank learns of every bad call. A package of the second phase is sent
 * when all packages of the first have arrived and were correct. So a rank that
 * has all packages knows that every rank made the same call. A rank that learns
 * of a different or bad call sends an *alarm* (src/op/note.h) in place of its
 * packages to all ranks to which it has not sent anything yet. So every rank
 * learns of it, also one that waits for control messages of all ranks. An alarm
 * ends both directions between two ranks.
 *
 * A rank that cannot read what another one offers (a raw read fails) cannot
 * make its packages and late blocks. It raises an alarm, too. To peers that
 * have its control message already it reports the alarm by an ack, and they do
 * the same.
 */
#ifndef SHUNTI_TWO_LEVEL_H
#define SHUNTI_TWO_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/payload_source.h"
#include "src/op/note.h"
#include "src/op/request.h"
#include "src/op/stream.h"

struct shunt_comm;
struct shunti_two_level;

enum shunti_phase {
    SHUNTI_PHASE_NONE, /* nothing is exchanged */
    SHUNTI_PHASE_FIRST,
    SHUNTI_PHASE_SECOND,
    SHUNTI_PHASE_DIRECT,
};

enum { SHUNTI_PACKAGE, SHUNTI_BLOCK, SHUNTI_PAYLOADS };

struct shunti_outgoing {
    const void *data;
    size_t bytes;
    uint8_t way;
    /* The peer is to read it where it is. Late, and in several parts: see
     * `in_place` below; in one piece: readable (src/op/payload_protocol.h), for a sender that
     * computes meanwhile. */
    bool in_place;
    bool done;
    bool dropped; /* the peer does not want it */
    struct shunti_stream tx;
};

struct shunti_incoming {
    void *to;     /* destination; NULL: anywhere, `at` says where */
    void *room;   /* used if `to` is NULL and it is not in the control
                                message; NULL: scratch is taken then */
    size_t bytes; /* expected; maximum of a package if x->varies */
    const unsigned char *at; /* a package that has arrived */
    void *owned;             /* scratch for it; or NULL */
    bool done;
    bool in_pieces; /* a block: see take_pieces() */
    struct shunti_source source;
};

/* What is exchanged with one rank. */
struct shunti_peer_state {
    uint8_t phase;  /* enum shunti_phase */
    bool tells;     /* we send it a message; always in FIRST and SECOND */
    bool hears;     /* it sends us one; the same */
    bool told;      /* our message, or an alarm, has been sent */
    bool passed;    /* our turn at this rank is over (exchange.h) */
    bool met;       /* its message has arrived */
    uint8_t said;   /* stages that we have acked to it */
    uint8_t parts;  /* and how many parts are ready */
    bool unwanted;  /* its block has another size than we expect */
    bool taken;     /* we have all that we want from it, and have acked it */
    bool closed;    /* nothing is sent or taken: there was an alarm */
    size_t payload; /* the caller's bytes in the package */
    struct shunti_zcopy *zcopy[2]; /* (SHUNTI_PAYLOADS) NULL: no zero copy */
    struct shunti_outgoing out[SHUNTI_PAYLOADS];
    struct shunti_incoming in[SHUNTI_PAYLOADS];
};

/* What a collective does with packages. Each hook may be NULL. */
struct shunti_two_level_hooks {
    /* The package of `peer` has arrived: in[SHUNTI_PACKAGE].at. False: it is
     * malformed. */
    bool (*arrived)(struct shunt_request *request, struct shunti_two_level *x,
                    int peer);
    /* All packages of the first phase have arrived: fill in those of the
     * second. */
    void (*turn)(struct shunt_request *request, struct shunti_two_level *x);
    /* All packages of both phases, and the blocks of rail peers, have arrived
     * without an error: make the late blocks. */
    void (*ready)(struct shunt_request *request, struct shunti_two_level *x);
    /* The number of parts of our late blocks that are ready; more than all if
     * all are. */
    size_t (*parts)(const struct shunti_two_level *x);
    /* Take those of `peer` that are ready by shunti_source_pull_part(), the
     * first `parts`. True: all of the block is here, or cannot be read. */
    bool (*take_parts)(struct shunt_request *request,
                       struct shunti_two_level *x, int peer, size_t parts);
    /* A block with `in_pieces`, which is offered as one range of the peer's memory:
     * take what is wanted of it by shunti_source_pull_part(). True: it is here, or
     * cannot be read. Called also after an alarm, when nothing more is needed. */
    bool (*take_pieces)(struct shunt_request *request,
                        struct shunti_two_level *x, int peer);
    /* A late block in parts was streamed and is in in[SHUNTI_BLOCK].to. */
    void (*unpack)(struct shunt_request *request, struct shunti_two_level *x,
                   int peer);
    /* All transfers are complete, without an error. */
    void (*finish)(struct shunt_request *request, struct shunti_two_level *x);
};

struct shunti_two_level {
    const struct shunti_two_level_hooks *hooks;
    uint64_t ticket;
    /* If `agreed`, a word of the control message is `argument`, which must be
     * the same on all ranks; otherwise it is the bytes of the block. */
    bool agreed;
    uint64_t argument;
    bool varies; /* receivers know only the maximum size of packages */
    bool late;   /* blocks between local peers are; all know their sizes */
    /* Bytes of the memory in which a late block lies in parts: a local peer
     * takes the parts where they are. If it cannot, the block is packed and
     * streamed. 0: late blocks are in one piece. */
    size_t in_place;
    /* Then local peers are told how many parts are ready, each of so many bytes
     * of every block: up to 255, which is what an ack can count. */
    size_t part;
    uint8_t parts;   /* of ours that are ready */
    bool turned;     /* the second phase may be sent */
    bool is_ready;   /* late blocks may be sent */
    bool alarmed;    /* a rank made another or a bad call */
    bool said_so;    /* the alarm was acked to peers that had our message */
    bool passed_all; /* our turn is over at all ranks, with or without a peer */
    struct shunti_blame blame;
    int left[SHUNTI_PHASE_DIRECT]; /* packages of a phase that are missing */
    int nlegs;
    int *order;  /* (nlegs) the ranks with a peer */
    void *own;   /* the collective's own state, zeroed */
    void *owned; /* scratch, put back at the end; or NULL */
    struct shunti_peer_state peer_states[]; /* (nranks) */
};

/*
 * Create a request of two phases. The caller fills in the first phase's out[]
 * and what is known beforehand of in[], adds direct peers, then launches it.
 *
 * own_bytes  bytes of the collective's own state, x->own.
 */
enum shunt_status shunti_two_level_create(
    struct shunt_comm *comm, const struct shunti_class *class,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    bool locals_first, size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **x);

/* The state of the request. */
struct shunti_two_level *
shunti_two_level_of(const struct shunt_request *request);

/* Add a block for a rank, or from it. It follows the package, or, if the rank
 * is neither local peer nor rail peer, has a control message of its own. */
void shunti_two_level_send_block(struct shunt_request *request, int peer,
                                 const void *data, size_t bytes);
void shunti_two_level_recv_block(struct shunt_request *request, int peer,
                                 void *to, size_t bytes);

/* The peer does not want the block that we have for it. */
void shunti_two_level_drop_out(struct shunt_request *request, int peer);
/* The block that we expect from it is not sent, or not wanted. */
void shunti_two_level_drop_in(struct shunt_request *request, int peer);

/* Functions for classes of such requests. */
enum shunt_status shunti_two_level_step(struct shunt_request *request);
bool shunti_two_level_awaits(const struct shunt_request *request, int peer);
bool shunti_two_level_heard(const struct shunt_request *request, int peer);
bool shunti_two_level_owes(const struct shunt_request *request);
size_t shunti_two_level_sent(const struct shunt_request *request, int peer);
void shunti_two_level_cleanup(struct shunt_request *request);

/* The i-th rank of a node (i = 0 ..), starting at our own local index, so that
 * the ranks of our node do not all address the same one at once. */
int shunti_nth_of_node(const struct shunt_comm *comm, int node, int i);

#endif
