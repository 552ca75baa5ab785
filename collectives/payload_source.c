// SPDX-License-Identifier: Apache-2.0
/* Copying payload from a peer; see payload_source.h. */
#include "collectives/payload_source.h"

#include "src/base/error.h"
#include "src/comm.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/pair_costs.h"

bool shunti_source_open(struct shunt_request *request, int peer,
                        enum shunti_way way, const uint64_t where[2],
                        const void *inside, size_t room, size_t bytes,
                        struct shunti_source *source)
{
    source->way = (uint8_t)way;
    source->bytes = bytes;
    source->done = 0;
    source->failed = false;
    switch (way) {
    case SHUNTI_WAY_INLINE:
        source->at = inside;
        if (bytes <= room)
            return true;
        break;
    case SHUNTI_WAY_WINDOW:
        source->at = shunti_mapped(request->comm, peer, where, bytes);
        if (source->at)
            return true;
        break;
    case SHUNTI_WAY_READ:
        source->address = where[0];
        source->read = (struct shunti_read){.done = 0};
        if (request->comm->peers[peer].caps & SHUNT_TRANSPORT_GET)
            return true;
        break;
    case SHUNTI_WAY_STREAM:
        source->stream =
            (struct shunti_stream){.start = where[0], .bytes = bytes};
        /* The chunks before rx_tail have been taken already. */
        if (where[0] >= request->comm->peers[peer].rx_tail)
            return true;
        break;
    case SHUNTI_WAY_ZCOPY:
        if (!request->streams && shunti_zcopy_suits(request->comm, peer, bytes))
            return true;
        break;
    default:
        break;
    }
    shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                     "%s: rank %d offers %zu B where it has none (way %d); do "
                     "all ranks run the same version?",
                     shunti_request_name(request), peer, bytes, (int)way);
    return false;
}

/* Record the error of a read. If the read ended earlier, the transport's text
 * may by now be about another read, so it is not used. */
static void read_failed(struct shunt_request *request, int peer,
                        const struct shunti_source *source,
                        enum shunt_status status)
{
    struct shunti_peer *p = &request->comm->peers[peer];
    const char *why = source->read.late ? shunt_strerror(status)
                                        : p->transport->error(p->context->ctx);

    if (status == SHUNT_ERR_PEER)
        shunti_comm_fail(request->comm, status, peer, "%s: rank %d: %s",
                         shunti_request_name(request), peer, why);
    else
        shunti_request_error(request, status,
                             "%s: reading rank %d's memory: %s (SHUNT_CMA=off "
                             "does without)",
                             shunti_request_name(request), peer, why);
}

/* Continue to read the next `bytes` of a READ source. Returns true when they
 * are there, or cannot be read. In the second case it sets `failed`, and
 * nothing more is read. */
static bool read_raw(struct shunt_request *request, int peer,
                     struct shunti_source *source, void *dst, size_t bytes)
{
    enum shunt_status st;

    if (source->failed)
        return true;
    st = shunti_read_run(request, peer, &source->read,
                         source->address + source->done, dst, bytes,
                         source->bytes);
    if (st == SHUNT_IN_PROGRESS)
        return false;
    if (st) {
        source->failed = true;
        read_failed(request, peer, source, st);
    }
    return true;
}

static void pull_stream(struct shunt_request *request, int peer,
                        struct shunti_source *source, void *dst)
{
    const void *chunk;
    size_t bytes;

    if (dst) {
        shunti_stream_recv(request, peer, &source->stream, dst);
    } else {
        while ((chunk =
                    shunti_stream_peek(request, peer, &source->stream, &bytes)))
            shunti_stream_next(request, peer, &source->stream, bytes);
    }
    source->done = source->stream.done;
}

static void note_received(struct shunt_request *request, int peer,
                          const struct shunti_source *source)
{
    if (source->way == SHUNTI_WAY_STREAM || source->way == SHUNTI_WAY_READ)
        shunti_pair_costs_received(request->comm, peer, source->bytes,
                                   source->way == SHUNTI_WAY_READ);
}

bool shunti_source_copy(struct shunt_request *request, struct shunti_copy *copy,
                        void *dst, const void *src, size_t bytes)
{
    if (copy->started || (shunti_copy_suits(request, bytes) &&
                          shunti_copy_start(request, copy, dst, src, bytes)))
        return shunti_copy_test(request, copy) ||
               shunti_copy_take_back(request, copy);
    shunti_copy_payload(dst, src, bytes);
    return true;
}

/* Copy the next `bytes` of a source that is not a stream. Returns true when
 * they are there. */
static bool move(struct shunt_request *request, int peer,
                 struct shunti_source *source, void *dst, size_t bytes)
{
    if (source->way == SHUNTI_WAY_READ)
        return read_raw(request, peer, source, dst, bytes);
    if (source->way != SHUNTI_WAY_WINDOW) {
        shunti_copy_payload(dst, source->at + source->done, bytes);
        return true;
    }
    if (!shunti_source_copy(request, &source->copy, dst,
                            source->at + source->done, bytes))
        return false;
    request->comm->stats.bytes_mapped += bytes;
    return true;
}

bool shunti_source_pull(struct shunt_request *request, int peer,
                        struct shunti_source *source, void *dst)
{
    if (source->way == SHUNTI_WAY_STREAM) {
        pull_stream(request, peer, source, dst);
        if (source->done < source->bytes)
            return false;
        note_received(request, peer, source);
        return true;
    }
    if (!dst && source->way == SHUNTI_WAY_READ &&
        !shunti_read_stop(request, &source->read))
        return false;
    if (dst && source->bytes > source->done &&
        !move(request, peer, source, (unsigned char *)dst + source->done,
              source->bytes - source->done))
        return false;
    source->done = source->bytes;
    note_received(request, peer, source);
    return true;
}

bool shunti_source_pull_part(struct shunt_request *request, int peer,
                             struct shunti_source *source, size_t offset,
                             size_t bytes, void *dst)
{
    source->done = offset;
    if (!move(request, peer, source, dst, bytes))
        return false;
    if (source->way == SHUNTI_WAY_READ)
        source->read.done = 0;
    return true;
}

const void *shunti_source_peek(struct shunt_request *request, int peer,
                               struct shunti_source *source, size_t bytes,
                               void *scratch)
{
    size_t there;

    switch (source->way) {
    case SHUNTI_WAY_STREAM:
        return shunti_stream_peek(request, peer, &source->stream, &there);
    case SHUNTI_WAY_READ:
        return read_raw(request, peer, source, scratch, bytes) ? scratch : NULL;
    default:
        return source->at + source->done;
    }
}

void shunti_source_next(struct shunt_request *request, int peer,
                        struct shunti_source *source, size_t bytes)
{
    if (source->way == SHUNTI_WAY_STREAM)
        shunti_stream_next(request, peer, &source->stream, bytes);
    else if (source->way == SHUNTI_WAY_WINDOW)
        request->comm->stats.bytes_mapped += bytes;
    else if (source->way == SHUNTI_WAY_READ)
        source->read.done = 0;
    source->done += bytes;
    if (source->done == source->bytes)
        note_received(request, peer, source);
}
