// SPDX-License-Identifier: Apache-2.0
/* Reduction straight out of the peers' memory; see reduction.h. */
#include "collectives/reduction.h"

#include <string.h>

#include "collectives/coll_call.h"
#include "collectives/tree.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/note.h"
#include "src/wire/failure.h"

/* Bytes that are read raw from each source at a time: so few that they are
 * still in the second-level cache when they are reduced. */
#define READ_PIECE ((size_t)128 << 10)

/* --- one pass ------------------------------------------------------------- */

/* Choose how many bytes are reduced at once, and allocate memory for raw
 * reads. */
static bool begin(struct shunt_request *request, struct shunti_reduction *r)
{
    const struct shunt_comm *comm = request->comm;
    size_t streams = 0, reads = 0;

    for (int i = 0; i < comm->nranks; i++) {
        if (i == comm->rank)
            continue;
        streams += r->sources[i]->way == SHUNTI_WAY_STREAM;
        reads += r->sources[i]->way == SHUNTI_WAY_READ;
    }
    r->piece = streams ? comm->control.layout.chunk
               : reads ? READ_PIECE
                       : r->bytes;
    if (r->piece > r->bytes)
        r->piece = r->bytes;
    if (reads) {
        r->scratch = shunti_scratch_get(reads * r->piece);
        if (!r->scratch) {
            shunti_comm_fail(request->comm, SHUNT_ERR_MEMORY, comm->rank,
                             "%s: no memory for %zu bytes",
                             shunti_request_name(request), reads * r->piece);
            return false;
        }
    }
    return true;
}

/* Find pointers to the next `len` bytes of every source. Returns false if some
 * have not arrived. Streams are checked first: while a stream lacks its bytes,
 * raw reads would lie in scratch memory and leave the cache. */
static bool point(struct shunt_request *request, struct shunti_reduction *r,
                  size_t len)
{
    const struct shunt_comm *comm = request->comm;
    unsigned char *scratch = r->scratch;
    bool all = true;

    for (int i = 0; i < comm->nranks; i++) {
        if (i == comm->rank || r->sources[i]->way != SHUNTI_WAY_STREAM)
            continue;
        r->operands[i] =
            shunti_source_peek(request, i, r->sources[i], len, NULL);
        if (!r->operands[i])
            return false;
    }
    for (int i = 0; i < comm->nranks; i++) {
        if (i == comm->rank) {
            r->operands[i] = r->own + r->done;
            continue;
        }
        if (r->sources[i]->way == SHUNTI_WAY_STREAM)
            continue;
        r->operands[i] =
            shunti_source_peek(request, i, r->sources[i], len, scratch);
        all &= r->operands[i] != NULL;
        r->failed |= r->sources[i]->failed;
        if (r->sources[i]->way == SHUNTI_WAY_READ)
            scratch += r->piece;
    }
    /* Wait also after a failure: `scratch` is not freed before all reads are
     * over. */
    return all;
}

bool shunti_reduction_run(struct shunt_request *request,
                          struct shunti_reduction *r)
{
    const struct shunt_comm *comm = request->comm;
    const size_t before = r->done;

    if (r->failed || r->done == r->bytes || (!r->piece && !begin(request, r)))
        return false;
    while (r->done < r->bytes) {
        size_t rest = r->bytes - r->done;
        size_t len = rest < r->piece ? rest : r->piece;

        if (!point(request, r, len))
            break;
        if (r->failed)
            return true;
        shunti_tree(comm, r->dst + r->done, r->operands,
                    r->operands + comm->nranks,
                    len / shunt_dtype_size(r->dtype), r->dtype, r->op);
        for (int i = 0; i < comm->nranks; i++)
            if (i != comm->rank)
                shunti_source_next(request, i, r->sources[i], len);
        r->done += len;
    }
    return r->done != before;
}

/* --- an exchange that is reduced ------------------------------------------ */

static struct shunti_reduce_exchange *
state_of(const struct shunt_request *request)
{
    return (struct shunti_reduce_exchange *)(void *)(uintptr_t)request->state;
}

enum shunt_status shunti_reduce_exchange_create(
    const struct shunti_coll *call, const struct shunti_class *class,
    uint32_t signature, size_t bytes, struct shunt_request **request,
    struct shunti_reduce_exchange **out)
{
    struct shunt_comm *comm = call->comm;
    const size_t n = (size_t)comm->nranks;
    struct shunti_reduce_exchange *s;
    struct shunti_reduction *r;
    enum shunt_status st;

    st = shunti_request_create(
        comm, class, signature, call->options,
        sizeof(*s) + shunti_exchange_bytes(comm->nranks) +
            n * (sizeof(*r->sources) + 2 * sizeof(*r->operands)),
        request);
    if (st)
        return st;
    s = *out = state_of(*request);
    r = &s->reduction;
    s->x = (struct shunti_exchange *)(void *)(s + 1);
    shunti_exchange_init(s->x, *request);
    r->sources = (struct shunti_source **)(void *)(s->x->peers + n);
    r->operands = (const void **)(void *)(r->sources + n);
    r->bytes = bytes;
    for (size_t i = 0; i < n; i++) {
        r->sources[i] = &s->x->peers[i].source;
        if ((int)i != comm->rank)
            s->x->peers[i].recv_bytes = bytes;
    }
    return SHUNT_OK;
}

/* Read and discard the blocks that other ranks offer, so that they can
 * complete. A block is missing, so there is no result. */
static bool discard(struct shunt_request *request, struct shunti_exchange *x)
{
    bool moved = false;

    for (int i = 0; i < request->comm->nranks; i++) {
        struct shunti_exchange_peer *p = &x->peers[i];
        size_t before = p->source.done;

        if (i == request->comm->rank || p->in != SHUNTI_IN_READY)
            continue;
        if (shunti_source_pull(request, i, &p->source, NULL)) {
            shunti_exchange_taken(request, x, i);
            moved = true;
        }
        moved |= p->source.done != before;
    }
    return moved;
}

static bool any_bad(const struct shunt_request *request,
                    const struct shunti_exchange *x)
{
    for (int i = 0; i < request->comm->nranks; i++)
        if (x->peers[i].bad)
            return true;
    return false;
}

/* Reduce the blocks. All control messages have arrived. This rank's messages
 * have been sent, so the result may overwrite blocks that are inline in
 * them. */
static bool reduce(struct shunt_request *request,
                   struct shunti_reduce_exchange *s)
{
    struct shunti_reduction *r = &s->reduction;
    bool moved;

    if (r->failed || (request->error && any_bad(request, s->x)))
        return discard(request, s->x);
    moved = shunti_reduction_run(request, r);
    if (r->done == r->bytes) {
        for (int i = 0; i < request->comm->nranks; i++)
            if (i != request->comm->rank)
                shunti_exchange_taken(request, s->x, i);
        moved = true;
    }
    return moved;
}

SHUNTI_FLATTEN enum shunt_status
shunti_reduce_exchange_step(struct shunt_request *request)
{
    struct shunti_reduce_exchange *s = state_of(request);
    struct shunti_exchange *x = s->x;
    const int peers = request->comm->nranks - 1;
    bool moved;

    do {
        moved = x->posted < peers && shunti_exchange_post(request, x);
        if (x->out_open)
            moved |= shunti_exchange_send(request, x);
        for (int i = 0; i < peers && x->in_unmet; i++)
            moved |= shunti_exchange_meet(request, x,
                                          shunti_nth_in(request->comm, i));
        if (x->in_open && !x->in_unmet && x->posted == peers)
            moved |= reduce(request, s);
        if (!x->in_open && !x->out_open) {
            if (peers == 0)
                (void)shunti_reduction_run(request, &s->reduction);
            if (s->result && s->result != s->reduction.dst && !request->error)
                memmove(s->result, s->reduction.dst, s->reduction.bytes);
            return SHUNT_OK;
        }
    } while (moved);
    return SHUNT_IN_PROGRESS;
}

bool shunti_reduce_exchange_awaits(const struct shunt_request *request,
                                   int peer)
{
    const struct shunti_exchange_peer *p = &state_of(request)->x->peers[peer];

    return p->in == SHUNTI_IN_NOTE ||
           (p->in == SHUNTI_IN_READY && p->source.done < p->source.bytes) ||
           p->out != SHUNTI_OUT_DONE;
}

bool shunti_reduce_exchange_pauses(const struct shunt_request *request)
{
    return shunti_exchange_is_still(request, state_of(request)->x);
}

size_t shunti_reduce_exchange_sent(const struct shunt_request *request,
                                   int peer)
{
    return state_of(request)->x->peers[peer].send_bytes;
}

void shunti_reduce_exchange_cleanup(struct shunt_request *request)
{
    struct shunti_reduce_exchange *s = state_of(request);

    shunti_scratch_put(request->comm, s->reduction.scratch);
    shunti_scratch_put(request->comm, s->owned);
}
