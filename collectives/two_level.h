// SPDX-License-Identifier: Apache-2.0
/*
 * Two levels: collectives of several nodes, in which most messages stay inside
 * a node, and few and large ones cross (the 2DH order of Hwang et al., "Tutel",
 * 2022).
 *
 * A rank talks to the ranks of its own node, its *local peers*, and to those of
 * other nodes of which it is the rail peer, or which are its own (nodes.h), its
 * *rail peers*: with equal nodes, one on each. Both sets are disjoint, so one
 * operation, which has one note for each pair, is enough for two phases:
 *
 *     local peers first:  a node's ranks tell each other, then rail peers
 *                         (alltoall, reduce_scatter, allreduce, barrier)
 *     rail peers first:   rail peers tell each other, then local peers
 *                         (allgather, broadcast)
 *
 * What a note brings is a *package*; the second phase's packages are made of
 * the first's, when all of those have come. A *block* may come with a package,
 * as a second payload of its own: at once; or *late*, made of all packages,
 * which is a third phase without notes. And any two ranks may agree to exchange
 * a block *directly*, without regard to phases.
 *
 * Nobody is left out. A package of the second phase is sent when all those of
 * the first have come and were in order: so who has all packages knows that
 * every rank made the same call. Who hears of a rank that did not tells
 * everyone whom it has not told anything yet, by an *alarm* (note.h), in the
 * place of its packages: so every rank hears of it, also one that waits
 * for notes of all ranks. An alarm ends both directions between two ranks.
 *
 * A rank that cannot read what another offers (a raw read fails) cannot make
 * its packages and late blocks: it raises an alarm, too, and says so by an ack
 * to those that it has told something already; they do the same.
 */
#ifndef SHUNTI_TWO_LEVEL_H
#define SHUNTI_TWO_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/source.h"
#include "src/note.h"
#include "src/request.h"
#include "src/stream.h"

struct shunt_comm;
struct shunti_two_level;

enum shunti_phase {
    SHUNTI_PHASE_NONE, /* no business with it */
    SHUNTI_PHASE_FIRST,
    SHUNTI_PHASE_SECOND,
    SHUNTI_PHASE_DIRECT,
};

enum { SHUNTI_PACKAGE, SHUNTI_BLOCK, SHUNTI_PAYLOADS };

struct shunti_outgoing {
    const void *data;
    size_t bytes;
    uint8_t way;
    bool done;
    bool dropped; /* the peer does not want it */
    struct shunti_stream tx;
};

struct shunti_incoming {
    void *to;                /* where to; NULL: wherever, and `at` says so */
    size_t bytes;            /* expected; of a package: at most, if x->varies */
    const unsigned char *at; /* a package that has come */
    void *owned;             /* scratch for it, if there had to be some */
    bool done;
    struct shunti_source source;
};

/* What we have to do with a rank. */
struct shunti_leg {
    uint8_t phase;  /* enum shunti_phase */
    bool tells;     /* we have a note for it; FIRST and SECOND: always */
    bool hears;     /* it has one for us; the same */
    bool told;      /* ours, or an alarm, is out */
    bool passed;    /* its turn at this rank is over (exchange.h) */
    bool met;       /* its has come */
    uint8_t said;   /* stages of our answer to it */
    bool unwanted;  /* its block is of another size than we expect */
    bool taken;     /* we have all that we want of it, and it knows */
    bool closed;    /* nothing goes to or fro: there was an alarm */
    size_t payload; /* of the package: bytes that are the caller's */
    struct shunti_zcopy *zcopy[2]; /* (SHUNTI_PAYLOADS) NULL: not that way */
    struct shunti_outgoing out[SHUNTI_PAYLOADS];
    struct shunti_incoming in[SHUNTI_PAYLOADS];
};

/* What a collective does with packages. */
struct shunti_two_level_hooks {
    /* The package of `peer` has come: in[SHUNTI_PACKAGE].at. False: it is not
     * in order. Or NULL. */
    bool (*arrived)(struct shunt_request *request, struct shunti_two_level *x,
                    int peer);
    /* All of the first phase have: fill in those of the second. Or NULL. */
    void (*turn)(struct shunt_request *request, struct shunti_two_level *x);
    /* All of both phases have come, and all is well: make the late blocks. Or
     * NULL. */
    void (*ready)(struct shunt_request *request, struct shunti_two_level *x);
    /* Nothing is under way any more, and all is well. Or NULL. */
    void (*finish)(struct shunt_request *request, struct shunti_two_level *x);
};

struct shunti_two_level {
    const struct shunti_two_level_hooks *hooks;
    uint64_t ticket;
    /* What must be the same on all ranks, in a word of the note; if it is not
     * `agreed`, the word is the bytes of the block instead. */
    bool agreed;
    uint64_t argument;
    bool varies;     /* receivers do not know how large packages are */
    bool late;       /* blocks are; of sizes that all know */
    bool turned;     /* the second phase may go out */
    bool is_ready;   /* late blocks may */
    bool alarmed;    /* somebody made another or a bad call */
    bool said_so;    /* to those that we had told something, if need be */
    bool passed_all; /* our turn is over at all ranks, with a leg or without */
    struct shunti_blame blame;
    int left[SHUNTI_PHASE_DIRECT]; /* packages of a phase that have not come */
    int nlegs;
    int *order;               /* (nlegs) ranks with which we have business */
    void *own;                /* the collective's own state, zeroed */
    void *owned;              /* scratch, put back at the end; or NULL */
    struct shunti_leg legs[]; /* (nranks) */
};

/*
 * A request of two phases. The caller fills in the first phase's out[] and all
 * that in[] should know beforehand, adds direct legs, then launches it.
 *
 * own_bytes  of the collective's own state, x->own.
 */
enum shunt_status shunti_two_level_create(
    struct shunt_comm *comm, const struct shunti_class *class,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    bool locals_first, size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **x);

/* Of the request. */
struct shunti_two_level *
shunti_two_level_of(const struct shunt_request *request);

/* A block for, or of, a rank: next to the package, or, if the rank is neither
 * local peer nor rail peer, by a note of its own. */
void shunti_two_level_send_block(struct shunt_request *request, int peer,
                                 const void *data, size_t bytes);
void shunti_two_level_recv_block(struct shunt_request *request, int peer,
                                 void *to, size_t bytes);

/* The peer does not want the block that we have for it. */
void shunti_two_level_drop_out(struct shunt_request *request, int peer);
/* The block that we expect of it does not come, or is not wanted. */
void shunti_two_level_drop_in(struct shunt_request *request, int peer);

/* Functions for classes of such requests. */
enum shunt_status shunti_two_level_step(struct shunt_request *request);
bool shunti_two_level_awaits(const struct shunt_request *request, int peer);
bool shunti_two_level_heard(const struct shunt_request *request, int peer);
bool shunti_two_level_owes(const struct shunt_request *request);
size_t shunti_two_level_sent(const struct shunt_request *request, int peer);
void shunti_two_level_cleanup(struct shunt_request *request);

/* The i-th rank of a node (i = 0 ..), beginning at our own local index: so that
 * not all of our node fall upon the same one. */
int shunti_nth_of_node(const struct shunt_comm *comm, int node, int i);

/* Is `peer`, of another node, a rail peer of `rank`? */
bool shunti_is_rail_peer(const struct shunt_comm *comm, int rank, int peer);

#endif
