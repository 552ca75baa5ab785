// SPDX-License-Identifier: Apache-2.0
/* Zero copy to ranks whose memory is not mapped; see zcopy.h. */
#include "src/op/zcopy.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/registration.h"
#include "src/op/request.h"
#include "src/wire/failure.h"
#include "src/wire/reclaim.h"
#include "src/wire/wire.h"

/* Bytes of a piece of a block. The next piece follows when few puts of earlier
 * pieces are pending. A put cannot be taken back when the communicator fails,
 * and all other messages on the same connection wait behind it. */
#define PIECE ((size_t)1 << 20)
#define PENDING_MAX 8
/* Bits for the operation's number in a word that counts parts. */
#define SEQ_BITS 40
/* The channel of blocks. It is not that of the notes, whose signals would wait
 * for the signals of the blocks. */
#define CHANNEL (SHUNT_TRANSPORT_BULK + 1)

/* The place of a block, as written in a note. The key of the memory follows. */
struct name {
    uint64_t bytes;
    uint64_t key_bytes;
};

_Static_assert(SHUNTI_ZCOPY_NAME >=
                   sizeof(struct name) + SHUNT_TRANSPORT_KEY_MAX,
               "a name has room");

bool shunti_zcopy_suits(const struct shunt_comm *comm, int peer, size_t bytes)
{
    const struct shunti_peer *p = &comm->peers[peer];

    return !p->control && bytes >= comm->tune.zcopy_min &&
           p->caps & SHUNT_TRANSPORT_ZCOPY;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

static struct shunti_zcopy *take_spare(struct shunt_comm *comm)
{
    struct shunti_zcopy *z = comm->zcopies.spare;

    if (!z)
        return malloc(sizeof(*z));
    comm->zcopies.spare = z->next;
    return z;
}

struct shunti_zcopy *shunti_zcopy_create(struct shunt_request *request,
                                         int peer, int which)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_zcopy *z = take_spare(comm);

    if (!z) {
        shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                         "%s: no memory for a block of rank %d",
                         shunti_request_name(request), peer);
        return NULL;
    }
    memset(z, 0, sizeof(*z));
    z->request = request;
    z->peer = peer;
    z->which = which;
    z->next = comm->zcopies.open;
    comm->zcopies.open = z;
    return z;
}

/* --- receiving ----------------------------------------------------------- */

/* Offset in a control window of the arrival word, which says that the block of
 * `writer` has arrived. */
static size_t word_at(const struct shunti_zcopy *z, int writer)
{
    const struct shunti_layout *l = &z->request->comm->control.layout;
    const uint64_t slot = z->request->seq % SHUNTI_DEPTH;

    return l->landed + (size_t)writer * l->landed_stride +
           ((size_t)slot * SHUNTI_ZCOPY_PAYLOADS + (size_t)z->which) * 8;
}

static enum shunt_status register_briefly(struct shunti_zcopy *z, void *to,
                                          size_t bytes, void *key,
                                          size_t *key_bytes)
{
    struct shunti_context *context = z->request->comm->peers[z->peer].context;
    const struct shunt_transport_memory memory = {
        .addr = to,
        .bytes = bytes,
        .fd = -1,
        .brief = true,
    };

    return context->transport->reg(context->ctx, &memory, key, key_bytes,
                                   &z->reg);
}

size_t shunti_zcopy_name(struct shunti_zcopy *z, void *to, size_t bytes,
                         unsigned char *at)
{
    struct shunt_comm *comm = z->request->comm;
    struct shunti_context *context = comm->peers[z->peer].context;
    struct name name = {bytes, SHUNT_TRANSPORT_KEY_MAX};
    size_t key_bytes = SHUNT_TRANSPORT_KEY_MAX;
    enum shunt_status st =
        register_briefly(z, to, bytes, at + sizeof(name), &key_bytes);

    if (st) {
        shunti_comm_fail(comm, st, comm->rank,
                         "%s: registering %zu bytes for rank %d: %s",
                         shunti_request_name(z->request), bytes, z->peer,
                         context->transport->error(context->ctx));
        return 0;
    }
    name.key_bytes = key_bytes;
    z->named = true;
    memcpy(at, &name, sizeof(name));
    return sizeof(name) + aligned(key_bytes);
}

static uint64_t arrival_word(const struct shunti_zcopy *z)
{
    const unsigned char *at =
        z->request->comm->control.base + word_at(z, z->peer);

    return __atomic_load_n((const uint64_t *)(const void *)at,
                           __ATOMIC_ACQUIRE);
}

/* The value of the arrival word when `parts` parts have arrived, but not the
 * whole block. It differs from every operation's number. */
static uint64_t word_of_parts(const struct shunti_zcopy *z, uint64_t parts)
{
    return ~(uint64_t)0 << 63 | parts << SEQ_BITS |
           z->request->seq % ((uint64_t)1 << SEQ_BITS);
}

bool shunti_zcopy_arrived(const struct shunti_zcopy *z)
{
    return arrival_word(z) == z->request->seq;
}

size_t shunti_zcopy_arrived_parts(const struct shunti_zcopy *z)
{
    const uint64_t word = arrival_word(z);
    const uint64_t parts = word << 1 >> 1 >> SEQ_BITS;

    return word == word_of_parts(z, parts) ? (size_t)parts : 0;
}

/* --- sending ------------------------------------------------------------- */

static bool bad_name(const struct shunti_zcopy *z)
{
    shunti_comm_fail(z->request->comm, SHUNT_ERR_MISMATCH, z->peer,
                     "%s: rank %d names memory for %zu B where it has none; do "
                     "all ranks run the same version?",
                     shunti_request_name(z->request), z->peer, z->bytes);
    return false;
}

/* Release the remotes of operations that the peer has completed. */
static void release_spent(struct shunt_comm *comm, int peer, uint64_t completed)
{
    struct shunti_spent_remote **at = &comm->zcopies.spent, *s;
    struct shunti_peer *p = &comm->peers[peer];

    while ((s = *at)) {
        if (s->peer != peer || s->seq > completed) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        p->transport->release(p->ep, s->remote);
        free(s);
    }
}

bool shunti_zcopy_aim(struct shunti_zcopy *z, const void *data, size_t bytes,
                      const unsigned char **at)
{
    struct shunt_comm *comm = z->request->comm;
    struct shunti_peer *p = &comm->peers[z->peer];
    const unsigned char *key = *at + sizeof(struct name);
    enum shunt_status st;
    struct name name;

    z->data = data;
    z->bytes = bytes;
    memcpy(&name, *at, sizeof(name));
    if (!name.key_bytes || name.key_bytes > SHUNT_TRANSPORT_KEY_MAX)
        return bad_name(z);
    *at = key + aligned((size_t)name.key_bytes);
    if (name.bytes != bytes)
        return false;
    z->from = shunti_registration_of(comm, z->peer, data, bytes);
    release_spent(comm, z->peer, p->completed);
    st = p->transport->import(p->ep, key, (size_t)name.key_bytes, &z->remote);
    if (st == SHUNT_ERR_PEER) {
        /* an operation that waits for the peer will fail: liveness.c */
        p->lost = true;
        return true;
    }
    if (st) {
        shunti_comm_fail(comm, st, z->peer, "%s: memory of rank %d: %s",
                         shunti_request_name(z->request), z->peer,
                         p->transport->error(p->context->ctx));
        return false;
    }
    return true;
}

/* The value of the arrival word when `bytes` more have arrived; 0: parts are
 * not signalled. */
static uint64_t progress(const struct shunti_zcopy *z, size_t bytes)
{
    return z->part ? word_of_parts(z, (z->done + bytes) / z->part) : 0;
}

bool shunti_zcopy_send(struct shunti_zcopy *z)
{
    struct shunt_comm *comm = z->request->comm;
    struct shunti_peer *p = &comm->peers[z->peer];

    while (z->remote && z->done < z->bytes && z->pending <= PENDING_MAX) {
        const size_t piece = z->part && z->part < PIECE ? z->part : PIECE;
        const size_t rest = z->bytes - z->done;
        const bool last = rest <= piece;
        const struct shunt_transport_put put = {
            .local = z->data + z->done,
            .reg = z->from,
            .remote = z->remote,
            .offset = z->done,
            .bytes = last ? rest : piece,
            .signal = last || z->part ? p->control_remote : NULL,
            .signal_offset = word_at(z, comm->rank),
            .signal_value = last ? z->request->seq : progress(z, piece),
            .channel = CHANNEL,
            .pending = &z->pending,
        };

        if (!shunti_put(comm, z->peer, &put) || p->lost)
            return false;
        p->messages++;
        p->bytes_put += put.bytes;
        comm->stats.bytes_zcopy += put.bytes;
        if (put.reg)
            comm->stats.bytes_zcopy_registered += put.bytes;
        z->done += put.bytes;
    }
    return z->remote && z->done == z->bytes && !z->pending;
}

/* --- the end -------------------------------------------------------------- */

/* Keep the remote until the peer has completed the operation, because a release
 * now would lose queued puts (transport.h). Without memory for that, keep it
 * until the endpoint is closed. */
static void spend(struct shunti_zcopy *z)
{
    struct shunt_comm *comm = z->request->comm;
    struct shunti_spent_remote *s = malloc(sizeof(*s));

    if (!s)
        return;
    s->remote = z->remote;
    s->peer = z->peer;
    s->seq = z->request->seq;
    s->next = comm->zcopies.spent;
    comm->zcopies.spent = s;
}

static void end_one(struct shunti_zcopy *z, bool over, uint64_t deadline_ns)
{
    struct shunt_comm *comm = z->request->comm;
    struct shunti_context *context = comm->peers[z->peer].context;
    const bool arrived = z->named && shunti_zcopy_arrived(z);

    if (z->reg)
        context->transport->dereg(context->ctx, z->reg);
    if (over && (z->pending || (z->reg && !arrived)))
        shunti_reclaim(comm, z->peer, deadline_ns);
    if (z->remote)
        spend(z);
    z->next = comm->zcopies.spare;
    comm->zcopies.spare = z;
}

SHUNTI_NOINLINE void shunti_zcopy_end(struct shunt_request *request, bool over)
{
    struct shunti_zcopy **at = &request->comm->zcopies.open, *z;
    const uint64_t deadline = shunti_reclaim_deadline();

    while ((z = *at)) {
        if (z->request != request) {
            at = &z->next;
            continue;
        }
        *at = z->next;
        end_one(z, over, deadline);
    }
}

void shunti_zcopies_finish(struct shunt_comm *comm)
{
    struct shunti_spent_remote *s;
    struct shunti_zcopy *z;

    while ((s = comm->zcopies.spent)) {
        comm->zcopies.spent = s->next;
        free(s); /* the remote is released with its endpoint */
    }
    while ((z = comm->zcopies.spare)) {
        comm->zcopies.spare = z->next;
        free(z);
    }
}
