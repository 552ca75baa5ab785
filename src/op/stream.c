// SPDX-License-Identifier: Apache-2.0
/*
 * Streams; see stream.h.
 *
 * Chunk number k of a pair is in ring slot k % chunks. The sender raises the
 * receiver's ARRIVED word to k + 1. The receiver raises the sender's CONSUMED
 * word to k + 1 when the slot is free again, or for several chunks at once.
 * Both words only grow.
 */
#include "src/op/stream.h"

#include <string.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/wire.h"

static uint64_t own_word(const struct shunt_comm *comm, int peer, int which)
{
    const unsigned char *at = comm->control.base + comm->control.layout.words +
                              (size_t)peer * comm->control.layout.word_stride +
                              (size_t)which * 64;

    return __atomic_load_n((const uint64_t *)(const void *)at,
                           __ATOMIC_ACQUIRE);
}

/* Raise one of this rank's words in the peer's control window. */
static void raise_word(struct shunt_comm *comm, int peer, int which,
                       uint64_t value)
{
    struct shunti_peer *p = &comm->peers[peer];
    size_t at = comm->control.layout.words +
                (size_t)comm->rank * comm->control.layout.word_stride +
                (size_t)which * 64;

    p->messages++;
    if (p->control) {
        __atomic_store_n((uint64_t *)(void *)(p->control + at), value,
                         __ATOMIC_RELEASE);
        p->transport->wake(p->ep);
    } else {
        shunti_control_put(comm, peer, 0, NULL, 0, at, value);
    }
}

/* Send the peer the number of consumed chunks. A message for each chunk would
 * be too many for a peer that is not mapped. Such a peer gets one for half a
 * ring, long before it could run out of room. */
static void report_consumed(struct shunt_comm *comm, int peer)
{
    struct shunti_peer *p = &comm->peers[peer];

    if (!p->control &&
        p->rx_tail < p->rx_reported + comm->control.layout.chunks / 2)
        return;
    p->rx_reported = p->rx_tail;
    raise_word(comm, peer, SHUNTI_WORD_CONSUMED, p->rx_tail);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool ring_has_room(struct shunt_comm *comm, int peer, uint64_t k)
{
    struct shunti_peer *p = &comm->peers[peer];

    if (k < p->tx_consumed + comm->control.layout.chunks)
        return true;
    p->tx_consumed = own_word(comm, peer, SHUNTI_WORD_CONSUMED);
    return k < p->tx_consumed + comm->control.layout.chunks;
}

/* Copy into the peer's ring. Each store first has to fetch a cache line that
 * the peer's cache had last, so this is timed (pair_costs.h). */
SHUNTI_NOINLINE static void copy_in(struct shunt_comm *comm, int peer,
                                    unsigned char *to,
                                    const unsigned char *from, size_t bytes)
{
    uint64_t begin;
    SHUNTI_TRACK(COPIES);

    if (!shunti_pair_costs_time_into(comm, peer)) {
        memcpy(to, from, bytes);
        return;
    }
    begin = shunti_now_ns();
    memcpy(to, from, bytes);
    shunti_pair_costs_into(comm, peer, bytes, shunti_now_ns() - begin);
}

SHUNTI_NOINLINE static void copy_out(void *to, const void *from, size_t bytes)
{
    SHUNTI_TRACK(COPIES);
    memcpy(to, from, bytes);
}

/* Load every cache line of a chunk into this rank's cache, and time the loads.
 * The caller's own reads are not timed, because they include the caller's
 * work. */
SHUNTI_NOINLINE static void fetch(struct shunt_comm *comm, int peer,
                                  const unsigned char *chunk, size_t bytes)
{
    const uint64_t begin = shunti_now_ns();
    SHUNTI_TRACK(COPIES);

    for (size_t at = 0; at < bytes; at += 64)
        (void)*(const volatile unsigned char *)(chunk + at);
    shunti_pair_costs_out(comm, peer, bytes, shunti_now_ns() - begin);
}

bool shunti_stream_send(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, const void *data)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const size_t chunk = comm->control.layout.chunk;

    while (stream->done < stream->bytes) {
        uint64_t k = stream->start + stream->done / chunk;
        size_t slot = (size_t)(k % comm->control.layout.chunks) * chunk;
        size_t at = comm->control.layout.ring +
                    (size_t)comm->rank * comm->control.layout.ring_stride +
                    slot;
        size_t len = min_size(chunk, stream->bytes - stream->done);
        const unsigned char *from = (const unsigned char *)data + stream->done;

        if (p->tx_head != k) /* chunks of an earlier operation are sent first */
            return false;
        if (!ring_has_room(comm, peer, k))
            return false;
        if (p->control) {
            copy_in(comm, peer, p->control + at, from, len);
            raise_word(comm, peer, SHUNTI_WORD_ARRIVED, k + 1);
        } else {
            unsigned char *image =
                p->outbox + SHUNTI_DEPTH * comm->control.layout.slot_bytes +
                slot;
            copy_out(image, from, len);
            p->messages++;
            shunti_control_put(comm, peer, at, image, len,
                               comm->control.layout.words +
                                   (size_t)comm->rank *
                                       comm->control.layout.word_stride +
                                   SHUNTI_WORD_ARRIVED * 64,
                               k + 1);
        }
        p->tx_head = k + 1;
        stream->done += len;
        comm->stats.bytes_staged += len;
    }
    return true;
}

const void *shunti_stream_peek(struct shunt_request *request, int peer,
                               const struct shunti_stream *stream,
                               size_t *bytes)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const size_t chunk = comm->control.layout.chunk;
    uint64_t k = stream->start + stream->done / chunk;
    const unsigned char *at;

    if (stream->done == stream->bytes)
        return NULL;
    if (p->rx_tail != k) {
        /* The chunks before chunk `k` belong to an earlier operation. If that
         * operation is still active, it will receive the chunks. Otherwise this
         * rank refused it, nobody receives the chunks, and they are skipped. */
        if (p->rx_tail > k || comm->operations.active != request)
            return NULL;
        p->rx_tail = k;
        report_consumed(comm, peer);
    }
    if (own_word(comm, peer, SHUNTI_WORD_ARRIVED) <= k)
        return NULL;
    *bytes = min_size(chunk, stream->bytes - stream->done);
    at = comm->control.base + comm->control.layout.ring +
         (size_t)peer * comm->control.layout.ring_stride +
         (size_t)(k % comm->control.layout.chunks) * chunk;
    if (shunti_pair_costs_time_out(comm, peer))
        fetch(comm, peer, at, *bytes);
    return at;
}

void shunti_stream_next(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, size_t bytes)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];

    stream->done += bytes;
    p->rx_tail++;
    report_consumed(comm, peer);
}

bool shunti_stream_recv(struct shunt_request *request, int peer,
                        struct shunti_stream *stream, void *data)
{
    const void *from;
    size_t bytes;

    while ((from = shunti_stream_peek(request, peer, stream, &bytes))) {
        copy_out((unsigned char *)data + stream->done, from, bytes);
        shunti_stream_next(request, peer, stream, bytes);
    }
    return stream->done == stream->bytes;
}

bool shunti_stream_skip(struct shunt_request *request, int peer,
                        struct shunti_stream *stream)
{
    struct shunti_peer *p = &request->comm->peers[peer];
    const size_t chunk = request->comm->control.layout.chunk;

    if (stream->done == stream->bytes)
        return true;
    if (p->tx_head != stream->start + stream->done / chunk)
        return false;
    p->tx_head = stream->start + (stream->bytes + chunk - 1) / chunk;
    stream->done = stream->bytes;
    return true;
}
