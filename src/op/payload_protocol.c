// SPDX-License-Identifier: Apache-2.0
/* The choice of the protocol for a payload; see payload_protocol.h. */
#include "src/op/payload_protocol.h"

#include <string.h>

#include "src/comm.h"
#include "src/wire/window.h"

static bool point(const struct shunt_comm *comm, int peer, const void *data,
                  size_t bytes, uint64_t where[2])
{
    const struct shunti_window *window =
        comm->peers[peer].control ? shunti_window_find(comm, data, bytes)
                                  : NULL;

    if (!window)
        return false;
    where[0] = window->id;
    where[1] = (uint64_t)((const unsigned char *)data - window->addr);
    return true;
}

static enum shunti_way by_address(const void *data, uint64_t where[2])
{
    where[0] = (uint64_t)(uintptr_t)data;
    where[1] = 0;
    return SHUNTI_WAY_READ;
}

static enum shunti_way locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes, uint64_t where[2])
{
    struct shunt_comm *comm = request->comm;
    struct shunti_peer *p = &comm->peers[peer];

    if (point(comm, peer, data, bytes, where))
        return SHUNTI_WAY_WINDOW;
    if (p->caps & SHUNT_TRANSPORT_GET &&
        (bytes >= comm->tune.read_min ||
         shunti_pair_costs_read(comm, peer, bytes)))
        return by_address(data, where);
    where[1] = 0;
    where[0] = p->tx_reserved;
    p->tx_reserved +=
        (bytes + comm->control.layout.chunk - 1) / comm->control.layout.chunk;
    return SHUNTI_WAY_STREAM;
}

enum shunti_way shunti_locate(struct shunt_request *request, int peer,
                              const void *data, size_t bytes, uint64_t where[2])
{
    const enum shunti_way way = locate(request, peer, data, bytes, where);

    shunti_request_way(request, peer, way);
    return way;
}

bool shunti_readable(const struct shunt_comm *comm, int peer, const void *data,
                     size_t bytes)
{
    uint64_t where[2];

    return point(comm, peer, data, bytes, where) ||
           (comm->peers[peer].caps & SHUNT_TRANSPORT_GET &&
            (bytes >= comm->tune.read_min ||
             shunti_pair_costs_learn(comm, peer)));
}

enum shunti_way shunti_locate_in_place(struct shunt_request *request, int peer,
                                       const void *data, size_t bytes,
                                       uint64_t where[2])
{
    const enum shunti_way way = point(request->comm, peer, data, bytes, where)
                                    ? SHUNTI_WAY_WINDOW
                                    : by_address(data, where);

    shunti_request_way(request, peer, way);
    return way;
}

size_t shunti_eager(const struct shunt_comm *comm, int peer)
{
    return comm->peers[peer].control ? comm->tune.eager
                                     : comm->control.layout.eager;
}

bool shunti_always_inline(const struct shunt_comm *comm, size_t bytes)
{
    return bytes < SHUNTI_WINDOW_MIN && bytes <= comm->tune.eager &&
           comm->all_mapped;
}

static bool can_point(const struct shunt_comm *comm, int peer, const void *data,
                      size_t bytes)
{
    return comm->peers[peer].control && shunti_window_find(comm, data, bytes);
}

static void count_inline(struct shunt_request *request, int peer, size_t bytes)
{
    request->comm->stats.bytes_inline += bytes;
    if (bytes)
        shunti_request_way(request, peer, SHUNTI_WAY_INLINE);
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
    if (way == SHUNTI_WAY_INLINE)
        count_inline(request, peer, bytes);
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
    if (!request->comm->peers[peer].control && bytes > SHUNTI_NOTE_BODY &&
        bytes <= shunti_eager(request->comm, peer)) {
        const struct shunt_transport_piece payload[SHUNT_TRANSPORT_PIECES] = {
            {data, bytes}};

        note->bytes = bytes;
        note->way = SHUNTI_WAY_INLINE;
        count_inline(request, peer, bytes);
        shunti_note_send_far(request, peer, note, payload);
        return SHUNTI_WAY_INLINE;
    }
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
