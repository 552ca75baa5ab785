// SPDX-License-Identifier: Apache-2.0
/*
 * Reduce-scatter: the choice of an algorithm, and the flat one: an exchange
 * whose blocks are reduced instead of stored.
 *
 * In place, the result is made in scratch memory, and copied to the front of
 * the buffer after all peers have read their blocks. Nothing else in the buffer
 * changes, as in MPI. Rank 0 needs no scratch memory: its own block is at the
 * front, and no other rank reads it.
 */
#include "collectives/reduce_scatter.h"
#include "collectives/reduction.h"
#include "collectives/select.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/refusal.h"

static const struct shunti_kind kinds[] = {
    {.number = SHUNTI_KIND_REDUCE_SCATTER,
     .name = "reduce_scatter",
     .typed = true},
    {.number = SHUNTI_KIND_REDUCE_SCATTERV,
     .name = "reduce_scatterv",
     .typed = true,
     .counts = true},
};

__attribute__((constructor)) static void register_kinds(void)
{
    shunti_kind_register(&kinds[0]);
    shunti_kind_register(&kinds[1]);
}

static const struct shunti_class reduce_scatter_class = {
    .name = "reduce_scatter",
    .algorithm = "flat",
    .step = shunti_reduce_exchange_step,
    .pauses = shunti_reduce_exchange_pauses,
    .awaits = shunti_reduce_exchange_awaits,
    .sent = shunti_reduce_exchange_sent,
    .cleanup = shunti_reduce_exchange_cleanup,
};

static const struct shunti_class reduce_scatterv_class = {
    .name = "reduce_scatterv",
    .algorithm = "flat",
    .step = shunti_reduce_exchange_step,
    .pauses = shunti_reduce_exchange_pauses,
    .awaits = shunti_reduce_exchange_awaits,
    .sent = shunti_reduce_exchange_sent,
    .cleanup = shunti_reduce_exchange_cleanup,
};

static enum shunt_status check(const struct shunti_coll *call,
                               const struct shunti_reduce_scatter *a)
{
    enum shunt_status st = shunti_check_dtype(call, a->blocks.dtype, a->op);
    size_t total, ours = 0;

    if (!st && !shunti_op_valid(a->op))
        st = shunti_coll_refuse(call, "op %d is not one of enum shunt_op",
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
                 const struct shunti_reduce_scatter *a)
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
            r->dst = s->owned ? s->owned : a->recv;
            s->result = a->recv;
        } else {
            s->x->peers[i].send = send + at;
            s->x->peers[i].send_bytes = bytes;
        }
    }
    r->dtype = a->blocks.dtype;
    r->op = a->op;
}

static size_t own_bytes(const struct shunt_comm *comm,
                        const struct shunti_blocks *blocks)
{
    return (blocks->counts ? blocks->counts[comm->rank] : blocks->count) *
           shunt_dtype_size(blocks->dtype);
}

static enum shunt_status flat(const struct shunti_coll *call,
                              uint32_t signature,
                              const struct shunti_reduce_scatter *a,
                              struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    const size_t bytes = own_bytes(comm, &a->blocks);
    struct shunti_reduce_exchange *s;
    enum shunt_status st;
    void *result = NULL;

    if (a->send == SHUNT_IN_PLACE && comm->rank && bytes) {
        result = shunti_scratch_get(bytes);
        if (!result)
            return shunti_request_refuse(
                comm, signature, SHUNT_ERR_MEMORY,
                "%s: no memory for %zu bytes, which a call in place needs",
                shunti_kind_name(signature >> 24), bytes);
    }
    st = shunti_reduce_exchange_create(
        call,
        signature >> 24 == SHUNTI_KIND_REDUCE_SCATTERV ? &reduce_scatterv_class
                                                       : &reduce_scatter_class,
        signature, bytes, request, &s);
    if (st) {
        shunti_scratch_put(comm, result);
        return st;
    }
    s->owned = result;
    fill(s, comm->nranks, comm->rank, a);
    return SHUNT_OK;
}

static enum shunt_status reduce_scatter(const struct shunti_coll *call,
                                        const struct shunti_reduce_scatter *a)
{
    struct shunt_comm *comm = call->comm;
    struct shunt_request *request;
    enum shunt_status st = check(call, a);
    uint32_t signature;

    if (st)
        return st;
    signature = SHUNTI_SIGNATURE(call->kind, a->blocks.dtype, a->op,
                                 call->options->purpose);
    st = shunti_select(comm, call->kind,
                       shunti_blocks_total(comm, &a->blocks)) == SHUNTI_FLAT
             ? flat(call, signature, a, &request)
             : shunti_reduce_scatter_two_level(call, signature, a, &request);
    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             const struct shunti_reduce_scatter *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, reduce_scatter(call, a));
}

SHUNTI_FLATTEN enum shunt_status
shunt_reduce_scatter(struct shunt_comm *comm, const void *send, void *recv,
                     size_t count, enum shunt_dtype dtype, enum shunt_op op)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTER, false,
                                     NULL, &shunti_no_options},
               &(struct shunti_reduce_scatter){
                   send, recv, {NULL, count, NULL, dtype}, op});
}

enum shunt_status
shunt_reduce_scatter_start(struct shunt_comm *comm, const void *send,
                           void *recv, size_t count, enum shunt_dtype dtype,
                           enum shunt_op op, struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTER, true,
                                     request, &shunti_no_options},
               &(struct shunti_reduce_scatter){
                   send, recv, {NULL, count, NULL, dtype}, op});
}

SHUNTI_FLATTEN enum shunt_status
shunt_reduce_scatterv(struct shunt_comm *comm, const void *send, void *recv,
                      const size_t *counts, enum shunt_dtype dtype,
                      enum shunt_op op)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTERV, false,
                                     NULL, &shunti_no_options},
               &(struct shunti_reduce_scatter){
                   send, recv, {counts, 0, NULL, dtype}, op});
}

enum shunt_status shunti_reduce_scatterv_start(
    struct shunt_comm *comm, const struct shunti_options *options,
    const void *send, void *recv, const size_t *counts, enum shunt_dtype dtype,
    enum shunt_op op, struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_REDUCE_SCATTERV, true,
                                     request, options},
               &(struct shunti_reduce_scatter){
                   send, recv, {counts, 0, NULL, dtype}, op});
}

enum shunt_status shunt_reduce_scatterv_start(
    struct shunt_comm *comm, const void *send, void *recv, const size_t *counts,
    enum shunt_dtype dtype, enum shunt_op op, struct shunt_request **request)
{
    return shunti_reduce_scatterv_start(comm, &shunti_no_options, send, recv,
                                        counts, dtype, op, request);
}
