// SPDX-License-Identifier: Apache-2.0
/*
 * Reduce-scatter: an exchange whose blocks are added instead of stored.
 *
 * In place, the result is made on top of this rank's own block, which nobody
 * else reads, and moves to the front of the buffer when the block there has
 * been taken by its owner.
 */
#include "coll_call.h"
#include "comm.h"
#include "dtype.h"
#include "reduction.h"

static const struct shunti_class reduce_scatter_class = {
    .name = "reduce_scatter",
    .step = shunti_reduce_exchange_step,
    .awaits = shunti_reduce_exchange_awaits,
    .cleanup = shunti_reduce_exchange_cleanup,
};

static const struct shunti_class reduce_scatterv_class = {
    .name = "reduce_scatterv",
    .step = shunti_reduce_exchange_step,
    .awaits = shunti_reduce_exchange_awaits,
    .cleanup = shunti_reduce_exchange_cleanup,
};

struct arguments {
    const unsigned char *send;
    unsigned char *recv;
    struct shunti_blocks blocks; /* in send */
    enum shunt_op op;
};

static enum shunt_status check(const struct shunti_coll *call,
                               const struct arguments *a)
{
    enum shunt_status st = shunti_check_dtype(call, a->blocks.dtype, a->op);
    size_t total, ours = 0;

    if (!st && !shunti_op_valid(a->op))
        st = shunti_coll_refuse(call, "op %d is none (enum shunt_op)",
                                (int)a->op);
    if (!st && call->kind == SHUNTI_KIND_REDUCE_SCATTERV && !a->blocks.counts)
        st = shunti_coll_refuse(call, "counts is NULL");
    if (!st)
        st = shunti_check_blocks(call, "counts", &a->blocks, &total);
    if (st)
        return st;
    ours =
        a->blocks.counts ? a->blocks.counts[call->comm->rank] : a->blocks.count;
    if (a->send == SHUNT_IN_PLACE)
        return shunti_check_buffer(call, "recv", a->recv, total);
    st = shunti_check_buffer(call, "send", a->send, total);
    if (st)
        return st;
    return shunti_check_buffer(call, "recv", a->recv,
                               ours * shunt_dtype_size(a->blocks.dtype));
}

static void fill(struct shunti_reduce_exchange *s, int nranks, int rank,
                 const struct arguments *a)
{
    const bool in_place = a->send == SHUNT_IN_PLACE;
    const unsigned char *send = in_place ? a->recv : a->send;
    struct shunti_reduction *r = &s->reduction;
    size_t packed = 0, at, bytes;

    for (int i = 0; i < nranks; i++) {
        shunti_block_at(&a->blocks, i, &at, &bytes, &packed);
        if (!bytes)
            continue;
        if (i == rank) {
            r->own = send + at;
            r->dst = in_place ? a->recv + at : a->recv;
            s->result = a->recv;
        } else {
            s->x->peers[i].send = send + at;
            s->x->peers[i].send_bytes = bytes;
        }
    }
    r->dtype = a->blocks.dtype;
    r->op = a->op;
}

static enum shunt_status reduce_scatter(const struct shunti_coll *call,
                                        const struct arguments *a)
{
    struct shunt_comm *comm = call->comm;
    struct shunti_reduce_exchange *s;
    struct shunt_request *request;
    enum shunt_status st = check(call, a);
    size_t ours;

    if (st)
        return st;
    ours = a->blocks.counts ? a->blocks.counts[comm->rank] : a->blocks.count;
    st = shunti_reduce_exchange_create(
        comm,
        call->kind == SHUNTI_KIND_REDUCE_SCATTERV ? &reduce_scatterv_class
                                                  : &reduce_scatter_class,
        SHUNTI_SIGNATURE(call->kind, a->blocks.dtype, a->op, 0),
        ours * shunt_dtype_size(a->blocks.dtype), &request, &s);
    if (st)
        return st;
    fill(s, comm->nranks, comm->rank, a);
    return shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             const struct arguments *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, reduce_scatter(call, a));
}

enum shunt_status shunt_reduce_scatter(struct shunt_comm *comm,
                                       const void *send, void *recv,
                                       size_t count, enum shunt_dtype dtype,
                                       enum shunt_op op)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTER, false, NULL},
        &(struct arguments){send, recv, {NULL, count, NULL, dtype}, op});
}

enum shunt_status
shunt_reduce_scatter_start(struct shunt_comm *comm, const void *send,
                           void *recv, size_t count, enum shunt_dtype dtype,
                           enum shunt_op op, struct shunt_request **request)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTER, true, request},
        &(struct arguments){send, recv, {NULL, count, NULL, dtype}, op});
}

enum shunt_status shunt_reduce_scatterv(struct shunt_comm *comm,
                                        const void *send, void *recv,
                                        const size_t *counts,
                                        enum shunt_dtype dtype,
                                        enum shunt_op op)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTERV, false, NULL},
        &(struct arguments){send, recv, {counts, 0, NULL, dtype}, op});
}

enum shunt_status shunt_reduce_scatterv_start(
    struct shunt_comm *comm, const void *send, void *recv, const size_t *counts,
    enum shunt_dtype dtype, enum shunt_op op, struct shunt_request **request)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTERV, true, request},
        &(struct arguments){send, recv, {counts, 0, NULL, dtype}, op});
}
