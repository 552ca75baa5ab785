// SPDX-License-Identifier: Apache-2.0
/*
 * All-reduce: the choice of an algorithm, and the direct one, for small
 * vectors. There, every rank gets the whole vector of every other rank, and
 * reduces all of them.
 */
#include "collectives/allreduce.h"
#include "src/base/kind.h"

#include "collectives/coll_call.h"
#include "collectives/reduction.h"
#include "collectives/select.h"
#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/note.h"
#include "src/op/payload_protocol.h"
#include "src/op/refusal.h"

static const struct shunti_kind kind = {
    .number = SHUNTI_KIND_ALLREDUCE,
    .name = "allreduce",
    .detail = SHUNTI_DETAIL_ALGORITHM,
    .typed = true,
};

__attribute__((constructor)) static void register_kind(void)
{
    shunti_kind_register(&kind);
}

static const struct shunti_class direct_class = {
    .name = "allreduce",
    .algorithm = "direct",
    .step = shunti_reduce_exchange_step,
    .pauses = shunti_reduce_exchange_pauses,
    .awaits = shunti_reduce_exchange_awaits,
    .sent = shunti_reduce_exchange_sent,
    .cleanup = shunti_reduce_exchange_cleanup,
};

/* In place, a vector that peers read from this rank's memory must not be
 * overwritten before they have read it. So the result is made elsewhere. A
 * vector that is inline in control messages has been sent by then. */
static bool needs_copy(const struct shunt_comm *comm,
                       const struct shunti_allreduce *a)
{
    return a->send == a->recv && comm->nranks > 1 &&
           (a->bytes >= SHUNTI_WINDOW_MIN || a->bytes > comm->tune.eager);
}

static enum shunt_status direct(const struct shunti_coll *call,
                                uint32_t signature,
                                const struct shunti_allreduce *a,
                                struct shunt_request **request)
{
    struct shunt_comm *comm = call->comm;
    struct shunti_reduce_exchange *s;
    enum shunt_status st;
    void *copy = NULL;

    if (needs_copy(comm, a)) {
        copy = shunti_scratch_get(a->bytes);
        if (!copy)
            return shunti_request_refuse(comm, signature, SHUNT_ERR_MEMORY,
                                         "allreduce: no memory for %zu bytes",
                                         a->bytes);
    }
    st = shunti_reduce_exchange_create(call, &direct_class, signature, a->bytes,
                                       request, &s);
    if (st) {
        shunti_scratch_put(comm, copy);
        return st;
    }
    s->owned = copy;
    s->result = a->recv;
    s->reduction.dst = copy ? copy : a->recv;
    s->reduction.own = a->send;
    s->reduction.dtype = a->dtype;
    s->reduction.op = a->op;
    for (int r = 0; r < comm->nranks; r++) {
        s->x->peers[r].send = a->send;
        s->x->peers[r].send_bytes = a->bytes;
    }
    return SHUNT_OK;
}

static enum shunt_status begin(const struct shunti_coll *call,
                               enum shunti_algorithm algorithm,
                               uint32_t signature,
                               const struct shunti_allreduce *a,
                               struct shunt_request **request)
{
    switch (algorithm) {
    case SHUNTI_ALLREDUCE_SEGMENTS:
        return shunti_allreduce_segments(call, signature, a, request);
    case SHUNTI_ALLREDUCE_WHOLE:
    case SHUNTI_ALLREDUCE_LANES:
    case SHUNTI_ALLREDUCE_SHARDS:
        return shunti_allreduce_two_level(call, signature, a, algorithm,
                                          request);
    case SHUNTI_DISSEMINATION:
        return shunti_allreduce_dissemination(call, signature, a, request);
    case SHUNTI_ALLREDUCE_DOUBLING:
        return shunti_allreduce_doubling(call, signature, a, request);
    default:
        return direct(call, signature, a, request);
    }
}

static enum shunt_status check(const struct shunti_coll *call,
                               struct shunti_allreduce *a)
{
    enum shunt_status st = shunti_check_dtype(call, a->dtype, a->op);

    if (!st && !shunti_op_valid(a->op))
        st = shunti_coll_refuse(call, "op %d is not one of enum shunt_op",
                                (int)a->op);
    if (!st)
        st = shunti_check_count(call, a->count, 1, a->dtype, &a->bytes);
    if (!st)
        st = shunti_check_buffer(call, "recv", a->recv, a->bytes);
    if (!st && a->send == SHUNT_IN_PLACE)
        a->send = a->recv;
    return st ? st : shunti_check_buffer(call, "send", a->send, a->bytes);
}

static enum shunt_status allreduce(const struct shunti_coll *call,
                                   struct shunti_allreduce *a)
{
    struct shunt_request *request;
    enum shunti_algorithm algorithm;
    enum shunt_status st = check(call, a);
    uint32_t signature;

    if (st)
        return st;
    algorithm = shunti_select(call->comm, SHUNTI_KIND_ALLREDUCE, a->bytes);
    /* The signature contains the algorithm: ranks whose counts disagree may
     * choose different algorithms, which must be noticed. */
    signature = SHUNTI_SIGNATURE(call->kind, a->dtype, a->op, algorithm);
    st = begin(call, algorithm, signature, a, &request);
    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call,
                             struct shunti_allreduce *a)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, allreduce(call, a));
}

SHUNTI_FLATTEN enum shunt_status
shunt_allreduce(struct shunt_comm *comm, const void *send, void *recv,
                size_t count, enum shunt_dtype dtype, enum shunt_op op)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLREDUCE, false, NULL,
                                     &shunti_no_options},
               &(struct shunti_allreduce){send, recv, count, 0, dtype, op});
}

enum shunt_status shunt_allreduce_start(struct shunt_comm *comm,
                                        const void *send, void *recv,
                                        size_t count, enum shunt_dtype dtype,
                                        enum shunt_op op,
                                        struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_ALLREDUCE, true, request,
                                     &shunti_no_options},
               &(struct shunti_allreduce){send, recv, count, 0, dtype, op});
}
