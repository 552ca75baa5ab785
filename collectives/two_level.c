// SPDX-License-Identifier: Apache-2.0
/* Operations of two phases, inside nodes and between them; see two_level.h. */
#include "collectives/two_level.h"

#include <string.h>

#include "collectives/exchange.h"
#include "src/blame.h"
#include "src/comm.h"
#include "src/failure.h"
#include "src/nodes.h"
#include "src/offer.h"
#include "src/scratch.h"
#include "src/window.h"

struct shunti_two_level *
shunti_two_level_of(const struct shunt_request *request)
{
    return (struct shunti_two_level *)(void *)(uintptr_t)request->state;
}

bool shunti_is_partner(const struct shunt_comm *comm, int rank, int peer)
{
    return shunti_rail(comm, rank, comm->peers[peer].node) == peer ||
           shunti_rail(comm, peer, comm->peers[rank].node) == rank;
}

/* Stages of answers (note.h), as bits: we have all that we want of the peer;
 * our late block for it is ready. Bad news: what we want of it cannot be read;
 * there is an alarm, but our note for it is out already. */
enum { TAKEN = 0x01, READY = 0x02, UNREAD = 0x10, ALARM = 0x20 };

static bool is_pulled(uint8_t way)
{
    return way == SHUNTI_WAY_WINDOW || way == SHUNTI_WAY_READ;
}

static void say(struct shunt_request *request, struct shunti_leg *leg, int peer,
                unsigned stage)
{
    leg->said |= (uint8_t)stage;
    shunti_ack_stage(request, peer, leg->said);
}

/* What both ranks know the size of, and what is ready when it is offered. (Who
 * hears of an alarm may never make a late block.) */
static bool zcopy(const struct shunt_request *request, int peer, int k,
                  size_t bytes)
{
    const struct shunti_two_level *x = shunti_two_level_of(request);

    return shunti_zcopy_suits(request->comm, peer, bytes) &&
           (k == SHUNTI_BLOCK
                ? !x->late
                : !x->varies && x->legs[peer].phase != SHUNTI_PHASE_DIRECT);
}

/* --- making one ----------------------------------------------------------- */

static void add_leg(struct shunti_two_level *x, int peer,
                    enum shunti_phase phase)
{
    struct shunti_leg *leg = &x->legs[peer];

    leg->phase = (uint8_t)phase;
    x->order[x->nlegs++] = peer;
    if (phase != SHUNTI_PHASE_DIRECT)
        x->left[phase]++;
    leg->tells = leg->hears = phase != SHUNTI_PHASE_DIRECT;
}

int shunti_nth_of_node(const struct shunt_comm *comm, int node, int i)
{
    int size = shunti_node_size(comm, node);

    return shunti_node_ranks(comm, node)[(comm->local_rank + i) % size];
}

static void add_mates(struct shunti_two_level *x, const struct shunt_comm *comm,
                      enum shunti_phase phase)
{
    for (int i = 1; i < comm->local_size; i++)
        add_leg(x, shunti_nth_of_node(comm, comm->node, i), phase);
}

static void add_partners(struct shunti_two_level *x,
                         const struct shunt_comm *comm, enum shunti_phase phase)
{
    for (int n = 1; n < comm->nodes; n++) {
        int node = (comm->node + n) % comm->nodes;

        for (int i = 0; i < shunti_node_size(comm, node); i++) {
            int peer = shunti_nth_of_node(comm, node, i);

            if (shunti_is_partner(comm, comm->rank, peer))
                add_leg(x, peer, phase);
        }
    }
}

enum shunt_status shunti_two_level_create(
    struct shunt_comm *comm, const struct shunti_class *class,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    bool mates_first, size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **out)
{
    const size_t n = (size_t)comm->nranks;
    const size_t own = sizeof(struct shunti_two_level) +
                       n * (sizeof(struct shunti_leg) + sizeof(int));
    const size_t own_aligned = (own + 15) & ~(size_t)15;
    struct shunti_two_level *x;
    enum shunt_status st =
        shunti_request_create(comm, class, signature | SHUNTI_TWO_LEVEL,
                              own_aligned + own_bytes, request);

    if (st)
        return st;
    x = *out = shunti_two_level_of(*request);
    x->hooks = hooks;
    x->ticket = shunti_ticket(*request);
    x->order = (int *)(void *)(x->legs + n);
    x->own = (*request)->state + own_aligned;
    if (mates_first) {
        add_mates(x, comm, SHUNTI_PHASE_FIRST);
        add_partners(x, comm, SHUNTI_PHASE_SECOND);
    } else {
        add_partners(x, comm, SHUNTI_PHASE_FIRST);
        add_mates(x, comm, SHUNTI_PHASE_SECOND);
    }
    return SHUNT_OK;
}

static struct shunti_leg *leg_with(struct shunt_request *request, int peer)
{
    struct shunti_two_level *x = shunti_two_level_of(request);

    if (x->legs[peer].phase == SHUNTI_PHASE_NONE)
        add_leg(x, peer, SHUNTI_PHASE_DIRECT);
    return &x->legs[peer];
}

void shunti_two_level_send_block(struct shunt_request *request, int peer,
                                 const void *data, size_t bytes)
{
    struct shunti_leg *leg = leg_with(request, peer);

    leg->tells = true;
    leg->out[SHUNTI_BLOCK].data = data;
    leg->out[SHUNTI_BLOCK].bytes = bytes;
    if (zcopy(request, peer, SHUNTI_BLOCK, bytes))
        leg->hears = true; /* where it goes */
}

void shunti_two_level_recv_block(struct shunt_request *request, int peer,
                                 void *to, size_t bytes)
{
    struct shunti_leg *leg = leg_with(request, peer);

    leg->hears = true;
    leg->in[SHUNTI_BLOCK].to = to;
    leg->in[SHUNTI_BLOCK].bytes = bytes;
    if (zcopy(request, peer, SHUNTI_BLOCK, bytes))
        leg->tells = true; /* where it goes */
}

/* --- giving up ------------------------------------------------------------ */

static void drop(struct shunti_outgoing *out)
{
    out->dropped = true;
    if (out->way == SHUNTI_WAY_WINDOW || out->way == SHUNTI_WAY_READ)
        out->done = true;
}

/* Of ranks that are neither mates nor partners it is not known here whether their
 * note will come if we want nothing of them: neither a block nor a place for ours.
 * We only look, then. */
static void expect_less(struct shunt_request *request, int peer)
{
    struct shunti_leg *leg = &shunti_two_level_of(request)->legs[peer];
    const struct shunti_incoming *in = &leg->in[SHUNTI_BLOCK];
    const struct shunti_outgoing *out = &leg->out[SHUNTI_BLOCK];

    if (leg->phase == SHUNTI_PHASE_DIRECT)
        leg->hears =
            (in->bytes && !in->done) ||
            (!out->dropped && zcopy(request, peer, SHUNTI_BLOCK, out->bytes));
}

void shunti_two_level_drop_out(struct shunt_request *request, int peer)
{
    drop(&shunti_two_level_of(request)->legs[peer].out[SHUNTI_BLOCK]);
    expect_less(request, peer);
}

void shunti_two_level_drop_in(struct shunt_request *request, int peer)
{
    shunti_two_level_of(request)->legs[peer].in[SHUNTI_BLOCK].done = true;
    expect_less(request, peer);
}

/* Nothing more goes to or fro. */
static void close_leg(struct shunti_leg *leg)
{
    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        drop(&leg->out[k]);
        leg->in[k].done = true;
    }
    leg->taken = leg->closed = true;
}

/* There is an alarm: we take no late blocks any more, and make none. Ours that
 * are ready may be just what another rank needs, which is well and is to be so:
 * they stay until it has answered. */
static void forget_late(struct shunti_two_level *x)
{
    for (int i = 0; i < x->nlegs; i++) {
        struct shunti_leg *leg = &x->legs[x->order[i]];

        if (!x->is_ready)
            drop(&leg->out[SHUNTI_BLOCK]);
        leg->unwanted |= !leg->in[SHUNTI_BLOCK].done;
        leg->in[SHUNTI_BLOCK].done = true;
    }
}

static void raise_alarm(struct shunti_two_level *x,
                        const struct shunti_blame *blame)
{
    if (x->alarmed)
        return;
    x->blame = *blame;
    x->alarmed = true;
    if (x->late)
        forget_late(x);
}

/* Reads that fail are known to the reader alone: they are what blame names the
 * same rank for twice. */
static bool is_own_failure(const struct shunti_blame *blame)
{
    return blame->rank == blame->reporter;
}

static void raise_own_alarm(struct shunt_request *request,
                            struct shunti_two_level *x, int rank)
{
    struct shunti_blame blame = {.rank = rank,
                                 .reporter = rank,
                                 .status = SHUNT_ERR_REMOTE,
                                 .signature = request->signature};

    raise_alarm(x, &blame);
}

/* To those whom no note of ours can tell any more. */
static void say_alarm(struct shunt_request *request, struct shunti_two_level *x)
{
    x->said_so = true;
    for (int i = 0; i < x->nlegs && is_own_failure(&x->blame); i++) {
        struct shunti_leg *leg = &x->legs[x->order[i]];

        if (leg->told)
            say(request, leg, x->order[i], ALARM);
    }
}

/* Has anybody said so to us? */
static bool hear_alarm(struct shunt_request *request,
                       struct shunti_two_level *x)
{
    for (int i = 0; i < x->nlegs; i++) {
        const int peer = x->order[i];

        if (!x->legs[peer].told || !(shunti_acked_stage(request, peer) & ALARM))
            continue;
        if (!request->error) {
            shunti_request_error(
                request, SHUNT_ERR_REMOTE,
                "%s: rank %d could not read what it needed, or has heard so "
                "(its shunt_last_error says more)",
                shunti_request_name(request), peer);
            request->hearsay = true;
        }
        raise_own_alarm(request, x, peer);
        return true;
    }
    return false;
}

/* --- notes out ------------------------------------------------------------ */

static bool is_remote(const struct shunt_comm *comm, int peer)
{
    return comm->peers[peer].node != comm->node;
}

/* --- zero copy ------------------------------------------------------------ */

static struct shunti_zcopy *zcopy_of(struct shunt_request *request,
                                     struct shunti_leg *leg, int peer, int k)
{
    if (!leg->zcopy[k])
        leg->zcopy[k] = shunti_zcopy_create(request, peer, k);
    return leg->zcopy[k];
}

/* Where a package goes that may come to any place. */
static bool make_place(struct shunt_request *request,
                       struct shunti_incoming *in)
{
    if (!in->to)
        in->to = in->owned = shunti_scratch_get(in->bytes);
    if (!in->to)
        shunti_comm_fail(request->comm, SHUNT_ERR_MEMORY, request->comm->rank,
                         "%s: no memory for %zu bytes",
                         shunti_request_name(request), in->bytes);
    return in->to;
}

/* Name in our note where the peer's payloads go. False: the communicator has
 * failed. */
static bool name_places(struct shunt_request *request, struct shunti_leg *leg,
                        int peer, struct shunti_note *note, size_t *behind)
{
    *behind = (*behind + 7) & ~(size_t)7;
    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        struct shunti_incoming *in = &leg->in[k];
        struct shunti_zcopy *z;
        size_t length;

        if (in->done || !zcopy(request, peer, k, in->bytes))
            continue;
        z = make_place(request, in) ? zcopy_of(request, leg, peer, k) : NULL;
        length = z ? shunti_zcopy_name(z, in->to, in->bytes,
                                       (unsigned char *)(note + 1) + *behind)
                   : 0;
        if (!length)
            return false;
        note->names |= (uint8_t)(1u << k);
        *behind += length;
    }
    return true;
}

/* Bytes of a note that are behind its header, without the names. */
static size_t inline_bytes(const struct shunti_two_level *x,
                           const struct shunti_leg *leg,
                           const struct shunti_note *note)
{
    const size_t block =
        x->agreed ? leg->in[SHUNTI_BLOCK].bytes : (size_t)note->expects;

    return (note->way == SHUNTI_WAY_INLINE ? (size_t)note->bytes : 0) +
           (note->second_way == SHUNTI_WAY_INLINE ? block : 0);
}

/* Both notes are out: where do our payloads go? What the peer does not want, or not
 * of this size, is dropped. */
static void aim(struct shunt_request *request, struct shunti_two_level *x,
                int peer)
{
    struct shunti_leg *leg = &x->legs[peer];
    const struct shunti_note *note = shunti_note_arrived(request, peer);
    const size_t behind =
        note ? (inline_bytes(x, leg, note) + 7) & ~(size_t)7 : 0;
    const unsigned char *name = (const unsigned char *)(note + 1) + behind;

    if (!note || leg->closed)
        return;
    for (int k = 0; k < SHUNTI_PAYLOADS; k++) {
        struct shunti_outgoing *out = &leg->out[k];
        const bool named =
            note->names >> k & 1 && behind <= request->comm->layout.eager;
        struct shunti_zcopy *z = named ? zcopy_of(request, leg, peer, k) : NULL;
        const bool aimed =
            z && shunti_zcopy_aim(z, out->data, out->bytes, &name);

        if (request->comm->failure)
            return;
        if (out->way == SHUNTI_WAY_ZCOPY && !aimed)
            drop(out);
    }
}

/* --- payloads out --------------------------------------------------------- */

/* Put a payload into the note, or say where it is. */
static uint8_t put_payload(struct shunt_request *request, int peer,
                           struct shunti_outgoing *out,
                           struct shunti_note *note, int k, size_t *behind)
{
    struct shunt_comm *comm = request->comm;
    const bool is_late =
        k == SHUNTI_BLOCK && shunti_two_level_of(request)->late;
    uint64_t *where = &note->word[2 * k];

    where[0] = where[1] = 0;
    if (zcopy(request, peer, k, out->bytes)) {
        shunti_request_way(request, peer, SHUNTI_WAY_ZCOPY);
        return out->way = SHUNTI_WAY_ZCOPY;
    }
    if (!(is_late && out->bytes) &&
        *behind + out->bytes <= shunti_eager(comm, peer) &&
        !(k == SHUNTI_BLOCK && out->bytes >= SHUNTI_WINDOW_MIN &&
          comm->peers[peer].control &&
          shunti_window_find(comm, out->data, out->bytes))) {
        if (out->bytes) {
            memcpy((unsigned char *)(note + 1) + *behind, out->data,
                   out->bytes);
            shunti_request_way(request, peer, SHUNTI_WAY_INLINE);
        }
        *behind += out->bytes;
        comm->stats.bytes_inline += out->bytes;
        out->done = true;
        return SHUNTI_WAY_INLINE;
    }
    out->way =
        (uint8_t)shunti_locate(request, peer, out->data, out->bytes, where);
    if (out->way == SHUNTI_WAY_STREAM)
        out->tx =
            (struct shunti_stream){.start = where[0], .bytes = out->bytes};
    return out->way;
}

/* A late block that is pulled is so from here on. Others hear of it by their
 * streams. */
static void say_if_ready(struct shunt_request *request,
                         struct shunti_two_level *x, int peer)
{
    struct shunti_leg *leg = &x->legs[peer];

    if (x->late && x->is_ready && is_pulled(leg->out[SHUNTI_BLOCK].way))
        say(request, leg, peer, READY);
}

static void tell(struct shunt_request *request, struct shunti_two_level *x,
                 int peer)
{
    struct shunti_leg *leg = &x->legs[peer];
    struct shunti_note *note = shunti_note_compose(request, peer);
    size_t behind = 0;

    if (is_remote(request->comm, peer))
        request->comm->stats.bytes_remote +=
            leg->payload + leg->out[SHUNTI_BLOCK].bytes;
    note->bytes = leg->out[SHUNTI_PACKAGE].bytes;
    note->expects = x->agreed ? x->argument : leg->out[SHUNTI_BLOCK].bytes;
    note->way = put_payload(request, peer, &leg->out[SHUNTI_PACKAGE], note,
                            SHUNTI_PACKAGE, &behind) &
                15;
    note->second_way = put_payload(request, peer, &leg->out[SHUNTI_BLOCK], note,
                                   SHUNTI_BLOCK, &behind) &
                       15;
    if (!request->comm->peers[peer].control &&
        !name_places(request, leg, peer, note, &behind))
        return;
    shunti_note_send(request, peer, note, behind);
    leg->told = true;
    if (leg->met)
        aim(request, x, peer);
    say_if_ready(request, x, peer);
}

static void tell_alarm(struct shunt_request *request,
                       struct shunti_two_level *x, int peer)
{
    struct shunti_leg *leg = &x->legs[peer];

    shunti_note_alarm(request, peer, &x->blame);
    leg->told = true;
    for (int k = 0; k < SHUNTI_PAYLOADS; k++)
        leg->out[k].done = true;
    close_leg(leg);
}

/* What can be told to this rank now. */
static bool post_to(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    struct shunti_leg *leg = &x->legs[peer];
    struct shunti_peer *p = &request->comm->peers[peer];
    const bool waits = leg->phase == SHUNTI_PHASE_SECOND && !x->turned;

    if (!leg->passed && p->turn == x->ticket && !leg->tells) {
        shunti_turn_over(request, peer);
        leg->passed = true;
    }
    if (leg->told || (!leg->tells && !x->alarmed) || (waits && !x->alarmed))
        return false;
    /* An alarm reserves no chunks, but a note that would have done so must
     * not be overtaken by later ones. */
    if (leg->passed ? !shunti_note_room(request, peer)
                    : !shunti_turn(request, peer, x->ticket))
        return false;
    if (x->alarmed)
        tell_alarm(request, x, peer);
    else
        tell(request, x, peer);
    if (!leg->passed) {
        shunti_turn_over(request, peer);
        leg->passed = true;
    }
    return true;
}

/* Ranks in our order first: they wait for us. */
static bool post(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    bool moved = false;

    for (int i = 0; i < x->nlegs; i++)
        moved |= post_to(request, x, x->order[i]);
    if (x->passed_all && !x->alarmed)
        return moved;
    x->passed_all = true;
    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank)
            continue;
        if (x->legs[r].phase == SHUNTI_PHASE_NONE)
            moved |= post_to(request, x, r);
        x->passed_all &= x->legs[r].passed;
    }
    return moved;
}

/* Has the peer all that it wants of us? Its answer comes after the package. */
static bool answered(struct shunt_request *request, int peer)
{
    const unsigned stages = shunti_acked_stage(request, peer);

    if (stages & UNREAD)
        shunti_request_error(request, SHUNT_ERR_REMOTE,
                             "%s: rank %d could not read this rank's memory "
                             "(its shunt_last_error says why)",
                             shunti_request_name(request), peer);
    return stages & TAKEN;
}

/* By zero copy, once both notes are out. Who has a place relies on it. */
static bool put_straight(struct shunti_outgoing *out, struct shunti_zcopy *z)
{
    const size_t before = z ? z->done : 0;

    out->done = z && z->remote ? shunti_zcopy_send(z) : out->dropped;
    return out->done || (z && z->done != before);
}

static bool send_payload(struct shunt_request *request, int peer,
                         struct shunti_outgoing *out, struct shunti_zcopy *z)
{
    const size_t before = out->tx.done;
    const bool was_dropped = out->dropped;

    if (out->way == SHUNTI_WAY_ZCOPY)
        return put_straight(out, z);
    if (is_pulled(out->way)) {
        out->done = answered(request, peer);
    } else if (out->dropped) {
        out->done = shunti_stream_skip(request, peer, &out->tx);
    } else {
        out->done = shunti_stream_send(request, peer, &out->tx, out->data);
        /* Before the end: it does not want it. */
        out->dropped = !out->done && answered(request, peer);
    }
    /* What is dropped already may still have to wait for its turn. */
    return out->done || out->dropped != was_dropped || out->tx.done != before;
}

/* Streams, and acks. */
static bool send(struct shunt_request *request, struct shunti_two_level *x)
{
    bool moved = false;

    for (int i = 0; i < x->nlegs; i++) {
        struct shunti_leg *leg = &x->legs[x->order[i]];
        const int payloads =
            x->late && !x->is_ready && !x->alarmed ? 1 : SHUNTI_PAYLOADS;

        for (int k = 0; k < payloads && leg->told; k++)
            if (!leg->out[k].done)
                moved |= send_payload(request, x->order[i], &leg->out[k],
                                      leg->zcopy[k]);
    }
    return moved;
}

/* --- notes in ------------------------------------------------------------- */

/* All notes of a call must say the same. */
static bool agrees(struct shunt_request *request, struct shunti_two_level *x,
                   int peer, const struct shunti_note *note)
{
    struct shunti_blame blame = {
        .rank = peer,
        .reporter = request->comm->rank,
        .status = SHUNT_ERR_MISMATCH,
        .signature = request->signature,
        .argument = note->expects,
        .expected = x->argument,
    };

    if (shunti_note_bad(request, peer)) {
        blame = shunti_note_blame(request, peer);
    } else if (x->agreed && note->expects != x->argument) {
        shunti_blame_argument(request, &blame);
    } else {
        return true;
    }
    raise_alarm(x, &blame);
    return false;
}

/* What it should be, since both ranks know the call. If not, the peer's memory
 * is damaged, or its library another one. */
static bool is_package(struct shunt_request *request,
                       const struct shunti_two_level *x, int peer,
                       uint64_t bytes)
{
    const size_t expected = x->legs[peer].in[SHUNTI_PACKAGE].bytes;

    if (x->legs[peer].phase == SHUNTI_PHASE_DIRECT
            ? !bytes
            : bytes == expected || (x->varies && bytes < expected))
        return true;
    shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                     "%s: rank %d sends a package of %llu B, this rank expects "
                     "%s%zu B; do all ranks run the same version?",
                     shunti_request_name(request), peer,
                     (unsigned long long)bytes, x->varies ? "at most " : "",
                     expected);
    return false;
}

/* Where the payloads are that its note offers. */
static void open_payloads(struct shunt_request *request,
                          struct shunti_two_level *x, int peer,
                          const struct shunti_note *note)
{
    struct shunti_leg *leg = &x->legs[peer];
    struct shunti_incoming *package = &leg->in[SHUNTI_PACKAGE];
    struct shunti_incoming *block = &leg->in[SHUNTI_BLOCK];
    const unsigned char *behind = (const unsigned char *)(note + 1);
    const size_t block_bytes = x->agreed ? block->bytes : note->expects;
    size_t room = request->comm->layout.eager;
    bool well;

    well = is_package(request, x, peer, note->bytes);
    if (well) {
        package->bytes = note->bytes;
        well = shunti_source_open(request, peer, (enum shunti_way)note->way,
                                  &note->word[0], behind, room, package->bytes,
                                  &package->source);
    }
    if (well && note->way == SHUNTI_WAY_INLINE) {
        behind += package->bytes;
        room -= package->bytes;
    }
    if (block_bytes != block->bytes) {
        block->done = leg->unwanted = true;
    } else if (well) {
        well = shunti_source_open(
            request, peer, (enum shunti_way)note->second_way, &note->word[2],
            behind, room, block->bytes, &block->source);
    }
    if (!well) /* the communicator has failed */
        close_leg(leg);
}

static bool meet(struct shunt_request *request, struct shunti_two_level *x,
                 int peer)
{
    struct shunti_leg *leg = &x->legs[peer];
    const struct shunti_note *note;

    if (leg->met)
        return false;
    /* Who has nothing to say to us may have to say that it is not in it. */
    if (!leg->hears && !shunti_note_bad(request, peer))
        return false;
    note = shunti_note_arrived(request, peer);
    if (!note)
        return false;
    leg->met = true;
    if (!agrees(request, x, peer, note)) {
        close_leg(leg);
        return true;
    }
    open_payloads(request, x, peer, note);
    if (leg->told && !request->comm->failure)
        aim(request, x, peer);
    return true;
}

/* Where it is put is said with our own note. */
static bool pull(struct shunt_request *request, int peer,
                 struct shunti_incoming *in, const struct shunti_zcopy *z)
{
    if (in->source.way == SHUNTI_WAY_ZCOPY)
        return z && z->named && shunti_zcopy_arrived(z);
    return shunti_source_pull(request, peer, &in->source, in->to);
}

/* Have all that has come of a package; false: not yet. */
static bool take_package(struct shunt_request *request,
                         struct shunti_two_level *x, int peer)
{
    struct shunti_incoming *in = &x->legs[peer].in[SHUNTI_PACKAGE];
    const struct shunti_zcopy *z = x->legs[peer].zcopy[SHUNTI_PACKAGE];

    if (!in->to && in->source.way == SHUNTI_WAY_INLINE) {
        in->at = in->source.at;
        return true;
    }
    if (!make_place(request, in))
        return false;
    in->at = in->to;
    return pull(request, peer, in, z);
}

static bool take(struct shunt_request *request, struct shunti_two_level *x,
                 int peer)
{
    struct shunti_leg *leg = &x->legs[peer];
    struct shunti_incoming *package = &leg->in[SHUNTI_PACKAGE];
    struct shunti_incoming *block = &leg->in[SHUNTI_BLOCK];
    const size_t before = package->source.done + block->source.done;
    bool moved = false;

    if (!package->done && take_package(request, x, peer)) {
        package->done = moved = true;
        if (package->source.failed) {
            raise_own_alarm(request, x, request->comm->rank);
            block->done = leg->taken = true; /* but not what it takes of us */
            say(request, leg, peer, TAKEN | UNREAD);
            return true;
        }
        if (leg->phase != SHUNTI_PHASE_DIRECT)
            x->left[leg->phase]--;
        if (leg->phase != SHUNTI_PHASE_DIRECT && x->hooks->arrived &&
            !x->hooks->arrived(request, x, peer)) {
            shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                             "%s: rank %d sends a package of %zu B whose parts "
                             "are not as long; do all ranks run the same "
                             "version?",
                             shunti_request_name(request), peer,
                             package->bytes);
            return true;
        }
    }
    /* In the ring a block comes behind its package. */
    if (package->done && !block->done &&
        (!x->late || !is_pulled(block->source.way) ||
         shunti_acked_stage(request, peer) & READY))
        block->done = pull(request, peer, block, leg->zcopy[SHUNTI_BLOCK]);
    if (package->done && block->done) {
        leg->taken = true;
        if (is_pulled(package->source.way) || is_pulled(block->source.way) ||
            leg->unwanted)
            say(request, leg, peer,
                block->source.failed ? TAKEN | UNREAD : TAKEN);
        moved = true;
    }
    return moved || package->source.done + block->source.done != before;
}

static bool receive(struct shunt_request *request, struct shunti_two_level *x)
{
    bool moved = false;

    for (int i = x->nlegs - 1; i >= 0; i--) {
        struct shunti_leg *leg = &x->legs[x->order[i]];

        moved |= meet(request, x, x->order[i]);
        if (leg->met && !leg->taken)
            moved |= take(request, x, x->order[i]);
    }
    return moved;
}

/* --- the operation -------------------------------------------------------- */

static bool leg_open(const struct shunti_leg *leg)
{
    for (int k = 0; k < SHUNTI_PAYLOADS; k++)
        if (leg->tells && !leg->out[k].done)
            return true;
    return leg->hears && !leg->taken;
}

static bool all_done(const struct shunt_request *request,
                     const struct shunti_two_level *x)
{
    if (!x->passed_all)
        return false;
    for (int i = 0; i < x->nlegs; i++)
        if (leg_open(&x->legs[x->order[i]]))
            return false;
    for (int r = 0; r < request->comm->nranks && x->alarmed; r++)
        if (!x->legs[r].told && r != request->comm->rank)
            return false;
    return x->is_ready || x->alarmed;
}

/* From one phase to the next. */
static void advance(struct shunt_request *request, struct shunti_two_level *x)
{
    if (!x->turned && !x->left[SHUNTI_PHASE_FIRST]) {
        if (x->hooks->turn)
            x->hooks->turn(request, x);
        x->turned = true;
        if (request->comm->failure) /* no memory for the packages */
            return;
    }
    if (x->turned && !x->is_ready && !x->left[SHUNTI_PHASE_SECOND]) {
        if (x->hooks->ready)
            x->hooks->ready(request, x);
        x->is_ready = true;
        /* Whom we have not told yet (the note had no room), hears it then. */
        for (int i = 0; i < x->nlegs; i++)
            say_if_ready(request, x, x->order[i]);
    }
}

enum shunt_status shunti_two_level_step(struct shunt_request *request)
{
    struct shunti_two_level *x = shunti_two_level_of(request);
    bool moved;

    do {
        if (!x->alarmed)
            advance(request, x);
        if (request->comm->failure)
            return SHUNT_IN_PROGRESS;
        moved = post(request, x);
        moved |= send(request, x);
        moved |= receive(request, x);
        if (x->alarmed && !x->said_so)
            say_alarm(request, x);
        if (all_done(request, x)) {
            if (!x->alarmed && x->hooks->finish)
                x->hooks->finish(request, x);
            return SHUNT_OK;
        }
        if (!moved && !x->alarmed)
            moved = hear_alarm(request, x);
    } while (moved && !request->comm->failure);
    return SHUNT_IN_PROGRESS;
}

bool shunti_two_level_awaits(const struct shunt_request *request, int peer)
{
    return leg_open(&shunti_two_level_of(request)->legs[peer]);
}

/* Of a rank without a leg nothing is known: it is not the one we wait for. */
bool shunti_two_level_heard(const struct shunt_request *request, int peer)
{
    const struct shunti_leg *leg = &shunti_two_level_of(request)->legs[peer];

    return leg->met || !leg->hears;
}

/* Nobody can tell its node anything of the second phase, nor of later calls,
 * before it has all packages of the first. Who is alone on a node has nobody to
 * tell there: it may have left those calls, and take a package much later. */
static bool alone_on_node(const struct shunt_comm *comm, int rank)
{
    return shunti_node_size(comm, comm->peers[rank].node) == 1;
}

bool shunti_two_level_owes(const struct shunt_request *request)
{
    const struct shunti_two_level *x = shunti_two_level_of(request);

    for (int i = 0; i < x->nlegs; i++) {
        const struct shunti_leg *leg = &x->legs[x->order[i]];
        const struct shunti_outgoing *package = &leg->out[SHUNTI_PACKAGE];

        if (leg->phase == SHUNTI_PHASE_FIRST && !is_pulled(package->way) &&
            !package->done && !alone_on_node(request->comm, x->order[i]))
            return true;
    }
    return false;
}

size_t shunti_two_level_sent(const struct shunt_request *request, int peer)
{
    const struct shunti_leg *leg = &shunti_two_level_of(request)->legs[peer];

    return leg->out[SHUNTI_PACKAGE].bytes + leg->out[SHUNTI_BLOCK].bytes;
}

void shunti_two_level_cleanup(struct shunt_request *request)
{
    struct shunti_two_level *x = shunti_two_level_of(request);

    for (int i = 0; i < x->nlegs; i++)
        shunti_scratch_put(request->comm,
                           x->legs[x->order[i]].in[SHUNTI_PACKAGE].owned);
    shunti_scratch_put(request->comm, x->owned);
}
