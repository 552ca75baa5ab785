// SPDX-License-Identifier: Apache-2.0
/*
 * All-to-all: the choice of an algorithm, and the flat one, which is just an
 * exchange. In place, the input is copied first. A block cannot be overwritten
 * before its receiver has read it. That receiver may wait in the same way until
 * this rank has read its block.
 */
#include "collectives/alltoall.h"
#include "collectives/coll_call.h"
#include "collectives/exchange.h"
#include "collectives/select.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/trace/track.h"

static const struct shunti_kind kinds[] = {
    {.number = SHUNTI_KIND_ALLTOALL,
     .name = "alltoall",
     .typed = true,
     .split_by_count = true},
    {.number = SHUNTI_KIND_ALLTOALLV, .name = "alltoallv", .typed = true},
};

__attribute__((constructor)) static void register_kinds(void)
{
    shunti_kind_register(&kinds[0]);
    shunti_kind_register(&kinds[1]);
}

static const struct shunti_class alltoall_class = {
    .name = "alltoall",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .pauses = shunti_exchange_pauses,
    .awaits = shunti_exchange_awaits,
    .sent = shunti_exchange_sent,
    .cleanup = shunti_exchange_cleanup,
};

static const struct shunti_class alltoallv_class = {
    .name = "alltoallv",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .pauses = shunti_exchange_pauses,
    .awaits = shunti_exchange_awaits,
    .sent = shunti_exchange_sent,
    .cleanup = shunti_exchange_cleanup,
};

/* *send_end: bytes from `send` to the end of the last block in it. */
static enum shunt_status check(const struct shunti_coll *call,
                               const struct shunti_alltoall *a,
                               size_t *send_end)
{
    bool v = call->kind == SHUNTI_KIND_ALLTOALLV;
    int rank = call->comm->rank;
    enum shunt_status st = shunti_check_dtype(call, a->recv_blocks.dtype, 0);
    size_t recv_end;

    if (!st && v && !a->recv_blocks.counts)
        st = shunti_coll_refuse(call, "recv_counts is NULL");
    if (!st && v && !a->send_blocks.counts)
        st = shunti_coll_refuse(call, "send_counts is NULL");
    if (!st)
        st = shunti_check_blocks(call, "recv_counts", &a->recv_blocks,
                                 &recv_end);
    if (!st)
        st =
            shunti_check_blocks(call, "send_counts", &a->send_blocks, send_end);
    if (!st)
        st = shunti_check_buffer(call, "recv", a->recv, recv_end);
    if (!st)
        st = shunti_check_buffer(call, "send", a->send, *send_end);
    if (!st && v && a->send_blocks.counts[rank] != a->recv_blocks.counts[rank])
        st = shunti_coll_refuse(
            call,
            "send_counts[%d] is %zu, recv_counts[%d] %zu: this rank's "
            "own block",
            rank, a->send_blocks.counts[rank], rank,
            a->recv_blocks.counts[rank]);
    return st;
}

static void fill(struct shunti_exchange *x, int nranks,
                 const struct shunti_alltoall *a)
{
    size_t sent = 0, received = 0, at;

    for (int r = 0; r < nranks; r++) {
        struct shunti_exchange_peer *p = &x->peers[r];

        shunti_block_at(&a->send_blocks, r, &at, &p->send_bytes, &sent);
        p->send = p->send_bytes ? a->send + at : NULL;
        shunti_block_at(&a->recv_blocks, r, &at, &p->recv_bytes, &received);
        p->recv = p->recv_bytes ? a->recv + at : NULL;
    }
}

/* In place: copy the blocks in recv, and send the copy. */
static enum shunt_status copy_away(const struct shunti_coll *call,
                                   struct shunti_alltoall *a, size_t bytes)
{
    a->owned = bytes ? shunti_scratch_get(bytes) : NULL;
    if (bytes && !a->owned)
        return shunti_request_refuse(
            call->comm,
            SHUNTI_SIGNATURE(call->kind, 0, 0, call->options->purpose),
            SHUNT_ERR_MEMORY,
            "%s: no memory for %zu bytes, which a call in place needs",
            shunti_kind_name(call->kind), bytes);
    if (bytes)
        shunti_copy_payload(a->owned, a->recv, bytes);
    a->send = a->owned;
    return SHUNT_OK;
}

static enum shunt_status flat(const struct shunti_coll *call,
                              uint32_t signature,
                              const struct shunti_alltoall *a,
                              struct shunt_request **request)
{
    struct shunti_exchange *x;
    enum shunt_status st = shunti_exchange_create(
        call,
        signature >> 24 == SHUNTI_KIND_ALLTOALLV ? &alltoallv_class
                                                 : &alltoall_class,
        signature, request, &x);

    if (st)
        return st;
    x->owned = a->owned;
    fill(x, call->comm->nranks, a);
    return SHUNT_OK;
}

static enum shunt_status alltoall(const struct shunti_coll *call,
                                  struct shunti_alltoall *a)
{
    const uint32_t signature = SHUNTI_SIGNATURE(
        call->kind, a->recv_blocks.dtype, 0, call->options->purpose);
    bool in_place = a->send == SHUNT_IN_PLACE;
    const size_t block =
        a->recv_blocks.counts
            ? 0
            : a->recv_blocks.count * shunt_dtype_size(a->recv_blocks.dtype);
    struct shunt_request *request;
    enum shunt_status st;
    size_t send_end;

    if (in_place) {
        a->send_blocks = a->recv_blocks;
        a->send = a->recv;
    }
    st = check(call, a, &send_end);
    if (!st && in_place)
        st = copy_away(call, a, send_end);
    if (st)
        return st;
    /* Counts of alltoallv are local, so the choice cannot depend on them.
     * alltoall_two_level.c sends small and large blocks of one call
     * differently. */
    st = shunti_select(call->comm, call->kind, block) == SHUNTI_FLAT
             ? flat(call, signature, a, &request)
             : shunti_alltoall_two_level(call, signature, a, &request);
    if (st) {
        shunti_scratch_put(call->comm, a->owned);
        return st;
    }
    return shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             struct shunti_alltoall *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, alltoall(call, a));
}

SHUNTI_FLATTEN enum shunt_status shunt_alltoall(struct shunt_comm *comm,
                                                const void *send, void *recv,
                                                size_t count,
                                                enum shunt_dtype dtype)
{
    struct shunti_blocks blocks = {NULL, count, NULL, dtype};

    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLTOALL, false, NULL,
                                     &shunti_no_options},
               &(struct shunti_alltoall){send, blocks, recv, blocks, NULL});
}

enum shunt_status shunt_alltoall_start(struct shunt_comm *comm,
                                       const void *send, void *recv,
                                       size_t count, enum shunt_dtype dtype,
                                       struct shunt_request **request)
{
    struct shunti_blocks blocks = {NULL, count, NULL, dtype};

    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLTOALL, true, request,
                                     &shunti_no_options},
               &(struct shunti_alltoall){send, blocks, recv, blocks, NULL});
}

enum shunt_status shunti_alltoallv(struct shunt_comm *comm,
                                   const struct shunti_options *options,
                                   const void *send, const size_t *send_counts,
                                   const size_t *send_displs, void *recv,
                                   const size_t *recv_counts,
                                   const size_t *recv_displs,
                                   enum shunt_dtype dtype)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLTOALLV, false, NULL,
                                     options},
               &(struct shunti_alltoall){send,
                                         {send_counts, 0, send_displs, dtype},
                                         recv,
                                         {recv_counts, 0, recv_displs, dtype},
                                         NULL});
}

SHUNTI_FLATTEN enum shunt_status
shunt_alltoallv(struct shunt_comm *comm, const void *send,
                const size_t *send_counts, const size_t *send_displs,
                void *recv, const size_t *recv_counts,
                const size_t *recv_displs, enum shunt_dtype dtype)
{
    return shunti_alltoallv(comm, &shunti_no_options, send, send_counts,
                            send_displs, recv, recv_counts, recv_displs, dtype);
}

enum shunt_status shunti_alltoallv_start(
    struct shunt_comm *comm, const struct shunti_options *options,
    const void *send, const size_t *send_counts, const size_t *send_displs,
    void *recv, const size_t *recv_counts, const size_t *recv_displs,
    enum shunt_dtype dtype, struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLTOALLV, true, request,
                                     options},
               &(struct shunti_alltoall){send,
                                         {send_counts, 0, send_displs, dtype},
                                         recv,
                                         {recv_counts, 0, recv_displs, dtype},
                                         NULL});
}

enum shunt_status
shunt_alltoallv_start(struct shunt_comm *comm, const void *send,
                      const size_t *send_counts, const size_t *send_displs,
                      void *recv, const size_t *recv_counts,
                      const size_t *recv_displs, enum shunt_dtype dtype,
                      struct shunt_request **request)
{
    return shunti_alltoallv_start(comm, &shunti_no_options, send, send_counts,
                                  send_displs, recv, recv_counts, recv_displs,
                                  dtype, request);
}
