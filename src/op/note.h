// SPDX-License-Identifier: Apache-2.0
/*
 * Notes: the control messages that ranks exchange about an operation.
 *
 * Each control window has an inbox of SHUNTI_DEPTH slots for every peer. The
 * note of operation `seq` goes to slot seq % SHUNTI_DEPTH: a header of one
 * cache line, which has up to SHUNTI_NOTE_BODY bytes of body in it, and room
 * for `eager` bytes behind it. So a small message is one note and nothing else.
 * The header's seq word is written last (release) and read first (acquire).
 *
 * A slot is free for operation seq once both its owner and its writer have
 * completed operation seq - SHUNTI_DEPTH. Every rank publishes how many
 * operations it has completed, and a writer reads that word only when it would
 * otherwise have to wait. A writer that does not map the owner's memory is told
 * the number: by notes, and by credits where there are few notes. Only peers
 * that have written a note since the last credit get one: other slots hold
 * nothing new, and are free.
 *
 * The answer to a note is an ack, a word in the control window of the note's
 * sender: the payload was taken, or it was refused.
 *
 * Notes and acks are plain stores where memory is mapped, and the transport's
 * put elsewhere; callers see no difference.
 */
#ifndef SHUNTI_NOTE_H
#define SHUNTI_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "src/op/blame.h"
#include "src/op/request.h"

struct shunt_comm;

#define SHUNTI_DEPTH 16
#define SHUNTI_NOTE_BODY 32

/* The protocol by which the payload of a note comes. */
enum shunti_way {
    SHUNTI_WAY_NONE = 0, /* no payload; the body is the class's own */
    SHUNTI_WAY_INLINE,   /* in the note: in its body, or behind the header */
    SHUNTI_WAY_WINDOW,   /* in a window of the sender's: window, offset */
    SHUNTI_WAY_READ,     /* at an address of the sender's: get() reads it */
    SHUNTI_WAY_STREAM,   /* through the ring, from chunk `start` on */
    SHUNTI_WAY_ZCOPY,    /* put where the reader's note says: zcopy.h */
    SHUNTI_WAY_REFUSED,  /* none: the sender's call was wrong; body: status */
    SHUNTI_WAY_ALARM,    /* none: another rank's was: shunti_note_alarm() */
};

struct shunti_note {
    uint64_t seq; /* atomic */
    uint32_t signature;
    uint8_t way : 4;
    uint8_t second_way : 4; /* of another payload at word[2], if the class has
                             * one */
    /* Zero-copy: a bit for each payload of the reader's for which the sender
     * names a place. The names lie behind all that is inline: zcopy.h. */
    uint8_t names;
    /* seq minus the operations that the sender has completed, and minus those
     * that it knows the reader to have completed. 0: the difference is too
     * large. Used only where memory is not mapped. */
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
    uint64_t expects; /* bytes that the sender expects from the reader: both
                       * notice if they disagree */
};

/* May the note of this operation be written to `peer` now? */
bool shunti_note_room(struct shunt_request *request, int peer);

/* Send credits, which say how many operations this rank has completed, to the
 * peers that do not map our memory, have written notes since, and have not been
 * told for some time. waits: this rank is about to sleep, perhaps for a peer
 * that needs the credit to go on. */
void shunti_give_credits(struct shunt_comm *comm, bool waits);
/* Send them to all such peers, before this rank leaves: a peer that is still in
 * an operation must learn that this rank has completed it, and was not lost in
 * it. */
void shunti_say_completed(struct shunt_comm *comm);
/* Has the peer completed operation `seq`, as far as is known here? */
bool shunti_peer_completed(struct shunt_comm *comm, int peer, uint64_t seq);

/* The note to fill in: way, bytes, expects and body, and up to `eager` bytes
 * behind the header. Then send it. Needs shunti_note_room(). */
struct shunti_note *shunti_note_compose(struct shunt_request *request,
                                        int peer);

/* Send a composed note to `peer`. behind: bytes used behind the header. */
void shunti_note_send(struct shunt_request *request, int peer,
                      struct shunti_note *note, size_t behind);
/* The next note to `peer`, whose memory is mapped, will have as many bytes behind
 * the header: get their cache lines now. For ranks that send without waiting for
 * answers; where they wait, these lines come too early and cost more than they
 * save. */
void shunti_note_claim_behind(const struct shunt_request *request, int peer,
                              size_t behind);
/* Send it to a peer that does not map our memory, with the payload behind the
 * header, in up to SHUNT_TRANSPORT_PIECES pieces. Large ones are not copied
 * there if the transport can do without. */
void shunti_note_send_far(struct shunt_request *request, int peer,
                          struct shunti_note *note,
                          const struct shunt_transport_piece *payload);

/*
 * The note of this operation from `peer`, or NULL: not there yet. A refusal
 * and a disagreeing signature are recorded as errors of the request. So is a
 * peer that has completed the operation without a note for this rank: it made
 * another call (shunti_notes_may_lack()). After an error the caller must check
 * shunti_note_bad(), and expect nothing from that peer.
 */
const struct shunti_note *shunti_note_arrived(struct shunt_request *request,
                                              int peer);

/* May a call send no notes to some ranks? Only where every rank can read from
 * every other rank's memory which operations that one has completed. The same
 * answer on all ranks. */
bool shunti_notes_may_lack(const struct shunt_comm *comm);
/* Read those counts; in waits that are not short. */
void shunti_note_learn_completed(struct shunt_comm *comm);
/* `peer` need not send a note: if it has sent one, and it is bad, record the
 * error. */
void shunti_note_look(struct shunt_request *request, int peer);

/* The peer's note has arrived, and is a refusal, an alarm or of another call:
 * expect nothing from that peer. */
bool shunti_note_bad(const struct shunt_request *request, int peer);

/* Send an alarm, about another rank's bad call, to `peer` in the place of our
 * note. Needs shunti_note_room(). The peer treats it as a bad note. */
void shunti_note_alarm(struct shunt_request *request, int peer,
                       const struct shunti_blame *blame);
/* Which rank is to blame for the bad note of `peer`, and for what. */
struct shunti_blame shunti_note_blame(const struct shunt_request *request,
                                      int peer);
/* The payload of an INLINE note. */
const void *shunti_note_inline(const struct shunti_note *note);

/* Ack the note of `peer`: its payload was taken (SHUNT_OK), or refused. */
void shunti_ack(struct shunt_request *request, int peer,
                enum shunt_status status);

/* In its place: this rank has failed, and not all that it sends has been sent. */
void shunti_ack_failed(struct shunt_request *request, int peer);

/* Has `peer` acked our note? A refusal counts as an ack, and so does a bad note
 * of the peer's; both are recorded as errors. */
bool shunti_acked(struct shunt_request *request, int peer);
/* Is the peer's note there, or its ack of ours, whatever they say? */
bool shunti_answer_is_there(const struct shunt_request *request, int peer);

/*
 * Acks of an operation that has several stages: 16 bits. Of the lower eight
 * there is one for each stage, the last four of which report errors; the upper
 * eight may count. An ack replaces the one before, so it repeats that one's
 * bits. An operation uses either these acks or shunti_ack().
 */
void shunti_ack_stage(struct shunt_request *request, int peer, unsigned stage);

/* The stages that `peer` has acked; 0: none yet. If the peer is SHUNTI_DEPTH
 * operations further on: all stages, and no error. */
unsigned shunti_acked_stage(const struct shunt_request *request, int peer);

#endif
