// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce in segments: reduce-scatter, then all-gather (Rabenseifner,
 * "Optimization of Collective Reduction Operations", 2004), with direct
 * transfers between all pairs in both halves.
 *
 * Both halves are one operation with one control message for each pair. The
 * message of rank r to rank p says where p finds r's input of segment p, and
 * where it will find r's finished segment r. Rank r reduces segment r of all
 * ranks into its place in recv. With stage READY of its ack, r reports that the
 * other ranks can copy the segment from there. With stage TAKEN, another rank
 * reports that it has copied the segment. A streamed result needs no stages:
 * its chunks follow those of the input as soon as they are ready.
 *
 * There is no separate ack for inputs: p's finished segment implies that p has
 * read this rank's input. For the same reason the algorithm works in place: the
 * input of segment p is overwritten only by p's result.
 *
 * If a rank disagrees, there are no results. Every rank knows that, because
 * every rank gets a control message from every other one. The ranks still send
 * and receive all payloads that were announced, so that no rank waits in vain.
 * A rank that cannot read another's input reports that to all ranks, instead of
 * sending its segment.
 */
#include <string.h>

#include "collectives/allreduce.h"
#include "collectives/coll_call.h"
#include "collectives/exchange.h"
#include "collectives/payload_source.h"
#include "collectives/reduction.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/payload_protocol.h"
#include "src/op/stream.h"

/* Stages of the ack, as bits. FAILED: a raw read failed, so the sender of the
 * ack has no result for its segment. UNREAD: the sender of the ack could not
 * read this rank's result. */
enum { READY = 0x01, TAKEN = 0x02, FAILED = 0x10, UNREAD = 0x20 };

/* Segments start at multiples of a cache line. */
#define LINE 64

struct segment_peer {
    bool received, in_done, out_done;
    bool bad;           /* the peer made another call: ignore it */
    unsigned acked;     /* stages that this rank has acked to the peer */
    uint8_t result_way; /* protocol of this rank's result for the peer */
    struct shunti_stream input_tx, result_tx;
    struct shunti_source input, result;
};

struct segments {
    const unsigned char *send;
    unsigned char *recv;
    size_t bytes;
    uint64_t ticket;
    int posted, missing, open;
    bool any_bad;
    bool ready; /* this rank's segment is finished, or discarded */
    struct shunti_reduction reduction;
    struct segment_peer peers[]; /* (nranks), then the reduction's arrays */
};

static struct segments *state_of(const struct shunt_request *request)
{
    return (struct segments *)(void *)(uintptr_t)request->state;
}

/* Returns the bytes of segment r, and its offset in *offset. */
static size_t segment(const struct segments *s, int nranks, int r,
                      size_t *offset)
{
    size_t lines = s->bytes / LINE + (s->bytes % LINE != 0);
    size_t each = lines / (size_t)nranks, more = lines % (size_t)nranks;
    size_t i = (size_t)r;
    size_t begin = (i * each + (i < more ? i : more)) * LINE;
    size_t end = begin + (each + (i < more)) * LINE;

    if (begin > s->bytes)
        begin = s->bytes;
    if (end > s->bytes)
        end = s->bytes;
    *offset = begin;
    return end - begin;
}

/* --- control messages ----------------------------------------------------- */

/* Choose the protocol for `bytes` at `data`, and fill in `where`. If it is a
 * stream, its chunks are reserved. */
static uint8_t locate(struct shunt_request *request, int peer, const void *data,
                      size_t bytes, uint64_t *where, struct shunti_stream *tx)
{
    enum shunti_way way;

    where[0] = where[1] = 0;
    if (!bytes)
        return SHUNTI_WAY_INLINE;
    way = shunti_locate(request, peer, data, bytes, where);
    if (way == SHUNTI_WAY_STREAM)
        *tx = (struct shunti_stream){.start = where[0], .bytes = bytes};
    return (uint8_t)way;
}

static void post_note(struct shunt_request *request, struct segments *s,
                      int peer)
{
    struct shunti_note *note = shunti_note_compose(request, peer);
    const struct shunt_comm *comm = request->comm;
    struct segment_peer *p = &s->peers[peer];
    size_t at, bytes;

    note->bytes = note->expects = s->bytes;
    bytes = segment(s, comm->nranks, peer, &at);
    note->way = locate(request, peer, s->send + at, bytes, &note->word[0],
                       &p->input_tx);
    bytes = segment(s, comm->nranks, comm->rank, &at);
    p->result_way = locate(request, peer, s->recv + at, bytes, &note->word[2],
                           &p->result_tx);
    note->second_way = p->result_way;
    shunti_note_send(request, peer, note, 0);
}

static bool post(struct shunt_request *request, struct segments *s)
{
    const int peers = request->comm->nranks - 1, before = s->posted;

    for (; s->posted < peers; s->posted++) {
        int peer = shunti_nth_out(request->comm, s->posted);

        if (!shunti_turn(request, peer, s->ticket))
            break;
        post_note(request, s, peer);
        shunti_turn_over(request, peer);
    }
    return s->posted != before;
}

static bool open_sources(struct shunt_request *request, struct segments *s,
                         int peer, const struct shunti_note *note)
{
    const struct shunt_comm *comm = request->comm;
    struct segment_peer *p = &s->peers[peer];
    size_t at;

    return shunti_source_open(
               request, peer, (enum shunti_way)note->way, &note->word[0], NULL,
               0, segment(s, comm->nranks, comm->rank, &at), &p->input) &&
           shunti_source_open(request, peer, (enum shunti_way)note->second_way,
                              &note->word[2], NULL, 0,
                              segment(s, comm->nranks, peer, &at), &p->result);
}

static bool receive_note(struct shunt_request *request, struct segments *s,
                         int peer)
{
    const struct shunti_note *note = shunti_note_arrived(request, peer);
    struct segment_peer *p = &s->peers[peer];

    if (!note)
        return false;
    p->received = true;
    s->missing--;
    if (shunti_note_bad(request, peer)) {
        p->bad = true;
    } else if (note->bytes != s->bytes) {
        p->bad = true;
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with %llu B, this rank with "
                             "%zu B",
                             shunti_request_name(request), peer,
                             (unsigned long long)note->bytes, s->bytes);
    } else if (!open_sources(request, s, peer, note)) {
        p->bad = true;
    }
    if (p->bad) {
        p->in_done = true;
        s->any_bad = true;
    }
    return true;
}

/* --- this rank's segment -------------------------------------------------- */

/* Drain the streams of the input, because there will be no result. Returns true
 * when all streams are drained. */
static bool discard(struct shunt_request *request, struct segments *s,
                    bool *moved)
{
    const struct shunt_comm *comm = request->comm;
    bool all = true;

    for (int r = 0; r < comm->nranks; r++) {
        struct segment_peer *p = &s->peers[r];
        size_t before = p->input.done;

        if (r == comm->rank || p->bad)
            continue;
        all &= shunti_source_pull(request, r, &p->input, NULL);
        *moved |= p->input.done != before;
    }
    return all;
}

static void send_ack(struct shunt_request *request, struct segments *s,
                     int peer, unsigned stage)
{
    struct segment_peer *p = &s->peers[peer];

    p->acked |= stage;
    shunti_ack_stage(request, peer, p->acked);
}

static void send_failure(struct shunt_request *request, struct segments *s)
{
    for (int r = 0; r < request->comm->nranks; r++)
        if (r != request->comm->rank && !s->peers[r].bad)
            send_ack(request, s, r, FAILED);
}

/* Record that `peer` could not read memory. The reads of this rank itself
 * succeeded. */
static void receive_failure(struct shunt_request *request, int peer,
                            const char *what)
{
    shunti_request_error(request, SHUNT_ERR_REMOTE,
                         "%s: rank %d could not read %s memory (its "
                         "shunt_last_error says why)",
                         shunti_request_name(request), peer, what);
}

static bool is_pulled(uint8_t way)
{
    return way == SHUNTI_WAY_WINDOW || way == SHUNTI_WAY_READ;
}

/* Reduce this rank's segment. All control messages have arrived, and this
 * rank's have been sent. */
static bool reduce(struct shunt_request *request, struct segments *s)
{
    const struct shunt_comm *comm = request->comm;
    bool moved = false, ready;

    if (!s->any_bad && !s->reduction.failed) {
        moved = shunti_reduction_run(request, &s->reduction);
        ready = s->reduction.done == s->reduction.bytes;
        moved |= s->reduction.failed;
    } else {
        ready = discard(request, s, &moved);
        /* A peer that sees the failure may free its input, so report it only
         * when no read is under way. */
        if (ready && s->reduction.failed)
            send_failure(request, s);
    }
    if (!ready)
        return moved;
    s->ready = true;
    for (int i = 0; i < comm->nranks - 1; i++) {
        int peer = shunti_nth_out(comm, i);

        if (!s->peers[peer].bad && is_pulled(s->peers[peer].result_way))
            send_ack(request, s, peer, READY);
    }
    return true;
}

/* --- all ranks' segments -------------------------------------------------- */

/* Stream the part of this rank's result that is ready. Returns true when all of
 * it has been sent. */
static bool send_result(struct shunt_request *request, struct segments *s,
                        int peer)
{
    const size_t chunk = request->comm->control.layout.chunk;
    struct shunti_stream *tx = &s->peers[peer].result_tx;
    const size_t bytes = tx->bytes; /* 0: it is not streamed */
    const size_t whole = s->reduction.done / chunk * chunk;
    size_t at;

    if (s->reduction.failed)
        return shunti_stream_skip(request, peer, tx);
    /* Before the segment is finished, send only full chunks. */
    tx->bytes = s->ready || bytes < whole ? bytes : whole;
    (void)segment(s, request->comm->nranks, request->comm->rank, &at);
    if (tx->done < tx->bytes)
        (void)shunti_stream_send(request, peer, tx, s->recv + at);
    tx->bytes = bytes;
    return tx->done == bytes;
}

static bool result_taken(struct shunt_request *request, int peer)
{
    const unsigned stages = shunti_acked_stage(request, peer);

    if (stages & UNREAD)
        receive_failure(request, peer, "this rank's");
    return stages & TAKEN;
}

static bool send(struct shunt_request *request, struct segments *s, int peer)
{
    struct segment_peer *p = &s->peers[peer];
    size_t before = p->input_tx.done + p->result_tx.done, at;
    bool moved;

    if (p->bad) {
        p->out_done = shunti_stream_skip(request, peer, &p->input_tx) &&
                      shunti_stream_skip(request, peer, &p->result_tx);
        return p->out_done;
    }
    (void)segment(s, request->comm->nranks, peer, &at);
    if (shunti_stream_send(request, peer, &p->input_tx, s->send + at) &&
        send_result(request, s, peer) && s->ready)
        p->out_done = !is_pulled(p->result_way) || result_taken(request, peer);
    moved = p->input_tx.done + p->result_tx.done != before;
    return moved || p->out_done;
}

static bool receive(struct shunt_request *request, struct segments *s, int peer)
{
    struct segment_peer *p = &s->peers[peer];
    const unsigned stages = shunti_acked_stage(request, peer);
    size_t before = p->result.done, at;

    /* In the ring, the peer's result follows its input. */
    if (p->input.done < p->input.bytes)
        return false;
    if (is_pulled(p->result.way) && !(stages & (READY | FAILED)))
        return false;
    if (stages & FAILED) {
        receive_failure(request, peer, "another rank's");
    } else {
        (void)segment(s, request->comm->nranks, peer, &at);
        if (!shunti_source_pull(request, peer, &p->result, s->recv + at))
            return p->result.done != before;
    }
    p->in_done = true;
    if (is_pulled(p->result.way))
        send_ack(request, s, peer, p->result.failed ? TAKEN | UNREAD : TAKEN);
    return true;
}

static bool attend(struct shunt_request *request, struct segments *s, int peer)
{
    struct segment_peer *p = &s->peers[peer];
    bool moved = false;

    if (!p->out_done)
        moved |= send(request, s, peer);
    if (!p->in_done)
        moved |= receive(request, s, peer);
    if (p->out_done && p->in_done) {
        s->open--;
        moved = true;
    }
    return moved;
}

/* --- the operation -------------------------------------------------------- */

static enum shunt_status step(struct shunt_request *request)
{
    const struct shunt_comm *comm = request->comm;
    struct segments *s = state_of(request);
    const int peers = comm->nranks - 1;
    bool moved;

    do {
        moved = s->posted < peers && post(request, s);
        for (int i = 0; i < peers && s->missing; i++) {
            int peer = shunti_nth_in(comm, i);

            if (!s->peers[peer].received)
                moved |= receive_note(request, s, peer);
        }
        if (!s->ready && !s->missing && s->posted == peers)
            moved |= reduce(request, s);
        for (int i = 0; i < s->posted; i++) {
            int peer = shunti_nth_out(comm, i);
            struct segment_peer *p = &s->peers[peer];

            if (!(p->out_done && p->in_done) && p->received)
                moved |= attend(request, s, peer);
            else if (!p->received && p->input_tx.done < p->input_tx.bytes)
                moved |= send(request, s, peer);
        }
        if (!s->open)
            return SHUNT_OK;
    } while (moved);
    return SHUNT_IN_PROGRESS;
}

static bool awaits(const struct shunt_request *request, int peer)
{
    const struct segments *s = state_of(request);
    const struct segment_peer *p = &s->peers[peer];

    return !(p->in_done && p->out_done);
}

/* Bytes sent to a peer: its segment of this rank's input, and this rank's
 * segment of the result. */
static size_t sent(const struct shunt_request *request, int peer)
{
    const struct segments *s = state_of(request);
    const struct shunt_comm *comm = request->comm;
    size_t at;

    return segment(s, comm->nranks, peer, &at) +
           segment(s, comm->nranks, comm->rank, &at);
}

static void cleanup(struct shunt_request *request)
{
    shunti_scratch_put(request->comm, state_of(request)->reduction.scratch);
}

static const struct shunti_class segments_class = {
    .name = "allreduce",
    .algorithm = "segments",
    .step = step,
    .awaits = awaits,
    .sent = sent,
    .cleanup = cleanup,
};

SHUNTI_NOINLINE enum shunt_status
shunti_allreduce_segments(const struct shunti_coll *call, uint32_t signature,
                          const struct shunti_allreduce *a,
                          struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const size_t n = (size_t)comm->nranks;
    struct shunti_reduction *r;
    struct segments *s;
    enum shunt_status st;
    size_t at;

    st = shunti_request_create(comm, &segments_class, signature, call->options,
                               sizeof(*s) + n * (sizeof(s->peers[0]) +
                                                 sizeof(*r->sources) +
                                                 2 * sizeof(*r->operands)),
                               request);
    if (st)
        return st;
    s = state_of(*request);
    s->send = a->send;
    s->recv = a->recv;
    s->bytes = a->bytes;
    s->ticket = shunti_ticket(*request);
    s->missing = s->open = comm->nranks - 1;
    r = &s->reduction;
    r->bytes = segment(s, comm->nranks, comm->rank, &at);
    r->own = a->send + at;
    r->dst = a->recv + at;
    r->dtype = a->dtype;
    r->op = a->op;
    r->sources = (struct shunti_source **)(void *)(s->peers + n);
    r->operands = (const void **)(void *)(r->sources + n);
    for (size_t i = 0; i < n; i++)
        r->sources[i] = &s->peers[i].input;
    return SHUNT_OK;
}
