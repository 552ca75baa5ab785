// SPDX-License-Identifier: Apache-2.0
/*
 * Notes: the control messages that ranks exchange about an operation.
 *
 * Each control window has an inbox of SHUNTI_DEPTH slots for every peer. The
 * note of operation `seq` is in slot seq % SHUNTI_DEPTH. A slot has a header of
 * one cache line, and room for `eager` bytes behind it. The header includes up
 * to SHUNTI_NOTE_BODY bytes of body. So a small message is one note and nothing
 * else. The header's seq word is written last (release) and read first
 * (acquire).
 *
 * A slot is free for operation seq once both its owner and its writer have
 * completed operation seq - SHUNTI_DEPTH. Every rank publishes how many
 * operations it has completed. A writer reads the owner's number only when it
 * would otherwise have to wait. If the writer does not map the owner's memory,
 * the owner sends the number: in its notes and, where there are few notes, in
 * credits. An operation may also find the least number of all ranks
 * (collectives/two_level.h). A peer gets a credit only if it has written a note
 * since the last credit: the slots of any other peer hold nothing new, and are
 * free.
 *
 * The answer to a note is an ack, a word in the control window of the note's
 * sender. An ack says that the payload was taken, or that it was refused.
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

/* The protocol that transfers the payload of a note. */
enum shunti_way {
    SHUNTI_WAY_NONE = 0, /* no payload; the class defines the body */
    SHUNTI_WAY_INLINE,   /* in the note: in its body, or behind the header */
    SHUNTI_WAY_WINDOW,   /* in a window of the sender: window, offset */
    SHUNTI_WAY_READ,     /* at an address of the sender, for get() */
    SHUNTI_WAY_STREAM,   /* through the ring, from chunk `start` on */
    SHUNTI_WAY_ZCOPY, /* put to the place that the reader's note has: zcopy.h */
    /* no payload: the sender's call was bad; body: its status */
    SHUNTI_WAY_REFUSED,
    /* no payload: the call of a rank other than the sender was bad:
     * shunti_note_alarm() */
    SHUNTI_WAY_ALARM,
};

struct shunti_note {
    uint64_t seq; /* number of the operation; atomic */
    uint32_t signature;
    uint8_t way : 4;
    /* protocol of a second payload at word[2], if the class has one */
    uint8_t second_way : 4;
    /* Zero copy: a bit for each payload of the reader for which the sender
     * names a place. The names follow all inline payload: zcopy.h. */
    uint8_t names;
    /* lag: seq minus the number of operations that the sender has completed.
     * known_lag: seq minus the number that the sender knows the reader to have
     * completed. 0: the difference is too large. Used only where memory is not
     * mapped. */
    uint8_t lag, known_lag;
    uint64_t bytes; /* number of bytes of payload */
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
    /* bytes that the sender expects from the reader; the reader compares them
     * with what it sends */
    uint64_t expects;
};

/* May the note of this operation be written to `peer` now? */
bool shunti_note_room(struct shunt_request *request, int peer);

/* Send credits. A credit says how many operations this rank has completed.
 * Credits are sent to peers that do not map this rank's memory, have written
 * notes since, and have got no credit for some time. waits: this rank is about
 * to sleep, perhaps for a peer that needs the credit to continue. */
void shunti_give_credits(struct shunt_comm *comm, bool waits);
/* Send a credit to every peer that does not map this rank's memory, before this
 * rank leaves. A peer that is still in an operation must learn that this rank
 * has completed it, and was not lost in it. */
void shunti_say_completed(struct shunt_comm *comm);
/* Has the peer completed operation `seq`, as far as this rank knows? */
bool shunti_peer_completed(struct shunt_comm *comm, int peer, uint64_t seq);

/* Returns a note for `peer`. The caller fills in way, bytes, expects and body,
 * and up to `eager` bytes behind the header, and then sends the note. Needs
 * shunti_note_room(). */
struct shunti_note *shunti_note_compose(struct shunt_request *request,
                                        int peer);

/* Send a composed note to `peer`. behind: bytes used behind the header. */
void shunti_note_send(struct shunt_request *request, int peer,
                      struct shunti_note *note, size_t behind);
/* Prefetch the cache lines behind the header of the next note to `peer`, whose
 * memory is mapped; `behind` is the number of bytes. For ranks that send
 * without waiting for answers. Ranks that wait lose by it: the lines arrive too
 * early, and cost more than they save. */
void shunti_note_claim_behind(const struct shunt_request *request, int peer,
                              size_t behind);
/* Send a composed note to a peer that does not map this rank's memory, with the
 * payload behind the header, in up to SHUNT_TRANSPORT_PIECES pieces. Large
 * pieces are not copied if the transport can send them from where they are. */
void shunti_note_send_far(struct shunt_request *request, int peer,
                          struct shunti_note *note,
                          const struct shunt_transport_piece *payload);

/*
 * Returns the note of this operation from `peer`; NULL: it has not arrived yet.
 *
 * In three cases this records an error of the request: the note is a refusal;
 * the signature of the note disagrees; or the peer made another call, and has
 * completed the operation without a note for this rank
 * (shunti_notes_may_lack()). After an error the caller must check
 * shunti_note_bad(), and expect nothing from that peer.
 */
const struct shunti_note *shunti_note_arrived(struct shunt_request *request,
                                              int peer);

/* May a call send no notes to some ranks? Only if every rank can read from
 * every other rank's memory which operations that rank has completed. The
 * answer is the same on all ranks. */
bool shunti_notes_may_lack(const struct shunt_comm *comm);
/* Read how many operations each peer has completed. For waits that are not
 * short. */
void shunti_note_learn_completed(struct shunt_comm *comm);
/* Record that every rank has completed at least so many operations. This says
 * nothing about what the peers know of this rank. */
void shunti_note_all_completed(struct shunt_comm *comm, uint64_t completed);
/* Record an error if `peer`, which need not send a note, has sent a bad one. */
void shunti_note_look(struct shunt_request *request, int peer);

/* Has the peer's note arrived, and is it a refusal, an alarm, or a note of
 * another call? Then expect nothing from that peer. */
bool shunti_note_bad(const struct shunt_request *request, int peer);

/* Send an alarm, about another rank's bad call, to `peer`, in the place of this
 * rank's note. Needs shunti_note_room(). The peer treats the alarm as a bad
 * note. */
void shunti_note_alarm(struct shunt_request *request, int peer,
                       const struct shunti_blame *blame);
/* The rank to blame for the bad note of `peer`, and the reason. */
struct shunti_blame shunti_note_blame(const struct shunt_request *request,
                                      int peer);
/* The payload of an INLINE note. */
const void *shunti_note_inline(const struct shunti_note *note);

/* Ack the note of `peer`. SHUNT_OK: the payload was taken. Any other status:
 * the payload was refused. */
void shunti_ack(struct shunt_request *request, int peer,
                enum shunt_status status);

/* Send a message in the place of an ack: this rank has failed, and has not sent
 * everything. */
void shunti_ack_failed(struct shunt_request *request, int peer);

/* Has `peer` acked this rank's note? A refusal counts as an ack, and so does a
 * bad note of the peer; both are recorded as errors. */
bool shunti_acked(struct shunt_request *request, int peer);
/* Has the peer's note, or its ack of this rank's note, arrived? The content
 * does not matter. */
bool shunti_answer_is_there(const struct shunt_request *request, int peer);

/*
 * Send an ack of an operation with several stages. Bits 0 to 3 of `stage` are a
 * bit for each stage, bits 4 to 7 a bit for each error, and bits 8 to 15 may
 * count. An ack replaces the one before, so it must repeat the bits of that
 * ack. An operation uses either these acks or shunti_ack().
 */
void shunti_ack_stage(struct shunt_request *request, int peer, unsigned stage);

/* The stages that `peer` has acked; 0: none yet. If the peer has already acked
 * the operation SHUNTI_DEPTH later, this returns all stages and no error. */
unsigned shunti_acked_stage(const struct shunt_request *request, int peer);

#endif
