// SPDX-License-Identifier: Apache-2.0
/* One round of blocks between all pairs; see exchange.h. */
#include "collectives/exchange.h"
#include "collectives/coll_call.h"

#include "collectives/coll_state.h"
#include "collectives/digest.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/payload_protocol.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"

static struct shunti_exchange *exchange_of(const struct shunt_request *request)
{
    return (struct shunti_exchange *)(void *)(uintptr_t)request->state;
}

int shunti_nth_out(const struct shunt_comm *comm, int i)
{
    int peer = comm->rank + 1 + i;

    return peer < comm->nranks ? peer : peer - comm->nranks;
}

int shunti_nth_in(const struct shunt_comm *comm, int i)
{
    int peer = comm->rank - 1 - i;

    return peer >= 0 ? peer : peer + comm->nranks;
}

size_t shunti_exchange_bytes(int nranks)
{
    return sizeof(struct shunti_exchange) +
           (size_t)nranks * sizeof(struct shunti_exchange_peer);
}

uint64_t shunti_ticket(struct shunt_request *request)
{
    request->in_turn = true;
    return shunti_coll_state(request->comm)->tickets++;
}

bool shunti_turn(struct shunt_request *request, int peer, uint64_t ticket)
{
    return request->comm->peers[peer].turn == ticket &&
           shunti_note_room(request, peer);
}

void shunti_turn_over(struct shunt_request *request, int peer)
{
    request->comm->peers[peer].turn++;
}

void shunti_exchange_init(struct shunti_exchange *x,
                          struct shunt_request *request)
{
    x->ticket = shunti_ticket(request);
    x->out_open = x->in_open = x->in_unmet = request->comm->nranks - 1;
}

enum shunt_status shunti_exchange_create(const struct shunti_coll *call,
                                         const struct shunti_class *class,
                                         uint32_t signature,
                                         struct shunt_request **request,
                                         struct shunti_exchange **exchange)
{
    enum shunt_status st = shunti_request_create(
        call->comm, class, signature, call->options,
        shunti_exchange_bytes(call->comm->nranks), request);

    if (st)
        return st;
    *exchange = exchange_of(*request);
    shunti_exchange_init(*exchange, *request);
    (*exchange)->zcopies = true;
    return SHUNT_OK;
}

/* --- this rank's blocks --------------------------------------------------- */

static void out_done(struct shunti_exchange *x, int peer)
{
    x->peers[peer].out = SHUNTI_OUT_DONE;
    x->out_open--;
}

/* The peer does not want this rank's block. */
static void drop(struct shunti_exchange *x, int peer)
{
    struct shunti_exchange_peer *p = &x->peers[peer];

    p->dropped = true;
    if (p->out == SHUNTI_OUT_STREAM)
        p->out = SHUNTI_OUT_SKIP;
    else if (p->out == SHUNTI_OUT_ACK || p->out == SHUNTI_OUT_ZCOPY)
        out_done(x, peer);
}

/* --- zero copy ------------------------------------------------------------ */

static bool zcopy(const struct shunt_request *request,
                  const struct shunti_exchange *x, int peer, size_t bytes)
{
    return x->zcopies && !request->streams &&
           shunti_zcopy_suits(request->comm, peer, bytes);
}

/* Send this rank's control message, if one of the two blocks is sent by zero
 * copy. Returns false if the communicator has failed. */
SHUNTI_NOINLINE static bool offer_zcopy(struct shunt_request *request,
                                        struct shunti_exchange *x, int peer,
                                        enum shunti_way *way)
{
    struct shunti_exchange_peer *p = &x->peers[peer];
    struct shunti_note *note = shunti_note_compose(request, peer);
    size_t behind = 0;

    p->zcopy = shunti_zcopy_create(request, peer, 0);
    if (!p->zcopy)
        return false;
    note->expects = p->recv_bytes ^ request->digest;
    if (zcopy(request, x, peer, p->send_bytes)) {
        note->bytes = p->send_bytes;
        *way = note->way = SHUNTI_WAY_ZCOPY;
        shunti_request_way(request, peer, SHUNTI_WAY_ZCOPY);
    } else {
        *way = shunti_note_fill(request, peer, note, p->send, p->send_bytes,
                                &behind, &p->tx.start);
    }
    if (zcopy(request, x, peer, p->recv_bytes)) {
        size_t length;

        behind = (behind + 7) & ~(size_t)7;
        length = shunti_zcopy_name(p->zcopy, p->recv, p->recv_bytes,
                                   (unsigned char *)(note + 1) + behind);
        if (!length)
            return false;
        note->names = 1;
        behind += length;
    }
    shunti_note_send(request, peer, note, behind);
    return true;
}

/* Find where the peer wants this rank's block. Both control messages have been
 * sent. */
SHUNTI_NOINLINE static void aim(struct shunt_request *request,
                                struct shunti_exchange *x, int peer)
{
    struct shunti_exchange_peer *p = &x->peers[peer];
    const struct shunti_note *note = shunti_note_arrived(request, peer);
    const unsigned char *name;
    size_t behind = 0;

    if (!note)
        return; /* the communicator has failed */
    if (note->way == SHUNTI_WAY_INLINE && note->bytes > SHUNTI_NOTE_BODY)
        behind = ((size_t)note->bytes + 7) & ~(size_t)7;
    name = (const unsigned char *)(note + 1) + behind;
    if ((!note->names || behind > request->comm->control.layout.eager ||
         !shunti_zcopy_aim(p->zcopy, p->send, p->send_bytes, &name)) &&
        !request->comm->failure.status)
        shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                         "%s: rank %d names no memory for %zu B; do all ranks "
                         "run the same version, with the same settings?",
                         shunti_request_name(request), peer, p->send_bytes);
}

static void offer(struct shunt_request *request, struct shunti_exchange *x,
                  int peer)
{
    struct shunti_exchange_peer *p = &x->peers[peer];
    enum shunti_way way = SHUNTI_WAY_NONE;

    if (!zcopy(request, x, peer, p->send_bytes) &&
        !zcopy(request, x, peer, p->recv_bytes))
        way = shunti_offer(request, peer, p->send, p->send_bytes,
                           p->recv_bytes ^ request->digest, &p->tx.start);
    else if (!offer_zcopy(request, x, peer, &way))
        return;
    if (request->comm->peers[peer].node != request->comm->node)
        request->comm->stats.bytes_remote += p->send_bytes;
    switch (way) {
    case SHUNTI_WAY_INLINE:
        out_done(x, peer);
        break;
    case SHUNTI_WAY_STREAM:
        p->tx.bytes = p->send_bytes;
        p->out = SHUNTI_OUT_STREAM;
        break;
    case SHUNTI_WAY_ZCOPY:
        p->out = SHUNTI_OUT_ZCOPY;
        if (p->in != SHUNTI_IN_NOTE && !p->dropped)
            aim(request, x, peer);
        break;
    default:
        p->out = SHUNTI_OUT_ACK;
        break;
    }
    if (p->dropped)
        drop(x, peer);
}

bool shunti_exchange_post(struct shunt_request *request,
                          struct shunti_exchange *x)
{
    const int peers = request->comm->nranks - 1;
    const int before = x->posted;

    for (; x->posted < peers; x->posted++) {
        int peer = shunti_nth_out(request->comm, x->posted);

        if (!shunti_turn(request, peer, x->ticket))
            break;
        offer(request, x, peer);
        shunti_turn_over(request, peer);
    }
    return x->posted != before;
}

bool shunti_exchange_send(struct shunt_request *request,
                          struct shunti_exchange *x)
{
    bool moved = false;

    for (int i = 0; i < x->posted && x->out_open; i++) {
        int peer = shunti_nth_out(request->comm, i);
        struct shunti_exchange_peer *p = &x->peers[peer];
        size_t before = p->tx.done;
        bool done = false;

        switch (p->out) {
        case SHUNTI_OUT_STREAM:
            done = shunti_stream_send(request, peer, &p->tx, p->send);
            moved |= p->tx.done != before;
            break;
        case SHUNTI_OUT_SKIP:
            done = shunti_stream_skip(request, peer, &p->tx);
            break;
        case SHUNTI_OUT_ACK: /* the peer sends its ack after its message */
            done = p->in != SHUNTI_IN_NOTE && shunti_acked(request, peer);
            break;
        case SHUNTI_OUT_ZCOPY:
            before = p->zcopy->done;
            done = shunti_zcopy_send(p->zcopy);
            moved |= p->zcopy->done != before;
            break;
        default:
            break;
        }
        if (done) {
            out_done(x, peer);
            moved = true;
        }
    }
    return moved;
}

/* --- the peers' blocks ---------------------------------------------------- */

static void in_done(struct shunti_exchange *x, int peer)
{
    x->peers[peer].in = SHUNTI_IN_DONE;
    x->in_open--;
}

bool shunti_agree_received(struct shunt_request *request, int peer,
                           const struct shunti_note *note, size_t bytes)
{
    if (note->bytes == bytes)
        return true;
    shunti_request_error(request, SHUNT_ERR_MISMATCH,
                         "%s: rank %d sent %llu B, this rank expected %zu B",
                         shunti_request_name(request), peer,
                         (unsigned long long)note->bytes, bytes);
    return false;
}

bool shunti_agree_sent(struct shunt_request *request, int peer,
                       const struct shunti_note *note, size_t bytes)
{
    if (note->expects == (bytes ^ request->digest))
        return true;
    shunti_request_error(request, SHUNT_ERR_MISMATCH,
                         "%s: this rank sent %zu B to rank %d, which expected "
                         "%llu B",
                         shunti_request_name(request), bytes, peer,
                         (unsigned long long)(note->expects ^ request->digest));
    return false;
}

/* Compare call and sizes with the peer's message, and drop a direction that
 * disagrees. Returns true if the peer's block for this rank can be copied. */
static bool agree(struct shunt_request *request, struct shunti_exchange *x,
                  int peer, const struct shunti_note *note)
{
    struct shunti_exchange_peer *p = &x->peers[peer];

    if (shunti_note_bad(request, peer)) {
        p->bad = true;
        shunti_digest_disagrees(request, note->signature);
        drop(x, peer);
        return false;
    }
    if (!shunti_agree_received(request, peer, note, p->recv_bytes))
        p->bad = true;
    if (!shunti_agree_sent(request, peer, note, p->send_bytes)) {
        p->bad = true;
        drop(x, peer);
    }
    if (p->bad)
        shunti_digest_disagrees(request, note->signature);
    /* If the digests differ, each rank finds a wrong `expects`, and drops its
     * own block. So the peer's block will not come. */
    return note->bytes == p->recv_bytes && !(p->bad && request->digest);
}

bool shunti_exchange_meet(struct shunt_request *request,
                          struct shunti_exchange *x, int peer)
{
    struct shunti_exchange_peer *p = &x->peers[peer];
    const struct shunti_note *note;

    if (p->in != SHUNTI_IN_NOTE)
        return false;
    note = shunti_note_arrived(request, peer);
    if (!note)
        return false;
    x->in_unmet--;
    p->in = SHUNTI_IN_READY;
    if (!agree(request, x, peer, note)) {
        in_done(x, peer);
    } else if (!shunti_source_open(request, peer, (enum shunti_way)note->way,
                                   note->word, shunti_note_inline(note),
                                   request->comm->control.layout.eager,
                                   p->recv_bytes, &p->source)) {
        p->bad = true;
        in_done(x, peer);
    }
    if (p->out == SHUNTI_OUT_ZCOPY)
        aim(request, x, peer);
    return true;
}

void shunti_exchange_taken(struct shunt_request *request,
                           struct shunti_exchange *x, int peer)
{
    const struct shunti_source *source = &x->peers[peer].source;

    if (source->way == SHUNTI_WAY_WINDOW || source->way == SHUNTI_WAY_READ)
        shunti_ack(request, peer, source->failed ? SHUNT_ERR_REMOTE : SHUNT_OK);
    in_done(x, peer);
}

static bool pull(struct shunt_request *request, struct shunti_exchange_peer *p,
                 int peer)
{
    /* The peer puts the block where this rank's control message said. */
    if (p->source.way == SHUNTI_WAY_ZCOPY)
        return p->zcopy && shunti_zcopy_arrived(p->zcopy);
    return shunti_source_pull(request, peer, &p->source, p->recv);
}

/* Copy all payload that has arrived. */
static bool receive(struct shunt_request *request, struct shunti_exchange *x)
{
    const int peers = request->comm->nranks - 1;
    bool moved = false;

    for (int i = 0; i < peers && x->in_open; i++) {
        int peer = shunti_nth_in(request->comm, i);
        struct shunti_exchange_peer *p = &x->peers[peer];
        size_t before = p->source.done;

        moved |= shunti_exchange_meet(request, x, peer);
        if (p->in != SHUNTI_IN_READY)
            continue;
        if (pull(request, p, peer)) {
            shunti_exchange_taken(request, x, peer);
            moved = true;
        }
        moved |= p->source.done != before;
    }
    return moved;
}

/* --- an operation that is an exchange ------------------------------------- */

/* Copy this rank's own block. Called after the control messages have been sent,
 * since the peers wait for those. */
static bool copy_own(struct shunt_request *request, struct shunti_exchange *x)
{
    struct shunti_exchange_peer *own = &x->peers[request->comm->rank];

    x->own_done = !own->recv_bytes || own->recv == own->send ||
                  shunti_source_copy(request, &own->source.copy, own->recv,
                                     own->send, own->recv_bytes);
    return x->own_done;
}

SHUNTI_FLATTEN enum shunt_status
shunti_exchange_step(struct shunt_request *request)
{
    struct shunti_exchange *x = exchange_of(request);
    const int peers = request->comm->nranks - 1;
    bool moved;

    /* No peer wakes this rank for work that it can already do: continue until
     * there is none. */
    do {
        moved = x->posted < peers && shunti_exchange_post(request, x);
        if (x->out_open)
            moved |= shunti_exchange_send(request, x);
        if (!x->own_done)
            moved |= copy_own(request, x);
        if (x->in_open)
            moved |= receive(request, x);
        if (!x->in_open && !x->out_open && x->own_done)
            return SHUNT_OK;
    } while (moved);
    return SHUNT_IN_PROGRESS;
}

bool shunti_exchange_awaits(const struct shunt_request *request, int peer)
{
    const struct shunti_exchange_peer *p = &exchange_of(request)->peers[peer];

    return p->in != SHUNTI_IN_DONE || p->out != SHUNTI_OUT_DONE;
}

bool shunti_exchange_is_still(const struct shunt_request *request,
                              const struct shunti_exchange *x)
{
    const struct shunt_comm *comm = request->comm;

    if (x->out_open || x->posted != comm->nranks - 1 || comm->local_size > 1)
        return false;
    for (int r = 0; r < comm->nranks; r++)
        if (x->peers[r].in != SHUNTI_IN_DONE && r != comm->rank &&
            x->peers[r].recv_bytes > comm->tune.eager_far)
            return false;
    return true;
}

bool shunti_exchange_pauses(const struct shunt_request *request)
{
    return shunti_exchange_is_still(request, exchange_of(request));
}

size_t shunti_exchange_sent(const struct shunt_request *request, int peer)
{
    return exchange_of(request)->peers[peer].send_bytes;
}

void shunti_exchange_cleanup(struct shunt_request *request)
{
    shunti_scratch_put(request->comm, exchange_of(request)->owned);
}
