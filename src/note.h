// SPDX-License-Identifier: Apache-2.0
/*
 * Notes: what ranks tell each other about an operation.
 *
 * Each rank has, in its control window, an inbox of SHUNTI_DEPTH slots for
 * every peer. The note of operation `seq` goes to slot seq % SHUNTI_DEPTH: one
 * cache line of header (with up to SHUNTI_NOTE_BODY bytes of body in it) and
 * room for `eager` bytes more, so that a small message is this note and
 * nothing else. The header's seq word is written last (release) and read first
 * (acquire).
 *
 * A slot is free for operation seq once its owner and its writer have finished
 * operation seq - SHUNTI_DEPTH: every rank publishes how far it is, and writers
 * look only when they would otherwise have to wait. Where they cannot look,
 * they are told: by notes, and, where these are few, by credits (request.c),
 * but only who has written something since: a slot that holds nothing new is
 * free.
 *
 * The answer to a note is an ack, a word in the note's sender's control
 * window: "I have taken what you offered" (or that it was refused).
 *
 * All of it works on mapped memory by plain stores, and otherwise by the
 * transport's put; callers do not see which.
 */
#ifndef SHUNTI_NOTE_H
#define SHUNTI_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/blame.h"
#include "src/request.h"

struct shunt_comm;

#define SHUNTI_DEPTH 16
#define SHUNTI_NOTE_BODY 32

/* Where the payload of a note is. */
enum shunti_way {
    SHUNTI_WAY_NONE = 0, /* no payload; the body is the class's own */
    SHUNTI_WAY_INLINE,   /* in the note: body if it fits, else behind it */
    SHUNTI_WAY_WINDOW,   /* in a window of the sender's: window, offset */
    SHUNTI_WAY_READ,     /* at an address of the sender's: get() reads it */
    SHUNTI_WAY_STREAM,   /* comes through the stream, from chunk `start` on */
    SHUNTI_WAY_ZCOPY,    /* will be put where the reader's note says: zcopy.h */
    SHUNTI_WAY_REFUSED,  /* the sender's call was wrong; body: enum status */
    SHUNTI_WAY_ALARM,    /* another rank's was: shunti_note_alarm() */
};

struct shunti_note {
    uint64_t seq; /* atomic */
    uint32_t signature;
    uint8_t way : 4;
    uint8_t second_way : 4; /* of another payload at word[2], if the class has
                             * one */
    uint8_t names; /* payloads of the reader's, as bits, whose places its sender
                    * names behind all that is inline: zcopy.h */
    /* seq minus what its sender has completed, and minus what it knows that the
     * reader has. 0: more than can be said; not where memory is mapped. */
    uint8_t lag, known_lag;
    uint64_t bytes; /* of payload */
    union {
        unsigned char body[SHUNTI_NOTE_BODY];
        uint64_t word[SHUNTI_NOTE_BODY / 8];
        struct {
            uint64_t window;
            uint64_t offset;
        } window;
        uint64_t address;
        uint64_t start;
        int64_t status;
        struct {
            int32_t rank, reporter;
            int32_t status;
            uint32_t signature;
            uint64_t argument, expected;
        } blame;
    };
    uint64_t expects; /* what the sender expects of the reader in turn: so both
                       * notice when they disagree */
};

/* May the note of this operation be written to `peer` now? */
bool shunti_note_room(struct shunt_request *request, int peer);

/* Tell peers that cannot see it how many operations we have completed, if they
 * have written notes and were not told for long. waits: we are about to sleep,
 * perhaps for somebody who needs that to go on. */
void shunti_give_credits(struct shunt_comm *comm, bool waits);
/* Tell them all, before we leave: who has completed an operation owes nothing
 * of it, and those that are still in it must not miss us. */
void shunti_say_completed(struct shunt_comm *comm);
/* Has the peer completed operation `seq`, as far as is known here? */
bool shunti_peer_completed(struct shunt_comm *comm, int peer, uint64_t seq);

/* Where to write it: fill way, bytes and body (and up to `eager` bytes behind
 * the header), then send. Only after shunti_note_room() said yes. */
struct shunti_note *shunti_note_compose(struct shunt_request *request,
                                        int peer);

/* Let `peer` see it. behind: bytes used behind the header. */
void shunti_note_send(struct shunt_request *request, int peer,
                      struct shunti_note *note, size_t behind);

/*
 * The note of this operation from `peer`, or NULL: not there yet. A refusal
 * and a disagreeing signature are recorded as errors of the request; the
 * caller must then look at shunti_note_bad() and expect nothing of that peer.
 * So is a peer that has ended the operation without a note for us, which only
 * some calls do (shunti_notes_may_lack()): it made another.
 */
const struct shunti_note *shunti_note_arrived(struct shunt_request *request,
                                              int peer);

/* May a call leave out its notes to some ranks? Only where every rank can see,
 * by the count of completed operations, that a rank has ended one. The same on
 * all ranks. */
bool shunti_notes_may_lack(const struct shunt_comm *comm);
/* Look at those counts; for those who wait for long. */
void shunti_note_learn_completed(struct shunt_comm *comm);
/* Of a peer whose note need not come: if there is one, and it is bad, that is
 * recorded. */
void shunti_note_look(struct shunt_request *request, int peer);

/* It arrived, and it was a refusal, an alarm or another call: expect
 * nothing. */
bool shunti_note_bad(const struct shunt_request *request, int peer);

/* Tell `peer`, in the place of our note, which it then does not get. Needs
 * shunti_note_room(). It counts as a bad note there. */
void shunti_note_alarm(struct shunt_request *request, int peer,
                       const struct shunti_blame *blame);
/* Whose fault the bad note of `peer` is. */
struct shunti_blame shunti_note_blame(const struct shunt_request *request,
                                      int peer);
/* The payload of an INLINE note. */
const void *shunti_note_inline(const struct shunti_note *note);

/* Answer a note of `peer`: taken (SHUNT_OK), or refused. */
void shunti_ack(struct shunt_request *request, int peer,
                enum shunt_status status);

/* Has `peer` answered ours? A refusal, or a peer that turns out to have made
 * another or a bad call, counts as an answer and is recorded as an error. */
bool shunti_acked(struct shunt_request *request, int peer);

/*
 * Acks of an operation that has several stages, as bits of a byte; each ack has
 * those before, which it replaces. The upper four bits are for bad news. Not
 * together with shunti_ack() in one operation.
 */
void shunti_ack_stage(struct shunt_request *request, int peer, unsigned stage);

/* The stages that came from `peer`; 0: none yet. All but the bad news if the
 * peer is long past this operation. */
unsigned shunti_acked_stage(const struct shunt_request *request, int peer);

#endif
