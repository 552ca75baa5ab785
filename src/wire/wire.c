// SPDX-License-Identifier: Apache-2.0
/*
 * Writing to a peer's memory by its transport; see wire.h. A transport may have
 * no room for a put to a control window. Such puts are kept in order, and
 * shunti_control_retry() tries them again; callers do not notice.
 */
#include "src/wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/outbox.h"

struct shunti_deferred_put {
    struct shunti_deferred_put *next;
    int peer;
    struct shunt_transport_put put;
};

/* Switch the timeline to the track of transfers with this peer. */
static enum shunti_track begin_move(const struct shunt_comm *comm, int peer)
{
    if (!shunti_tracked())
        return SHUNTI_TRACK_NONE;
    return shunti_track_switch(comm->peers[peer].node == comm->node
                                   ? SHUNTI_TRACK_COPIES
                                   : SHUNTI_TRACK_WIRE);
}

/* The transport returned an error: the peer refused an earlier put, and this
 * put was not made. A peer that has failed withdraws its memory, but writes
 * this rank's abort word first. If that word is set, its reason counts, and not
 * this error. Then the put is made again. */
SHUNTI_NOINLINE static enum shunt_status
put_after_refusal(struct shunt_comm *comm, struct shunti_peer *p,
                  const struct shunt_transport_put *put, enum shunt_status st)
{
    return shunti_comm_failed(comm) ? p->transport->put(p->ep, put) : st;
}

bool shunti_put(struct shunt_comm *comm, int peer,
                const struct shunt_transport_put *put)
{
    struct shunti_peer *p = &comm->peers[peer];
    const enum shunti_track before = begin_move(comm, peer);
    enum shunt_status st = p->transport->put(p->ep, put);

    if (st < SHUNT_OK && st != SHUNT_ERR_PEER)
        st = put_after_refusal(comm, p, put, st);
    shunti_track_leave(&before);
    if (st == SHUNT_IN_PROGRESS) {
        comm->contexts.full = true;
        return false;
    }
    if (st == SHUNT_ERR_PEER)
        /* an operation that waits for the peer will fail: liveness.c */
        p->lost = true;
    else if (st) /* a lack of memory is the only failure of this rank itself */
        shunti_comm_fail(comm, st, st == SHUNT_ERR_MEMORY ? comm->rank : peer,
                         "put to rank %d: %s", peer,
                         p->transport->error(p->context->ctx));
    return true;
}

enum shunt_status shunti_get(struct shunt_comm *comm, int peer,
                             const struct shunt_transport_get *get)
{
    struct shunti_peer *p = &comm->peers[peer];
    const enum shunti_track before = begin_move(comm, peer);
    enum shunt_status st = p->transport->get(p->ep, get);

    shunti_track_leave(&before);
    if (st == SHUNT_IN_PROGRESS)
        comm->contexts.full = true;
    return st;
}

/* Try an empty put: to a peer that is gone it fails, and the error text says
 * why the peer is gone. */
const char *shunti_why_lost(const struct shunt_comm *comm, int peer)
{
    const struct shunt_transport_put nothing = {.bytes = 0};
    const struct shunti_peer *p = &comm->peers[peer];
    char lost[64];
    const char *text;

    if (p->transport->put(p->ep, &nothing) != SHUNT_ERR_PEER)
        return NULL;
    text = p->transport->error(p->context->ctx);
    snprintf(lost, sizeof(lost), "rank %d is lost: ", peer);
    return strncmp(text, lost, strlen(lost)) == 0 ? text + strlen(lost) : NULL;
}

static bool waits_already(const struct shunt_comm *comm, int peer)
{
    const struct shunti_deferred_put *d;

    for (d = comm->deferred.first; d; d = d->next)
        if (d->peer == peer)
            return true;
    return false;
}

static struct shunt_transport_put put_of(const struct shunti_peer *p,
                                         size_t offset, const void *local,
                                         size_t bytes, size_t signal_offset,
                                         uint64_t value)
{
    return (struct shunt_transport_put){
        .local = local,
        .reg = shunti_outbox_reg(p->context, local),
        .remote = p->control_remote,
        .offset = offset,
        .bytes = bytes,
        .signal = p->control_remote,
        .signal_offset = signal_offset,
        .signal_value = value,
        .channel = 0,
    };
}

static void put_or_defer(struct shunt_comm *comm, int peer,
                         struct shunt_transport_put *put)
{
    struct shunti_deferred_put *d;

    comm->peers[peer].bytes_put += put->bytes + shunt_transport_tail_bytes(put);
    if (!waits_already(comm, peer) && shunti_put(comm, peer, put))
        return;
    d = malloc(sizeof(*d));
    if (!d) {
        shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                         "no memory for a put to rank %d", peer);
        return;
    }
    shunt_transport_tail_join(put);
    d->next = NULL;
    d->peer = peer;
    d->put = *put;
    *comm->deferred.tail = d;
    comm->deferred.tail = &d->next;
}

void shunti_control_put(struct shunt_comm *comm, int peer, size_t offset,
                        const void *local, size_t bytes, size_t signal_offset,
                        uint64_t value)
{
    struct shunt_transport_put put =
        put_of(&comm->peers[peer], offset, local, bytes, signal_offset, value);

    put_or_defer(comm, peer, &put);
}

void shunti_control_put_rare(struct shunt_comm *comm, int peer, size_t offset,
                             const void *local, size_t bytes,
                             size_t signal_offset, uint64_t value)
{
    struct shunt_transport_put put =
        put_of(&comm->peers[peer], offset, local, bytes, signal_offset, value);

    put.rare = true;
    put_or_defer(comm, peer, &put);
}

void shunti_control_put_tail(struct shunt_comm *comm, int peer, size_t offset,
                             void *local, size_t bytes,
                             const struct shunt_transport_piece *tail,
                             size_t signal_offset, uint64_t value)
{
    struct shunt_transport_put put =
        put_of(&comm->peers[peer], offset, local, bytes, signal_offset, value);

    memcpy(put.tail, tail, sizeof(put.tail));
    if (!(comm->peers[peer].caps & SHUNT_TRANSPORT_TAIL))
        shunt_transport_tail_join(&put);
    put_or_defer(comm, peer, &put);
}

SHUNTI_NOINLINE void shunti_control_retry(struct shunt_comm *comm)
{
    struct shunti_deferred_put **at = &comm->deferred.first, *d;

    for (d = comm->deferred.first; d; d = d->next)
        comm->peers[d->peer].full = false;
    /* Puts to one peer stay in order. If there is no room for one peer, the
     * puts for other peers must not wait: that peer may be cut off, and the
     * others must be notified of it. */
    while ((d = *at)) {
        struct shunti_peer *p = &comm->peers[d->peer];

        p->full = p->full || !shunti_put(comm, d->peer, &d->put);
        if (p->full) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        free(d);
    }
    comm->deferred.tail = at;
}

void shunti_control_forget(struct shunt_comm *comm)
{
    struct shunti_deferred_put *d;

    while ((d = comm->deferred.first)) {
        comm->deferred.first = d->next;
        free(d);
    }
    comm->deferred.tail = &comm->deferred.first;
}
