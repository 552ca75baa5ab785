// SPDX-License-Identifier: Apache-2.0
/* Notes and acks; see note.h. The latency of every small call depends on this
 * file. */
#include "src/op/note.h"

#include <stdio.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/comm.h"
#include "src/wire/failure.h"
#include "src/wire/wire.h"

/* Payload of at least so many bytes is sent from where it is, if the transport
 * can do that. Smaller payload is in a cache by then, and a further piece costs
 * more than the copy. */
#define TAIL_MIN 2048

_Static_assert(sizeof(struct shunti_note) == 64, "a note is one cache line");

static void prefetch_for_write(const void *at)
{
#if defined(__x86_64__)
    /* With the baseline's instructions the builtin would only prefetch for
     * reading. On CPUs without prefetchw the instruction does nothing. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

static uint64_t load_word(const unsigned char *at)
{
    return __atomic_load_n((const uint64_t *)(const void *)at,
                           __ATOMIC_ACQUIRE);
}

static void store_word(unsigned char *at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)at, value, __ATOMIC_RELEASE);
}

static size_t slot_of(const struct shunt_request *request)
{
    return (size_t)(request->seq % SHUNTI_DEPTH);
}

/* The offset, in the reader's control window, of the slot for `writer`'s note
 * of operation `seq`. */
static size_t inbox_offset(const struct shunt_comm *comm, int writer,
                           uint64_t seq)
{
    const struct shunti_layout *l = &comm->control.layout;

    return l->inbox + (size_t)writer * l->inbox_stride +
           (size_t)(seq % SHUNTI_DEPTH) * l->slot_bytes;
}

/* The offset of the slot for `writer`'s note of this operation. */
static size_t slot_offset(const struct shunt_request *request, int writer)
{
    return inbox_offset(request->comm, writer, request->seq);
}

static void learn(uint64_t *known, uint64_t completed)
{
    if (completed > *known)
        *known = completed;
}

/* The last credit that a peer whose memory is not mapped has sent. */
static uint64_t credit_of(const struct shunt_comm *comm, int peer)
{
    return load_word(comm->control.base + comm->control.layout.words +
                     (size_t)peer * comm->control.layout.word_stride +
                     SHUNTI_WORD_CREDIT * 64);
}

/* As shunti_note_room(), for a peer whose memory is not mapped. Checks the
 * peer's credit, and whether the peer still needs the note that this rank wrote
 * to the slot last. */
static bool put_room(const struct shunt_request *request, int peer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct shunti_note *last =
        (const struct shunti_note
             *)(void *)(p->outbox +
                        slot_of(request) * comm->control.layout.slot_bytes);

    learn(&p->completed, credit_of(comm, peer));
    return request->seq <= p->completed + SHUNTI_DEPTH ||
           last->seq <= p->completed;
}

bool shunti_note_room(struct shunt_request *request, int peer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];

    /* This rank may not have sent its note of the slot's previous operation
     * yet. The peer may have completed that operation without the note, because
     * all ranks refuse it. */
    if (request->seq > comm->operations.completed + SHUNTI_DEPTH)
        return false;
    if (request->seq <= p->completed + SHUNTI_DEPTH)
        return true;
    if (!p->control)
        return put_room(request, peer);
    /* Pairs with the release in operations.c: once the peer has completed the
     * slot's previous operation, it does not read the old note any more. */
    p->completed = load_word(p->control + comm->control.layout.completed);
    return request->seq <= p->completed + SHUNTI_DEPTH;
}

void shunti_note_all_completed(struct shunt_comm *comm, uint64_t completed)
{
    for (int r = 0; r < comm->nranks; r++)
        learn(&comm->peers[r].completed, completed);
}

/* Has this peer written notes of operations after `seq`? */
static bool wrote_since(const struct shunt_comm *comm, int peer, uint64_t seq)
{
    for (uint64_t slot = 0; slot < SHUNTI_DEPTH; slot++)
        if (load_word(comm->control.base + inbox_offset(comm, peer, slot)) >
            seq)
            return true;
    return false;
}

/* Does the peer need a credit? Only if it has written a note since the last
 * credit. The first check is SHUNTI_DEPTH / 4 operations after the last credit.
 * If a check finds no new note, all of the peer's slots are free, and suffice
 * for SHUNTI_DEPTH more operations. So the next check is SHUNTI_DEPTH
 * operations later, or when this rank is about to wait. One check is not
 * enough: if all ranks refuse an operation, it may end on this rank before the
 * peer's note arrives. */
static bool needs_credit(const struct shunt_comm *comm, int peer, bool waits)
{
    struct shunti_peer *p = &comm->peers[peer];

    if (comm->operations.completed < p->reported + SHUNTI_DEPTH / 4 ||
        (!waits && comm->operations.completed < p->looked + SHUNTI_DEPTH))
        return false;
    if (wrote_since(comm, peer, p->reported))
        return true;
    p->looked = comm->operations.completed;
    return false;
}

static void give_credit(struct shunt_comm *comm, int peer)
{
    struct shunti_peer *p = &comm->peers[peer];

    p->reported = comm->operations.completed;
    p->looked = 0;
    shunti_control_put_rare(comm, peer, 0, NULL, 0,
                            comm->control.layout.words +
                                (size_t)comm->rank *
                                    comm->control.layout.word_stride +
                                SHUNTI_WORD_CREDIT * 64,
                            comm->operations.completed);
}

SHUNTI_NOINLINE void shunti_give_credits(struct shunt_comm *comm, bool waits)
{
    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r != comm->rank && p->ep && !p->control &&
            needs_credit(comm, r, waits))
            give_credit(comm, r);
    }
}

void shunti_say_completed(struct shunt_comm *comm)
{
    for (int r = 0; comm->peers && r < comm->nranks && !comm->failure.status;
         r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r != comm->rank && p->ep && p->control_remote && !p->control &&
            p->reported < comm->operations.completed &&
            p->transport->alive(p->ep))
            give_credit(comm, r);
    }
}

bool shunti_peer_completed(struct shunt_comm *comm, int peer, uint64_t seq)
{
    struct shunti_peer *p = &comm->peers[peer];

    learn(&p->completed,
          p->control ? load_word(p->control + comm->control.layout.completed)
                     : credit_of(comm, peer));
    return p->completed >= seq;
}

struct shunti_note *shunti_note_compose(struct shunt_request *request, int peer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    unsigned char *slot;

    if (p->control)
        slot = p->control + slot_offset(request, comm->rank);
    else
        slot = p->outbox + slot_of(request) * comm->control.layout.slot_bytes;
    ((struct shunti_note *)(void *)slot)->names = 0;
    return (struct shunti_note *)(void *)slot;
}

/*
 * Prefetch the cache line that the next operation writes first. The peer read
 * that line last. Fetching the line back is a large part of a small note's
 * cost, and now overlaps with the wait for the answer. (Prefetching more lines
 * than the header's made notes of two and more lines slower.)
 */
static void claim_next(const struct shunt_request *request,
                       const struct shunti_peer *p)
{
    prefetch_for_write(p->control + inbox_offset(request->comm,
                                                 request->comm->rank,
                                                 request->seq + 1));
}

void shunti_note_claim_behind(const struct shunt_request *request, int peer,
                              size_t behind)
{
    const unsigned char *next =
        request->comm->peers[peer].control +
        inbox_offset(request->comm, request->comm->rank, request->seq + 1);

    for (size_t at = 0; at < behind; at += 64)
        prefetch_for_write(next + sizeof(struct shunti_note) + at);
}

static uint8_t lag_of(const struct shunt_request *request, uint64_t completed)
{
    uint64_t lag = request->seq - completed;

    return lag <= UINT8_MAX ? (uint8_t)lag : 0;
}

static void complete_far(const struct shunt_request *request,
                         const struct shunti_peer *p, struct shunti_note *note)
{
    note->signature = request->signature;
    note->seq = request->seq; /* put_room() reads this */
    note->lag = lag_of(request, request->comm->operations.completed);
    note->known_lag = lag_of(request, p->completed);
}

void shunti_note_send(struct shunt_request *request, int peer,
                      struct shunti_note *note, size_t behind)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];

    p->messages++;
    if (p->control) {
        note->signature = request->signature;
        store_word((unsigned char *)&note->seq, request->seq);
        p->transport->wake(p->ep);
        claim_next(request, p);
    } else {
        size_t at = slot_offset(request, comm->rank);

        complete_far(request, p, note);
        (request->class->rare ? shunti_control_put_rare : shunti_control_put)(
            comm, peer, at + sizeof(note->seq),
            (unsigned char *)note + sizeof(note->seq),
            sizeof(*note) - sizeof(note->seq) + behind, at, request->seq);
    }
}

void shunti_note_send_far(struct shunt_request *request, int peer,
                          struct shunti_note *note,
                          const struct shunt_transport_piece *payload)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const size_t at = slot_offset(request, comm->rank);
    struct shunt_transport_piece tail[SHUNT_TRANSPORT_PIECES];
    size_t behind = 0;

    memcpy(tail, payload, sizeof(tail));
    for (int i = 0; i < SHUNT_TRANSPORT_PIECES && tail[i].bytes < TAIL_MIN;
         i++) {
        if (tail[i].bytes > 0)
            memcpy((unsigned char *)(note + 1) + behind, tail[i].data,
                   tail[i].bytes);
        behind += tail[i].bytes;
        tail[i].bytes = 0;
    }
    p->messages++;
    complete_far(request, p, note);
    shunti_control_put_tail(comm, peer, at + sizeof(note->seq),
                            (unsigned char *)note + sizeof(note->seq),
                            sizeof(*note) - sizeof(note->seq) + behind, tail,
                            at, request->seq);
}

static const struct shunti_note *slot_note(const struct shunt_request *request,
                                           int peer)
{
    const unsigned char *slot =
        request->comm->control.base + slot_offset(request, peer);

    if (load_word(slot) != request->seq)
        return NULL;
    return (const struct shunti_note *)(const void *)slot;
}

/* Stands for a note that will not arrive. */
static const struct shunti_note absent = {.way = SHUNTI_WAY_NONE};

bool shunti_notes_may_lack(const struct shunt_comm *comm)
{
    return comm->all_mapped && comm->nodes == 1;
}

void shunti_note_learn_completed(struct shunt_comm *comm)
{
    if (!shunti_notes_may_lack(comm))
        return;
    for (int r = 0; r < comm->nranks; r++)
        if (r != comm->rank)
            (void)shunti_peer_completed(comm, r, 0);
}

/* The note of `peer`; &absent: there will be none; NULL: it has not arrived
 * yet. The slot is read again after the peer's count of completed operations
 * (acquire). Then a note that was written before the count is visible. */
static const struct shunti_note *find_note(const struct shunt_request *request,
                                           int peer)
{
    const struct shunti_note *note = slot_note(request, peer);

    if (note || request->comm->peers[peer].completed < request->seq ||
        !shunti_notes_may_lack(request->comm))
        return note;
    note = slot_note(request, peer);
    return note ? note : &absent;
}

static bool is_bad(const struct shunt_request *request,
                   const struct shunti_note *note)
{
    return note->way == SHUNTI_WAY_REFUSED || note->way == SHUNTI_WAY_ALARM ||
           note->signature != request->signature;
}

static bool is_rank(const struct shunt_request *request, int rank)
{
    return rank >= 0 && rank < request->comm->nranks;
}

/* Are the ranks and the status in a bad note possible values? */
static bool is_sane(const struct shunt_request *request,
                    const struct shunti_note *note)
{
    if (note->way == SHUNTI_WAY_REFUSED)
        return shunti_is_error(note->status);
    return note->way != SHUNTI_WAY_ALARM ||
           note->signature != request->signature ||
           (is_rank(request, note->blame.rank) &&
            is_rank(request, note->blame.reporter) &&
            shunti_is_error(note->blame.status));
}

static struct shunti_blame blame_of(const struct shunt_request *request,
                                    int peer, const struct shunti_note *note)
{
    struct shunti_blame blame = {
        .rank = peer,
        .reporter = request->comm->rank,
        .status = SHUNT_ERR_MISMATCH,
        .signature = note->signature,
    };

    if (note->way == SHUNTI_WAY_REFUSED) {
        if (is_sane(request, note))
            blame.status = (enum shunt_status)note->status;
    } else if (note->way == SHUNTI_WAY_ALARM && is_sane(request, note) &&
               note->signature == request->signature) {
        blame.rank = note->blame.rank;
        blame.reporter = note->blame.reporter;
        blame.status = (enum shunt_status)note->blame.status;
        blame.signature = note->blame.signature;
        blame.argument = note->blame.argument;
        blame.expected = note->blame.expected;
    }
    return blame;
}

SHUNTI_NOINLINE static void record_bad(struct shunt_request *request, int peer,
                                       const struct shunti_note *note)
{
    struct shunti_blame blame;

    if (!is_sane(request, note)) {
        shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                         "%s: rank %d sends an error with a rank or a status "
                         "that cannot be; do all ranks run the same version?",
                         shunti_request_name(request), peer);
        return;
    }
    blame = blame_of(request, peer, note);
    shunti_blame_record(request, &blame);
}

/* Record that the note of `peer` will not arrive. Another rank's note may say
 * why: prefer its error. */
SHUNTI_NOINLINE static void record_absent(struct shunt_request *request,
                                          int peer)
{
    for (int r = 0; r < request->comm->nranks && !request->error; r++)
        if (r != request->comm->rank)
            shunti_note_look(request, r);
    if (!request->error)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "operation %llu: rank %d made another call than "
                             "this rank (%s), and has ended it",
                             (unsigned long long)request->seq, peer,
                             shunti_request_name(request));
}

void shunti_note_look(struct shunt_request *request, int peer)
{
    const struct shunti_note *note = slot_note(request, peer);

    if (note && is_bad(request, note))
        record_bad(request, peer, note);
}

struct shunti_blame shunti_note_blame(const struct shunt_request *request,
                                      int peer)
{
    const struct shunti_note *note = find_note(request, peer);

    return blame_of(request, peer, note ? note : &absent);
}

void shunti_note_alarm(struct shunt_request *request, int peer,
                       const struct shunti_blame *blame)
{
    struct shunti_note *note = shunti_note_compose(request, peer);

    note->way = SHUNTI_WAY_ALARM;
    note->bytes = note->expects = 0;
    note->blame.rank = blame->rank;
    note->blame.reporter = blame->reporter;
    note->blame.status = (int32_t)blame->status;
    note->blame.signature = blame->signature;
    note->blame.argument = blame->argument;
    note->blame.expected = blame->expected;
    shunti_note_send(request, peer, note, 0);
}

const struct shunti_note *shunti_note_arrived(struct shunt_request *request,
                                              int peer)
{
    const struct shunti_note *note = find_note(request, peer);
    struct shunti_peer *p = &request->comm->peers[peer];

    if (note == &absent) {
        /* A rank that ends the communicator also ends its operations, but
         * writes the abort word first. */
        if (shunti_comm_failed(request->comm))
            return NULL;
        record_absent(request, peer);
        return note;
    }
    if (note && !p->control) {
        if (note->lag)
            learn(&p->completed, request->seq - note->lag);
        if (note->known_lag)
            learn(&p->reported, request->seq - note->known_lag);
    }
    if (note && is_bad(request, note))
        record_bad(request, peer, note);
    return note;
}

bool shunti_note_bad(const struct shunt_request *request, int peer)
{
    const struct shunti_note *note = find_note(request, peer);

    return note && is_bad(request, note);
}

const void *shunti_note_inline(const struct shunti_note *note)
{
    return note->bytes <= SHUNTI_NOTE_BODY ? (const void *)note->body
                                           : (const void *)(note + 1);
}

/* The low bits of an ack word are the answer. The bits above are the number of
 * the operation. */
#define ACK_BITS 16

/* The answers of shunti_ack() and shunti_ack_failed(). */
enum { ACK_TAKEN, ACK_REFUSED, ACK_FAILED };

static void put_ack(struct shunt_request *request, int peer, unsigned answer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    uint64_t value = request->seq << ACK_BITS | answer;
    size_t at = comm->control.layout.acks +
                (size_t)comm->rank * comm->control.layout.ack_stride +
                slot_of(request) * 8;

    p->messages++;
    if (p->control) {
        store_word(p->control + at, value);
        p->transport->wake(p->ep);
    } else {
        shunti_control_put(comm, peer, 0, NULL, 0, at, value);
    }
}

/*
 * Returns the answer in the ack of `peer` to this operation's note. Negative:
 * no ack has arrived. `passed`: the ack has been overwritten.
 *
 * The slot's word may already hold the ack to the operation SHUNTI_DEPTH later,
 * if that operation began before this rank read the word. This rank sent the
 * note of that operation only after the peer had completed this one, so the
 * peer had acked everything. (If the lost ack was a refusal, only the peer
 * reports the error.)
 */
static int get_ack(const struct shunt_request *request, int peer, int passed)
{
    const struct shunt_comm *comm = request->comm;
    uint64_t word = load_word(comm->control.base + comm->control.layout.acks +
                              (size_t)peer * comm->control.layout.ack_stride +
                              slot_of(request) * 8);

    if (word >> ACK_BITS > request->seq)
        return passed;
    return word >> ACK_BITS == request->seq ? (int)(word % (1 << ACK_BITS))
                                            : -1;
}

void shunti_ack(struct shunt_request *request, int peer,
                enum shunt_status status)
{
    put_ack(request, peer, status ? ACK_REFUSED : ACK_TAKEN);
}

void shunti_ack_failed(struct shunt_request *request, int peer)
{
    put_ack(request, peer, ACK_FAILED);
}

void shunti_ack_stage(struct shunt_request *request, int peer, unsigned stage)
{
    put_ack(request, peer, stage);
}

unsigned shunti_acked_stage(const struct shunt_request *request, int peer)
{
    int answer = get_ack(request, peer, 0x0f);

    return answer < 0 ? 0 : (unsigned)answer;
}

bool shunti_acked(struct shunt_request *request, int peer)
{
    const struct shunti_note *note;
    int answer = get_ack(request, peer, ACK_TAKEN);

    if (answer >= 0) {
        if (answer == ACK_FAILED && !request->error) {
            shunti_request_error(request, SHUNT_ERR_REMOTE,
                                 "%s: rank %d failed in this call, and what it "
                                 "sends is missing (its shunt_last_error says "
                                 "why)",
                                 shunti_request_name(request), peer);
            request->second_hand = true;
        } else if (answer && !request->error) {
            shunti_request_error(
                request, SHUNT_ERR_MISMATCH,
                "%s: rank %d refused what this rank sent: it expected another "
                "size, could not read it, or could not pass it on (its "
                "shunt_last_error says which)",
                shunti_request_name(request), peer);
            request->second_hand = true;
        }
        return true;
    }
    note = slot_note(request, peer);
    if (note && is_bad(request, note)) {
        record_bad(request, peer, note);
        return true;
    }
    return false;
}

bool shunti_answer_is_there(const struct shunt_request *request, int peer)
{
    return get_ack(request, peer, 0) >= 0 || find_note(request, peer);
}
