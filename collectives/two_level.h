// SPDX-License-Identifier: Apache-2.0
/*
 * Two levels: collectives of several nodes, in which most messages stay inside
 * a node. Messages between nodes are few and large (the 2DH order of Hwang et
 * al., "Tutel", 2022).
 *
 * A rank exchanges messages with its *local peers*, the other ranks of its
 * node, and with its *rail peers* (src/wire/nodes.h). With nodes of equal size
 * there is one rail peer on each other node. Where nodes differ in size, a rank
 * of the smaller node is the rail peer of several ranks of the larger one. The
 * two sets are disjoint, so one operation, which has one control message for
 * each pair, is enough for two phases, or more:
 *
 *     local peers first:  first between local peers, then between rail peers
 *                         (alltoall, reduce_scatter, allreduce, barrier)
 *     rail peers first:   first between rail peers, then between local peers
 *                         (allgather, broadcast)
 *
 * In place of one phase between rail peers there may be *rounds*. In round k = 0,
 * 1, ... a rank sends to its rail peers on the node 2^k behind its own, and
 * receives from those on the node 2^k before it. Each round is a phase. After
 * ceil(log2(nodes)) rounds a rank has what all nodes sent, directly or through
 * others (dissemination: Hensgen, Finkel, Manber, 1988). A rank sends no other
 * rank two control messages: the distances of the rounds differ, and are less
 * than the number of nodes. Rounds follow the phase between local peers
 * (allreduce, barrier), or precede it (allgather). Between a power of two of
 * nodes, rounds may also be in *pairs*: in round k two nodes whose numbers
 * differ in bit k send to each other.
 *
 * In rounds most pairs of ranks exchange no control messages. In other
 * operations ranks learn from them how many operations the peer has completed,
 * and so which slots are free (src/op/note.h). So in rounds each control message
 * carries the least such number of all ranks whose numbers have reached its
 * sender. At the end a rank knows the least number of all ranks. The number of
 * this rank may be news to a peer that is still in the operation, behind an
 * older one that waits for this rank's credit. So credits are left out as
 * always: when the peer's control messages say that it knows the number.
 *
 * The payload of a control message is a *package*. The packages of the second
 * phase are made when all packages of the first have arrived, and likewise in
 * later rounds. A *block* may follow a package as a second payload. A block
 * between local peers may be *late*: made from all packages and from the blocks
 * of rail peers. Late blocks are a third phase, without control messages. Blocks
 * between rail peers may be late, too: made from all packages. Then they are
 * the third phase, and late blocks between local peers are the fourth. Any two
 * ranks may also exchange a block *directly*, without regard to phases. An
 * operation in rounds has no blocks.
 *
 * Every rank learns of every bad call. A package of the second phase is sent
 * when all packages of the first have arrived and were correct. So a rank that
 * has all packages knows that every rank made the same call. A rank that learns
 * of a different or bad call sends an *alarm* (src/op/note.h) in place of its
 * packages. All ranks to which it has not sent anything yet get the alarm. So
 * every rank learns of the bad call, also one that waits for control messages
 * of all ranks. An alarm ends both directions between two ranks.
 *
 * A rank that cannot read what another one offers (a raw read fails) cannot
 * make its packages and late blocks. That rank raises an alarm, too. Peers that
 * have its control message already get the alarm as an ack, and pass it on in
 * the same way.
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
struct shunti_coll;
struct shunti_two_level;

enum shunti_phase {
    SHUNTI_PHASE_NONE, /* nothing is exchanged */
    SHUNTI_PHASE_FIRST,
    SHUNTI_PHASE_SECOND,
    /* local peers, and rounds of up to 2^31 nodes */
    SHUNTI_PHASE_LAST = SHUNTI_PHASE_FIRST + 31,
    SHUNTI_PHASE_DIRECT,
};

/* The order of phases. */
enum shunti_phases {
    SHUNTI_LOCALS_FIRST, /* local peers, then rail peers */
    SHUNTI_RAILS_FIRST,  /* rail peers, then local peers */
    /* only between several nodes: */
    SHUNTI_LOCALS_THEN_ROUNDS, /* local peers, then rounds */
    SHUNTI_ROUNDS_THEN_LOCALS, /* rounds, then local peers */
    SHUNTI_LOCALS_THEN_PAIRS,  /* local peers, then rounds in pairs */
};

/* The stages of an operation, in their order. An alarm may follow any of the
 * first four. */
enum shunti_stage {
    SHUNTI_STAGE_FIRST = 0,   /* packages before the last phase are missing */
    SHUNTI_STAGE_SECOND,      /* packages of the last phase may be sent */
    SHUNTI_STAGE_RAILS_READY, /* late blocks between rail peers are made, and
                                 may be sent */
    SHUNTI_STAGE_READY,       /* all late blocks are made, and may be sent */
    SHUNTI_STAGE_ALARM,       /* some rank made another call, or a bad one */
    SHUNTI_STAGE_ALARMED,     /* the alarm was also acked to the peers that have
                               this rank's message */
};

/* The control message that this rank sends to a peer. An alarm may be sent in
 * its place. */
enum shunti_sending {
    SHUNTI_SENDING_NONE = 0, /* no message; the turn at the peer is not over */
    SHUNTI_SENDING_SKIPPED,  /* no message; the turn at the peer is over */
    SHUNTI_SENDING_DUE,      /* the message has not been sent */
    SHUNTI_SENDING_SENT,     /* the message, or an alarm, has been sent; the
                              * turn at the peer is over */
};

/* The control message of a peer, and its payloads. */
enum shunti_receiving {
    SHUNTI_RECEIVING_NONE = 0, /* no message is needed; look only for a bad
                                * one */
    SHUNTI_RECEIVING_AWAITED,  /* the message has not arrived */
    SHUNTI_RECEIVING_CLOSED, /* the message has not arrived. There was an alarm,
                                so the message's payloads are not copied. */
    SHUNTI_RECEIVING_ARRIVED, /* the message's payloads are being copied */
    SHUNTI_RECEIVING_DONE, /* this rank has all payload that it wants, and has
                              acked it; or there was an alarm */
};

enum { SHUNTI_PACKAGE, SHUNTI_BLOCK, SHUNTI_PAYLOADS };

enum shunti_outgoing_state {
    SHUNTI_OUTGOING_OPEN = 0,
    SHUNTI_OUTGOING_DROPPED, /* the peer does not want the payload. Parts on
                                which the peer relies, such as reserved chunks,
                                are still sent. */
    SHUNTI_OUTGOING_DONE,
};

enum shunti_incoming_state {
    SHUNTI_INCOMING_OPEN = 0,
    SHUNTI_INCOMING_UNWANTED, /* the payload is not copied, but its sender waits
                                 for an ack */
    SHUNTI_INCOMING_DONE, /* the payload has been copied, or no rank needs it */
};

struct shunti_outgoing {
    const void *data;
    size_t bytes;
    uint8_t way;
    /* The peer reads the payload from `data`. For a late payload in several
     * parts, see `in_place` of struct shunti_two_level. A payload in one piece
     * must be readable (src/op/payload_protocol.h), so that its sender can
     * compute meanwhile. */
    bool in_place;
    uint8_t state; /* enum shunti_outgoing_state */
    struct shunti_stream tx;
};

struct shunti_incoming {
    void *to;     /* destination; NULL: any memory, see `at` */
    void *room;   /* memory for a payload that is not inline, if `to` is NULL;
                     NULL: scratch memory */
    size_t bytes; /* expected size; the maximum of a package if x->varies */
    const unsigned char *at; /* address of a package that has arrived */
    void *owned;             /* scratch memory for the payload; or NULL */
    uint8_t state;           /* enum shunti_incoming_state */
    bool in_pieces;          /* a block that take_pieces() copies */
    struct shunti_source source;
};

/* The state of what this rank exchanges with one peer. */
struct shunti_peer_state {
    uint8_t phase;      /* enum shunti_phase: when the peer's package arrives */
    uint8_t send_phase; /* enum shunti_phase: when this rank's package is sent;
                         * differs from `phase` only in rounds */
    uint8_t sending;    /* enum shunti_sending; not NONE if a package is sent */
    uint8_t receiving;  /* enum shunti_receiving; not NONE if one arrives */
    uint8_t acked;      /* the stages that this rank has acked to the peer, as
                          bits */
    uint8_t acked_parts; /* how many ready parts this rank has acked to the
                            peer */
    size_t payload;      /* bytes of the caller's data in the package */
    struct shunti_zcopy *zcopy[2]; /* (SHUNTI_PAYLOADS); NULL: none */
    struct shunti_outgoing out[SHUNTI_PAYLOADS];
    struct shunti_incoming in[SHUNTI_PAYLOADS];
};

/* The handling of packages by a collective. Each hook may be NULL. */
struct shunti_two_level_hooks {
    /* The package of `peer` has arrived at in[SHUNTI_PACKAGE].at. Return false
     * if it is malformed. */
    bool (*arrived)(struct shunt_request *request, struct shunti_two_level *x,
                    int peer);
    /* All packages of phase x->complete have arrived: fill in the packages of
     * the next phase. */
    void (*turn)(struct shunt_request *request, struct shunti_two_level *x);
    /* Make the late blocks between rail peers, when all packages of all phases
     * have arrived without an error. */
    void (*rails_ready)(struct shunt_request *request,
                        struct shunti_two_level *x);
    /* Make the late blocks between local peers, when also the blocks of rail
     * peers have arrived without an error. */
    void (*ready)(struct shunt_request *request, struct shunti_two_level *x);
    /* Return how many parts of this rank's late blocks are ready. If all are,
     * the number may be larger than that of the parts. */
    size_t (*parts)(const struct shunti_two_level *x);
    /* Copy the first `parts` parts of the block of `peer`, by
     * shunti_source_pull_part(). Return true when all of the block has been
     * copied, or cannot be read. */
    bool (*take_parts)(struct shunt_request *request,
                       struct shunti_two_level *x, int peer, size_t parts);
    /* Copy the wanted pieces of a block with `in_pieces`, which is offered as
     * one range of the peer's memory, by shunti_source_pull_part(). Return true
     * when they have been copied, or cannot be read. Also called after an
     * alarm, when nothing more is needed. */
    bool (*take_pieces)(struct shunt_request *request,
                        struct shunti_two_level *x, int peer);
    /* Unpack a late block in parts, which was streamed to
     * in[SHUNTI_BLOCK].to. */
    void (*unpack)(struct shunt_request *request, struct shunti_two_level *x,
                   int peer);
    /* Finish the operation, when all transfers are complete without an
     * error. */
    void (*finish)(struct shunt_request *request, struct shunti_two_level *x);
};

struct shunti_two_level {
    const struct shunti_two_level_hooks *hooks;
    uint64_t ticket;
    /* If true, a word of the control message is `argument`, which must be the
     * same on all ranks. If false, that word is the size of the block. */
    bool agreed;
    uint64_t argument;
    bool varies; /* receivers know only the maximum size of packages */
    bool late;   /* blocks between local peers are late; all ranks know their
                    sizes */
    bool late_rails; /* with `late`: so are blocks between rail peers */
    /* Bytes of the memory in which a late block lies in parts. A local peer
     * copies the parts from there. If it cannot, the block is packed and
     * streamed. 0: late blocks are in one piece. */
    size_t in_place;
    /* Bytes of one part. With `in_place`, acks to local peers count the parts
     * of every block that are ready: up to 255, because an ack cannot count
     * more. */
    size_t part;
    uint8_t ready_parts; /* how many parts of this rank's late blocks are
                            ready */
    uint8_t stage;       /* enum shunti_stage */
    uint8_t phases;      /* number of phases, without DIRECT */
    uint8_t first_round; /* enum shunti_phase; NONE: there are no rounds */
    uint8_t complete;    /* number of phases before the last one whose packages
                       * have all arrived */
    bool turns_over; /* this rank's turn is over at all ranks (exchange.h) */
    struct shunti_blame blame; /* the reason of the alarm */
    /* In rounds: every rank whose number has reached this one had completed so
     * many operations when it entered this one. */
    uint64_t completed;
    /* number of packages of each phase that have not arrived */
    int missing[SHUNTI_PHASE_DIRECT];
    int npeers;
    int *order;  /* (npeers) the peers that have a phase */
    void *own;   /* the collective's own state, zeroed */
    void *owned; /* scratch memory, released at the end; or NULL */
    struct shunti_peer_state peer_states[]; /* (nranks) */
};

/*
 * Create a request of phases. The caller fills in out[] of the first phase,
 * and in[] as far as it is known. Then it adds direct blocks, and launches the
 * request.
 *
 * phases     the order of phases.
 * own_bytes  bytes of the collective's own state, x->own.
 */
enum shunt_status shunti_two_level_create(
    const struct shunti_coll *call, const struct shunti_class *class,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    enum shunti_phases phases, size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **x);

/* A package of this phase is sent to a node so many nodes behind. 0: the phase
 * is not a round. Not for rounds in pairs. */
int shunti_round_distance(const struct shunti_two_level *x, int phase);

/* In a round, a rank sends what it has of its own node and of those before it.
 * Returns how many nodes these are, so that nothing is sent twice. */
int shunti_round_nodes(const struct shunt_comm *comm, int distance);

/* The two-level state of a request. */
struct shunti_two_level *
shunti_two_level_of(const struct shunt_request *request);

/* True if there has been an alarm. Then the call fails on this rank. */
static inline bool shunti_two_level_alarmed(const struct shunti_two_level *x)
{
    return x->stage >= SHUNTI_STAGE_ALARM;
}

/* Add a block for `peer`, or from it. The block follows the package. If `peer`
 * is neither a local peer nor a rail peer, the block has a control message of
 * its own. */
void shunti_two_level_send_block(struct shunt_request *request, int peer,
                                 const void *data, size_t bytes);
void shunti_two_level_recv_block(struct shunt_request *request, int peer,
                                 void *to, size_t bytes);

/* Do not send this rank's block to `peer`, which does not want it. */
void shunti_two_level_drop_out(struct shunt_request *request, int peer);
/* Do not wait for the block of `peer`, which is not sent, or not wanted. */
void shunti_two_level_drop_in(struct shunt_request *request, int peer);

/* List the packages of the local peers, with `own` in the place of this rank, in
 * rank order. Returns how many there are. */
int shunti_two_level_locals(const struct shunt_comm *comm,
                            const struct shunti_two_level *x, const void *own,
                            const void **out);

/* Functions for classes of two-level requests. */
enum shunt_status shunti_two_level_step(struct shunt_request *request);
bool shunti_two_level_awaits(const struct shunt_request *request, int peer);
bool shunti_two_level_received(const struct shunt_request *request, int peer);
bool shunti_two_level_must_send(const struct shunt_request *request);
size_t shunti_two_level_sent(const struct shunt_request *request, int peer);
void shunti_two_level_cleanup(struct shunt_request *request);

/* The i-th rank of a node (i = 0 ..), counted from this rank's local index on.
 * So the ranks of one node do not all address the same peer at once. */
int shunti_nth_of_node(const struct shunt_comm *comm, int node, int i);

#endif
