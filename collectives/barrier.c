// SPDX-License-Identifier: Apache-2.0
/*
 * Barrier: an exchange of nothing. Every rank's note reaches every rank, and
 * who has them all knows that all have come. Between nodes, in two levels: who
 * has heard of a rank of another node has heard of all its mates.
 */
#include "coll_call.h"
#include "comm.h"
#include "exchange.h"
#include "select.h"
#include "two_level.h"
#include "whole.h"

static const struct shunti_class barrier_class = {
    .name = "barrier",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .awaits = shunti_exchange_awaits,
};

static const struct shunti_class two_level_class = {
    .name = "barrier",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .heard = shunti_two_level_heard,
    .owes = shunti_two_level_owes,
    .cleanup = shunti_two_level_cleanup,
};

SHUNTI_APART static enum shunt_status two_level(struct shunt_comm *comm,
                                                uint32_t signature,
                                                struct shunt_request **request)
{
    static const struct shunti_two_level_hooks none = {0};
    struct shunti_two_level *x;
    enum shunt_status st = shunti_two_level_create(
        comm, &two_level_class, &none, signature, true, 0, request, &x);

    if (!st)
        x->agreed = true;
    return st;
}

static enum shunt_status barrier(const struct shunti_coll *call)
{
    const uint32_t signature = SHUNTI_SIGNATURE(call->kind, 0, 0, 0);
    struct shunt_request *request;
    struct shunti_exchange *x;
    enum shunt_status st;

    st = shunti_select(call->comm, SHUNTI_KIND_BARRIER, 0) == SHUNTI_FLAT
             ? shunti_exchange_create(call->comm, &barrier_class, signature,
                                      &request, &x)
             : two_level(call->comm, signature, &request);
    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, barrier(call));
}

SHUNTI_WHOLE enum shunt_status shunt_barrier(struct shunt_comm *comm)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BARRIER, false, NULL});
}

enum shunt_status shunt_barrier_start(struct shunt_comm *comm,
                                      struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BARRIER, true, request});
}
