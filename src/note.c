// SPDX-License-Identifier: Apache-2.0
/* Notes and acks; see note.h. This is the latency of every small call. */
#include "src/note.h"

#include <stdio.h>
#include <string.h>

#include "src/comm.h"
#include "src/whole.h"
#include "src/window.h"

_Static_assert(sizeof(struct shunti_note) == 64, "a note is one cache line");

static void prefetch_for_write(const void *at)
{
#if defined(__x86_64__)
    /* The builtin would only fetch it for reading, by the baseline's
     * instructions. Does nothing on CPUs that lack it. */
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

/* Offset, in the control window of the reader, of the slot that `writer` has
 * for operation `seq`. */
static size_t inbox_offset(const struct shunt_comm *comm, int writer,
                           uint64_t seq)
{
    const struct shunti_layout *l = &comm->layout;

    return l->inbox + (size_t)writer * l->inbox_stride +
           (size_t)(seq % SHUNTI_DEPTH) * l->slot_bytes;
}

/* The same for this operation. */
static size_t slot_offset(const struct shunt_request *request, int writer)
{
    return inbox_offset(request->comm, writer, request->seq);
}

static void learn(uint64_t *known, uint64_t completed)
{
    if (completed > *known)
        *known = completed;
}

/* What a peer whose memory is not mapped has told us last. */
static uint64_t credit_of(const struct shunt_comm *comm, int peer)
{
    return load_word(comm->control + comm->layout.words +
                     (size_t)peer * comm->layout.word_stride +
                     SHUNTI_WORD_CREDIT * 64);
}

/* Of a peer whose memory is not mapped: what it told us, and whether what we
 * wrote to the slot last matters still. */
static bool put_room(const struct shunt_request *request, int peer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct shunti_note *last =
        (const struct shunti_note *)(void *)(p->outbox +
                                             slot_of(request) *
                                                 comm->layout.slot_bytes);

    learn(&p->completed, credit_of(comm, peer));
    return request->seq <= p->completed + SHUNTI_DEPTH ||
           last->seq <= p->completed;
}

bool shunti_note_room(struct shunt_request *request, int peer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];

    /* Our own note of the operation that has the slot may still have to go out,
     * also where the peer has ended it without (all ranks refuse). */
    if (request->seq > comm->completed + SHUNTI_DEPTH)
        return false;
    if (request->seq <= p->completed + SHUNTI_DEPTH)
        return true;
    if (!p->control)
        return put_room(request, peer);
    /* Pairs with the release in request.c: once the peer has finished that
     * operation it does not look at the old note any more. */
    p->completed = load_word(p->control + comm->layout.completed);
    return request->seq <= p->completed + SHUNTI_DEPTH;
}

/* Has this peer written notes of operations after `seq`? */
static bool wrote_since(const struct shunt_comm *comm, int peer, uint64_t seq)
{
    for (uint64_t slot = 0; slot < SHUNTI_DEPTH; slot++)
        if (load_word(comm->control + inbox_offset(comm, peer, slot)) > seq)
            return true;
    return false;
}

/* Some operations after the last time, or, if it had written nothing since,
 * before it could have run out of slots; but always if we are about to wait. Of
 * operations that end without its note (all ranks refuse), the note may have
 * come after that look. */
static bool needs_credit(const struct shunt_comm *comm, int peer, bool waits)
{
    struct shunti_peer *p = &comm->peers[peer];

    if (comm->completed < p->told + SHUNTI_DEPTH / 4 ||
        (!waits && comm->completed < p->looked + SHUNTI_DEPTH))
        return false;
    if (wrote_since(comm, peer, p->told))
        return true;
    p->looked = comm->completed;
    return false;
}

static void give_credit(struct shunt_comm *comm, int peer)
{
    struct shunti_peer *p = &comm->peers[peer];

    p->told = comm->completed;
    p->looked = 0;
    shunti_control_put(comm, peer, 0, NULL, 0,
                       comm->layout.words +
                           (size_t)comm->rank * comm->layout.word_stride +
                           SHUNTI_WORD_CREDIT * 64,
                       comm->completed);
}

SHUNTI_APART void shunti_give_credits(struct shunt_comm *comm, bool waits)
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
    for (int r = 0; comm->peers && r < comm->nranks && !comm->failure; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r != comm->rank && p->ep && p->control_remote && !p->control &&
            p->told < comm->completed && p->transport->alive(p->ep))
            give_credit(comm, r);
    }
}

bool shunti_peer_completed(struct shunt_comm *comm, int peer, uint64_t seq)
{
    struct shunti_peer *p = &comm->peers[peer];

    learn(&p->completed, p->control
                             ? load_word(p->control + comm->layout.completed)
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
        slot = p->outbox + slot_of(request) * comm->layout.slot_bytes;
    ((struct shunti_note *)(void *)slot)->names = 0;
    return (struct shunti_note *)(void *)slot;
}

/*
 * Ask for the cache line that the next operation will write first: the peer
 * read it last, and to get it back is much of what a small note costs. It
 * happens while we wait for the answer to this one. (Claiming more lines than
 * the header's made notes of two and more lines slower.)
 */
static void claim_next(const struct shunt_request *request,
                       const struct shunti_peer *p)
{
    const struct shunti_layout *l = &request->comm->layout;
    size_t slot = (slot_of(request) + 1) % SHUNTI_DEPTH;

    prefetch_for_write(p->control + l->inbox +
                       (size_t)request->comm->rank * l->inbox_stride +
                       slot * l->slot_bytes);
}

static uint8_t lag_of(const struct shunt_request *request, uint64_t completed)
{
    uint64_t lag = request->seq - completed;

    return lag <= UINT8_MAX ? (uint8_t)lag : 0;
}

void shunti_note_send(struct shunt_request *request, int peer,
                      struct shunti_note *note, size_t behind)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];

    note->signature = request->signature;
    p->messages++;
    if (p->control) {
        store_word((unsigned char *)&note->seq, request->seq);
        p->transport->wake(p->ep);
        claim_next(request, p);
    } else {
        size_t at = slot_offset(request, comm->rank);

        note->seq = request->seq; /* for put_room() */
        note->lag = lag_of(request, comm->completed);
        note->known_lag = lag_of(request, p->completed);
        shunti_control_put(comm, peer, at + sizeof(note->seq),
                           (unsigned char *)note + sizeof(note->seq),
                           sizeof(*note) - sizeof(note->seq) + behind, at,
                           request->seq);
    }
}

static const struct shunti_note *slot_note(const struct shunt_request *request,
                                           int peer)
{
    const unsigned char *slot =
        request->comm->control + slot_offset(request, peer);

    if (load_word(slot) != request->seq)
        return NULL;
    return (const struct shunti_note *)(const void *)slot;
}

/* In the place of a note that will not come. */
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

/* Its note, or that there will be none; NULL: not there yet. The peer's count was
 * read before, so that a note which it wrote is there to be seen by now. */
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

static void describe(uint32_t signature, char *text, size_t size)
{
    static const char *const op_names[] = {"",     " sum", " min",
                                           " max", " avg", " prod"};
    static const char *const dtype_names[] = {"",      " i8",  " u8",  " i32",
                                              " u32",  " i64", " u64", " f16",
                                              " bf16", " f32", " f64", " fp8"};
    const char *purpose = shunti_purpose_name(signature);
    const unsigned kind = signature >> 24;
    unsigned dtype = signature >> 20 & 15, op = signature >> 16 & 15;
    char root[32] = "";

    if (purpose) {
        snprintf(text, size, "%s (its %s)", purpose, shunti_kind_name(kind));
        return;
    }
    if (kind == SHUNTI_KIND_BROADCAST || kind == SHUNTI_KIND_ALLREDUCE)
        snprintf(root, sizeof(root), ", %s %u",
                 kind == SHUNTI_KIND_BROADCAST ? "root" : "algorithm",
                 signature & 0xffff & ~SHUNTI_TWO_LEVEL);
    snprintf(text, size, "%s%s%s%s%s", shunti_kind_name(kind),
             dtype < sizeof(dtype_names) / sizeof(*dtype_names)
                 ? dtype_names[dtype]
                 : " ?",
             op < sizeof(op_names) / sizeof(*op_names) ? op_names[op] : " ?",
             root, signature & SHUNTI_TWO_LEVEL ? ", in two levels" : "");
}

SHUNTI_APART static void record_blame(struct shunt_request *request,
                                      const struct shunti_blame *blame)
{
    char theirs[100], ours[100];

    if (request->error && !request->hearsay)
        return;
    if (blame->status != SHUNT_ERR_MISMATCH) {
        shunti_request_error(
            request, SHUNT_ERR_REMOTE,
            "%s: rank %d's call failed there: %s (its shunt_last_error says "
            "more)",
            shunti_request_name(request), blame->rank,
            shunt_strerror(blame->status));
        return;
    }
    if (blame->signature == request->signature) {
        shunti_blame_argument(request, blame);
        return;
    }
    if ((blame->signature ^ request->signature) == SHUNTI_TWO_LEVEL &&
        blame->signature >> 24 == SHUNTI_KIND_ALLTOALL) {
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "alltoall: rank %d called with another count than "
                             "this rank",
                             blame->rank);
        return;
    }
    describe(blame->signature, theirs, sizeof(theirs));
    describe(request->signature, ours, sizeof(ours));
    shunti_request_error(request, SHUNT_ERR_MISMATCH,
                         "operation %llu: rank %d called %s, this rank %s",
                         (unsigned long long)request->seq, blame->rank, theirs,
                         ours);
}

/* What differs is a number of bytes, a digest of counts, or a plan. */
static bool has_counts(uint32_t signature)
{
    unsigned kind = signature >> 24;

    return kind == SHUNTI_KIND_ALLGATHERV ||
           kind == SHUNTI_KIND_REDUCE_SCATTERV;
}

static bool has_plan(uint32_t signature)
{
    unsigned kind = signature >> 24;

    return kind >= SHUNTI_KIND_MOE_DISPATCH &&
           kind <= SHUNTI_KIND_MOE_DISPATCH_BACKWARD;
}

static void blame_plan(struct shunt_request *request,
                       const struct shunti_blame *blame)
{
    const unsigned theirs = (unsigned)(blame->argument >> 32);
    const unsigned plan = (unsigned)(blame->argument & UINT32_MAX);
    const unsigned expected = (unsigned)(blame->expected & UINT32_MAX);

    if (theirs == blame->expected >> 32)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with plan number %u of this "
                             "exchange, rank %d with number %u (as they were "
                             "made, from 1)",
                             shunti_request_name(request), blame->rank, plan,
                             blame->accuser, expected);
    else
        shunti_request_error(
            request, SHUNT_ERR_MISMATCH,
            "%s: rank %d called with a plan of another exchange (made by "
            "operation %u) than rank %d (by operation %u): do all ranks make "
            "the calls of their layers in the same order?",
            shunti_request_name(request), blame->rank, theirs, blame->accuser,
            (unsigned)(blame->expected >> 32));
}

void shunti_blame_argument(struct shunt_request *request,
                           const struct shunti_blame *blame)
{
    if (has_plan(blame->signature))
        blame_plan(request, blame);
    else if (has_counts(blame->signature))
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d and rank %d called with different "
                             "counts",
                             shunti_request_name(request), blame->rank,
                             blame->accuser);
    else
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with %llu B, rank %d with "
                             "%llu B",
                             shunti_request_name(request), blame->rank,
                             (unsigned long long)blame->argument,
                             blame->accuser,
                             (unsigned long long)blame->expected);
}

static struct shunti_blame blame_of(const struct shunt_request *request,
                                    int peer, const struct shunti_note *note)
{
    struct shunti_blame blame = {
        .rank = peer,
        .accuser = request->comm->rank,
        .status = SHUNT_ERR_MISMATCH,
        .signature = note->signature,
    };

    if (note->way == SHUNTI_WAY_REFUSED) {
        blame.status = (enum shunt_status)note->status;
    } else if (note->way == SHUNTI_WAY_ALARM &&
               note->signature == request->signature) {
        blame.rank = note->blame.rank;
        blame.accuser = note->blame.accuser;
        blame.status = (enum shunt_status)note->blame.status;
        blame.signature = note->blame.signature;
        blame.argument = note->blame.argument;
        blame.expected = note->blame.expected;
    }
    return blame;
}

SHUNTI_APART static void record_bad(struct shunt_request *request, int peer,
                                    const struct shunti_note *note)
{
    struct shunti_blame blame = blame_of(request, peer, note);

    record_blame(request, &blame);
}

/* Somebody else has told us what it was, or nobody has. */
SHUNTI_APART static void record_absent(struct shunt_request *request, int peer)
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
    note->blame.accuser = blame->accuser;
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
        /* Who gives up ends its operations, too, and says so first. */
        if (shunti_comm_check(request->comm))
            return NULL;
        record_absent(request, peer);
        return note;
    }
    if (note && !p->control) {
        if (note->lag)
            learn(&p->completed, request->seq - note->lag);
        if (note->known_lag)
            learn(&p->told, request->seq - note->known_lag);
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

static void put_ack(struct shunt_request *request, int peer, unsigned answer)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    uint64_t value = request->seq << 8 | answer;
    size_t at = comm->layout.acks +
                (size_t)comm->rank * comm->layout.ack_stride +
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
 * The answer of `peer` to this operation's note; negative: none yet.
 *
 * The word of a slot may already hold the answer to the operation SHUNTI_DEPTH
 * later, if that was begun before we came to look here. Its note was sent when
 * the peer had finished this one, so everything was answered. (A refusal is
 * lost then; the peer has reported what it refused.)
 */
static int get_ack(const struct shunt_request *request, int peer, int passed)
{
    const struct shunt_comm *comm = request->comm;
    uint64_t word = load_word(comm->control + comm->layout.acks +
                              (size_t)peer * comm->layout.ack_stride +
                              slot_of(request) * 8);

    if (word >> 8 > request->seq)
        return passed;
    return word >> 8 == request->seq ? (int)(word & 0xff) : -1;
}

void shunti_ack(struct shunt_request *request, int peer,
                enum shunt_status status)
{
    put_ack(request, peer, status ? 1 : 0);
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
    int answer = get_ack(request, peer, 0);

    if (answer >= 0) {
        if (answer && !request->error) {
            shunti_request_error(
                request, SHUNT_ERR_MISMATCH,
                "%s: rank %d refused what this rank sent: it expected another "
                "size, could not read it, or could not pass it on (its "
                "shunt_last_error says which)",
                shunti_request_name(request), peer);
            request->hearsay = true;
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

static enum shunti_way locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes, uint64_t where[2])
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct shunti_window *window =
        p->control ? shunti_window_find(comm, data, bytes) : NULL;

    if (window) {
        where[0] = window->id;
        where[1] = (uint64_t)((const unsigned char *)data - window->addr);
        return SHUNTI_WAY_WINDOW;
    }
    where[1] = 0;
    if (p->caps & SHUNT_TRANSPORT_GET &&
        (bytes >= comm->tune.read_min || shunti_ways_read(comm, peer, bytes))) {
        where[0] = (uint64_t)(uintptr_t)data;
        return SHUNTI_WAY_READ;
    }
    where[0] = p->tx_reserved;
    p->tx_reserved += (bytes + comm->layout.chunk - 1) / comm->layout.chunk;
    return SHUNTI_WAY_STREAM;
}

enum shunti_way shunti_locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes, uint64_t where[2])
{
    const enum shunti_way way = locate(request, peer, data, bytes, where);

    shunti_request_way(request, peer, way);
    return way;
}

size_t shunti_eager(const struct shunt_comm *comm, int peer)
{
    return comm->peers[peer].control ? comm->tune.eager : comm->layout.eager;
}

static bool can_point(const struct shunt_comm *comm, int peer, const void *data,
                      size_t bytes)
{
    return comm->peers[peer].control && shunti_window_find(comm, data, bytes);
}

enum shunti_way shunti_note_fill(struct shunt_request *request, int peer,
                                 struct shunti_note *note, const void *data,
                                 size_t bytes, size_t *behind,
                                 uint64_t *stream_start)
{
    struct shunt_comm *comm = request->comm;
    enum shunti_way way = SHUNTI_WAY_INLINE;

    note->bytes = bytes;
    if (bytes <= SHUNTI_NOTE_BODY) {
        if (bytes)
            memcpy(note->body, data, bytes);
    } else if (bytes <= shunti_eager(comm, peer) &&
               (bytes < SHUNTI_WINDOW_MIN ||
                !can_point(comm, peer, data, bytes))) {
        *behind = bytes;
        memcpy(note + 1, data, bytes);
    } else {
        uint64_t where[2];

        way = shunti_locate(request, peer, data, bytes, where);
        memcpy(note->word, where, sizeof(where));
        *stream_start = where[0];
    }
    if (way == SHUNTI_WAY_INLINE) {
        comm->stats.bytes_inline += bytes;
        if (bytes)
            shunti_request_way(request, peer, way);
    }
    note->way = (uint8_t)way & 15;
    return way;
}

enum shunti_way shunti_offer(struct shunt_request *request, int peer,
                             const void *data, size_t bytes, size_t expects,
                             uint64_t *stream_start)
{
    struct shunti_note *note = shunti_note_compose(request, peer);
    size_t behind = 0;
    enum shunti_way way;

    note->expects = expects;
    way = shunti_note_fill(request, peer, note, data, bytes, &behind,
                           stream_start);
    shunti_note_send(request, peer, note, behind);
    return way;
}

const void *shunti_mapped(const struct shunt_comm *comm, int peer,
                          const uint64_t where[2], uint64_t bytes)
{
    const struct shunti_window *window = shunti_window_by_id(comm, where[0]);
    const struct shunti_window_peer *wp;

    if (!window)
        return NULL;
    wp = &window->peers[peer];
    if (!wp->map || where[1] > wp->bytes || bytes > wp->bytes - where[1])
        return NULL;
    return wp->map + where[1];
}

const void *shunti_note_mapped(const struct shunt_request *request, int peer,
                               const struct shunti_note *note)
{
    return shunti_mapped(request->comm, peer, note->word, note->bytes);
}
