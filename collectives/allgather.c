// SPDX-License-Identifier: Apache-2.0
/*
 * All-gather: the choice of an algorithm, and the flat one: an exchange in
 * which a rank has the same block for every peer.
 */
#include "collectives/allgather.h"
#include "collectives/exchange.h"
#include "collectives/select.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/comm.h"

static const struct shunti_kind kinds[] = {
    {.number = SHUNTI_KIND_ALLGATHER, .name = "allgather", .typed = true},
    {.number = SHUNTI_KIND_ALLGATHERV,
     .name = "allgatherv",
     .typed = true,
     .counts = true},
};

__attribute__((constructor)) static void register_kinds(void)
{
    shunti_kind_register(&kinds[0]);
    shunti_kind_register(&kinds[1]);
}

static const struct shunti_class allgather_class = {
    .name = "allgather",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .pauses = shunti_exchange_pauses,
    .awaits = shunti_exchange_awaits,
    .sent = shunti_exchange_sent,
};

static const struct shunti_class allgatherv_class = {
    .name = "allgatherv",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .pauses = shunti_exchange_pauses,
    .awaits = shunti_exchange_awaits,
    .sent = shunti_exchange_sent,
};

static enum shunt_status check(const struct shunti_coll *call,
                               const struct shunti_allgather *a)
{
    const struct shunti_blocks *b = &a->blocks;
    bool v = call->kind == SHUNTI_KIND_ALLGATHERV;
    enum shunt_status st = shunti_check_dtype(call, b->dtype, 0);
    size_t total, bytes;

    if (!st && v && !b->counts)
        st = shunti_coll_refuse(call, "recv_counts is NULL");
    if (!st)
        st = shunti_check_blocks(call, "recv_counts", b, &total);
    if (!st)
        st = shunti_check_buffer(call, "recv", a->recv, total);
    if (st || a->send == SHUNT_IN_PLACE)
        return st;
    if (v && a->send_count != b->counts[call->comm->rank])
        return shunti_coll_refuse(
            call, "send_count is %zu, recv_counts[%d], for the same block, %zu",
            a->send_count, call->comm->rank, b->counts[call->comm->rank]);
    st = shunti_check_count(call, a->send_count, 1, b->dtype, &bytes);
    return st ? st : shunti_check_buffer(call, "send", a->send, bytes);
}

static void fill(struct shunti_exchange *x, const struct shunt_comm *comm,
                 const struct shunti_allgather *a)
{
    size_t packed = 0, at;

    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_exchange_peer *p = &x->peers[r];

        shunti_block_at(&a->blocks, r, &at, &p->recv_bytes, &packed);
        p->recv = p->recv_bytes ? a->recv + at : NULL;
    }
    for (int r = 0; r < comm->nranks; r++) {
        x->peers[r].send =
            a->send == SHUNT_IN_PLACE ? x->peers[comm->rank].recv : a->send;
        x->peers[r].send_bytes = x->peers[comm->rank].recv_bytes;
    }
}

static enum shunt_status flat(const struct shunti_coll *call,
                              uint32_t signature,
                              const struct shunti_allgather *a,
                              struct shunt_request **request)
{
    struct shunti_exchange *x;
    enum shunt_status st = shunti_exchange_create(
        call,
        signature >> 24 == SHUNTI_KIND_ALLGATHERV ? &allgatherv_class
                                                  : &allgather_class,
        signature, request, &x);

    if (!st)
        fill(x, call->comm, a);
    return st;
}

static enum shunt_status allgather(const struct shunti_coll *call,
                                   const struct shunti_allgather *a)
{
    struct shunt_comm *comm = call->comm;
    struct shunt_request *request;
    enum shunti_algorithm algorithm;
    enum shunt_status st = check(call, a);
    uint32_t signature;
    size_t total;

    if (st)
        return st;
    signature = SHUNTI_SIGNATURE(call->kind, a->blocks.dtype, 0,
                                 call->options->purpose);
    total = shunti_blocks_total(comm, &a->blocks);
    algorithm = shunti_select(comm, call->kind, total);
    if (algorithm == SHUNTI_FLAT)
        st = flat(call, signature, a, &request);
    else if (algorithm == SHUNTI_DISSEMINATION)
        st = shunti_allgather_dissemination(call, signature, a, &request);
    else if (shunti_allgather_in_place_suits(comm, total))
        st = shunti_allgather_in_place(call, signature, a, &request);
    else
        st = shunti_allgather_two_level(call, signature, a, &request);
    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             const struct shunti_allgather *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, allgather(call, a));
}

enum shunt_status shunti_allgather(struct shunt_comm *comm,
                                   const struct shunti_options *options,
                                   const void *send, void *recv, size_t count,
                                   enum shunt_dtype dtype)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLGATHER, false, NULL,
                                     options},
               &(struct shunti_allgather){
                   send, count, recv, {NULL, count, NULL, dtype}});
}

SHUNTI_FLATTEN enum shunt_status shunt_allgather(struct shunt_comm *comm,
                                                 const void *send, void *recv,
                                                 size_t count,
                                                 enum shunt_dtype dtype)
{
    return shunti_allgather(comm, &shunti_no_options, send, recv, count, dtype);
}

enum shunt_status shunt_allgather_start(struct shunt_comm *comm,
                                        const void *send, void *recv,
                                        size_t count, enum shunt_dtype dtype,
                                        struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLGATHER, true, request,
                                     &shunti_no_options},
               &(struct shunti_allgather){
                   send, count, recv, {NULL, count, NULL, dtype}});
}

SHUNTI_FLATTEN enum shunt_status
shunt_allgatherv(struct shunt_comm *comm, const void *send, size_t send_count,
                 void *recv, const size_t *recv_counts,
                 const size_t *recv_displs, enum shunt_dtype dtype)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_ALLGATHERV, false, NULL,
                              &shunti_no_options},
        &(struct shunti_allgather){
            send, send_count, recv, {recv_counts, 0, recv_displs, dtype}});
}

enum shunt_status shunti_allgatherv_start(struct shunt_comm *comm,
                                          const struct shunti_options *options,
                                          const void *send, size_t send_count,
                                          void *recv, const size_t *recv_counts,
                                          const size_t *recv_displs,
                                          enum shunt_dtype dtype,
                                          struct shunt_request **request)
{
    return run(
        &(struct shunti_coll){comm, SHUNTI_KIND_ALLGATHERV, true, request,
                              options},
        &(struct shunti_allgather){
            send, send_count, recv, {recv_counts, 0, recv_displs, dtype}});
}

enum shunt_status shunt_allgatherv_start(struct shunt_comm *comm,
                                         const void *send, size_t send_count,
                                         void *recv, const size_t *recv_counts,
                                         const size_t *recv_displs,
                                         enum shunt_dtype dtype,
                                         struct shunt_request **request)
{
    return shunti_allgatherv_start(comm, &shunti_no_options, send, send_count,
                                   recv, recv_counts, recv_displs, dtype,
                                   request);
}
