// SPDX-License-Identifier: Apache-2.0
/*
 * Handshake: in dispatch, combine and their gradients, each rank sends its
 * peers a note that says where its memory is, and receives the notes of its
 * peers.
 *
 * In two levels a rank exchanges notes with its local peers and its rail peers
 * only. It sends to rail peers once the notes of all local peers have arrived.
 * So in one hop each rank learns of a bad call of any rank. If a local peer
 * makes a bad call, rail peers get an alarm instead of the note. Then nothing
 * else is exchanged with other nodes.
 */
#ifndef SHUNTI_HANDSHAKE_H
#define SHUNTI_HANDSHAKE_H

#include <stdbool.h>

#include "moe/plan.h"
#include "moe/plan/moe_call.h"
#include "src/op/note.h"

struct shunti_handshake_notes {
    bool direct; /* the peer's memory is mapped, and rows are written or read
                    there; otherwise rows go through rail peers */
    bool sent, received; /* this rank's note was sent; the peer's has arrived */
    bool stranger;       /* the peer gets a note only if a call fails:
                            shunti_handshake_skip() */
    bool answered;       /* the peer's ack has arrived, or no ack will come */
};

struct shunti_handshake {
    const struct shunti_moe_call *call;
    struct shunti_plan *plan;
    struct shunti_cut cut;
    struct shunti_remote rows, out; /* addresses of this rank's memory, for its
                                       notes */
    unsigned borrowed;   /* scratches in use as this memory, as bits 1 <<
                            buffer */
    bool local_received; /* notes of all local peers have arrived */
    /* True: a local peer made another call, or a bad one. */
    bool alarmed;
    struct shunti_blame blame; /* if alarmed: the peer at fault, and what is
                                  wrong */
    struct shunti_handshake_notes *notes; /* (nranks) */
};

/* Begin a handshake. notes: (nranks) zeroed. two_level: ranks of other nodes
 * are not `direct`. This rank's own entry is complete at once. */
void shunti_handshake_init(struct shunti_handshake *handshake,
                           struct shunti_handshake_notes *notes,
                           bool two_level);

/* Send this rank's note to `rank`. Do nothing if it was sent, if there is no
 * room for a note, or if it is too early for a rail peer. */
void shunti_handshake_send(struct shunt_request *request,
                           struct shunti_handshake *handshake, int rank);

enum shunti_handshake_result {
    SHUNTI_HANDSHAKE_NOTHING, /* no new note */
    SHUNTI_HANDSHAKE_CALL,    /* a note of the same call */
    SHUNTI_HANDSHAKE_BAD, /* a note of another call, or of a bad one; an error
                             is recorded */
};

/* Look for the note of `rank`. *note is the note that has arrived. */
enum shunti_handshake_result
shunti_handshake_receive(struct shunt_request *request,
                         struct shunti_handshake *handshake, int rank,
                         const struct shunti_note **note);

/*
 * Exchange no notes with `rank`, which is on another node and exchanges no rows
 * with this rank.
 *
 * But the exchange's other direction may have a route with more operations.
 * Then `rank` may be in a call of that direction, which waits for a note of
 * every rank. So `rank` gets a note after all as soon as any peer's note is of
 * another call.
 */
void shunti_handshake_skip(struct shunti_handshake *handshake, int rank);

/* True if the notes of all `direct` peers have arrived. */
bool shunti_handshake_has_locals(const struct shunti_handshake *handshake);

#endif
