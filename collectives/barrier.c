// SPDX-License-Identifier: Apache-2.0
/*
 * Barrier: an exchange of nothing. Every rank's note reaches every rank, and
 * who has them all knows that all have come.
 */
#include "coll_call.h"
#include "comm.h"
#include "exchange.h"

static const struct shunti_class barrier_class = {
    .name = "barrier",
    .step = shunti_exchange_step,
    .awaits = shunti_exchange_awaits,
};

static enum shunt_status barrier(const struct shunti_coll *call)
{
    struct shunt_request *request;
    struct shunti_exchange *x;
    enum shunt_status st = shunti_exchange_create(
        call->comm, &barrier_class, SHUNTI_SIGNATURE(call->kind, 0, 0, 0),
        &request, &x);

    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, barrier(call));
}

enum shunt_status shunt_barrier(struct shunt_comm *comm)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BARRIER, false, NULL});
}

enum shunt_status shunt_barrier_start(struct shunt_comm *comm,
                                      struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BARRIER, true, request});
}
