// SPDX-License-Identifier: Apache-2.0
/*
 * Barrier: an exchange of empty blocks. Every rank sends a control message to
 * every other one. A rank that has received all of them knows that all ranks
 * have entered the barrier. Between nodes the barrier runs in two levels: a
 * control message from a rail peer implies that all local peers of that rank
 * have entered. It may take rounds there (two_level.h): then a rank sends
 * ceil(log2(nodes)) messages to other nodes, not nodes - 1.
 *
 * With more ranks than cores on one host, the barrier is a star (star.h).
 * There, the many control messages of an exchange cost more than the detour
 * through rank 0. Rank 0 also leaves first, and in most programs it is the root
 * of the next call. Ranks that left before rank 0 would only wait for it to get
 * a core.
 */
#include "collectives/coll_call.h"
#include "collectives/exchange.h"
#include "collectives/select.h"
#include "collectives/star.h"
#include "collectives/two_level.h"
#include "src/base/inline.h"
#include "src/base/kind.h"
#include "src/comm.h"

static const struct shunti_kind kind = {.number = SHUNTI_KIND_BARRIER,
                                        .name = "barrier"};

__attribute__((constructor)) static void register_kind(void)
{
    shunti_kind_register(&kind);
}

static const struct shunti_class barrier_class = {
    .name = "barrier",
    .algorithm = "flat",
    .step = shunti_exchange_step,
    .pauses = shunti_exchange_pauses,
    .awaits = shunti_exchange_awaits,
};

static const struct shunti_class two_level_class = {
    .name = "barrier",
    .algorithm = "two_level",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

static const struct shunti_class dissemination_class = {
    .name = "barrier",
    .algorithm = "dissemination",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

SHUNTI_NOINLINE static enum shunt_status
between_nodes(const struct shunti_coll *call, uint32_t signature, bool rounds,
              struct shunt_request **request)
{
    static const struct shunti_two_level_hooks none = {0};
    struct shunti_two_level *x;
    enum shunt_status st = shunti_two_level_create(
        call, rounds ? &dissemination_class : &two_level_class, &none,
        signature, rounds ? SHUNTI_LOCALS_THEN_ROUNDS : SHUNTI_LOCALS_FIRST, 0,
        request, &x);

    if (!st)
        x->agreed = true;
    return st;
}

static enum shunt_status begin(const struct shunti_coll *call,
                               uint32_t signature,
                               struct shunt_request **request)
{
    struct shunti_exchange *x;

    switch (shunti_select(call->comm, SHUNTI_KIND_BARRIER, 0)) {
    case SHUNTI_STAR:
        return shunti_star_create(
            call, signature, &(struct shunti_star){.gathers = true}, request);
    case SHUNTI_FLAT:
        return shunti_exchange_create(call, &barrier_class, signature, request,
                                      &x);
    case SHUNTI_DISSEMINATION:
        return between_nodes(call, signature, true, request);
    default:
        return between_nodes(call, signature, false, request);
    }
}

static enum shunt_status barrier(const struct shunti_coll *call)
{
    struct shunt_request *request;
    enum shunt_status st =
        begin(call, SHUNTI_SIGNATURE(call->kind, 0, 0, 0), &request);

    return st ? st : shunti_coll_launch(call, request);
}

static enum shunt_status run(const struct shunti_coll *call)
{
    enum shunt_status st = shunti_coll_enter(call);

    return st ? st : shunti_coll_leave(call, barrier(call));
}

SHUNTI_FLATTEN enum shunt_status shunt_barrier(struct shunt_comm *comm)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BARRIER, false, NULL,
                                     &shunti_no_options});
}

enum shunt_status shunt_barrier_start(struct shunt_comm *comm,
                                      struct shunt_request **request)
{
    return run(&(struct shunti_coll){comm, SHUNTI_KIND_BARRIER, true, request,
                                     &shunti_no_options});
}
