// SPDX-License-Identifier: Apache-2.0
/* Lists of rows under way; see lists.h. */
#include "moe/plan/lists.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/alltoall.h"
#include "moe/plan.h"
#include "moe/plan/lifetime.h"
#include "src/comm.h"
#include "src/progress/call.h"
#include "src/progress/turns.h"
#include "src/wire/failure.h"

/* Find the lists of a request: its class is a member of them. */
static struct shunti_lists *lists_of(const struct shunt_request *request)
{
    return (
        struct shunti_lists *)(void *)((uintptr_t)request->class -
                                       offsetof(struct shunti_lists, class));
}

/*
 * Check the exchange of lists, which has ended with `status`. The other ranks
 * have the plan already, so after an error the communicator fails. text:
 * describes the error of the exchange.
 */
static enum shunt_status judge(struct shunti_lists *lists,
                               struct shunt_comm *comm,
                               enum shunt_status status, const char *text)
{
    if (status)
        return shunti_comm_fail(comm, status, -1,
                                "moe_plan_create: lists of rows: %s", text);
    if (!lists->good(lists->direction))
        return shunti_comm_fail(comm, SHUNT_ERR_MISMATCH, -1,
                                "moe_plan_create: a rank's list of rows "
                                "contradicts its counts");
    return SHUNT_OK;
}

static enum shunt_status step(struct shunt_request *request)
{
    struct shunti_lists *lists = lists_of(request);
    enum shunt_status st = lists->inner->step(request);
    char text[300] = "";

    if (st == SHUNT_IN_PROGRESS)
        return st;
    st = request->error ? request->error : st;
    if (st)
        snprintf(text, sizeof(text), "%.299s", shunti_request_text(request));
    return judge(lists, request->comm, st, text);
}

/* End the exchange, also on a failed communicator. The plan that contains
 * `lists` may be freed here. */
static void end(struct shunti_lists *lists, enum shunt_status status)
{
    lists->request = NULL;
    lists->here = !status;
    free(lists->out);
    lists->out = NULL;
    shunti_plan_unuse(lists->direction->plan, 0, (struct shunti_cut){0, 0});
}

static void cleanup(struct shunt_request *request)
{
    struct shunti_lists *lists = lists_of(request);

    request->class = lists->inner;
    if (request->class->cleanup)
        request->class->cleanup(request);
    end(lists, request->status);
}

/* Let the lists follow their request, which has begun and may be over. The
 * caller holds the communicator. */
static enum shunt_status watch(struct shunti_lists *lists,
                               struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    enum shunt_status st;
    char text[300];

    shunti_plan_use(lists->direction->plan, 0, (struct shunti_cut){0, 0});
    if (request->status == SHUNT_IN_PROGRESS) {
        lists->request = request;
        lists->inner = request->class;
        lists->class = *request->class;
        lists->class.step = step;
        lists->class.cleanup = cleanup;
        request->class = &lists->class;
        request->attachment = SHUNTI_PROMISED; /* plan_create() has returned */
        return SHUNT_OK;
    }
    st = shunti_request_collect(request);
    snprintf(text, sizeof(text), "%.299s", comm->error.text);
    st = judge(lists, comm, st, text);
    end(lists, st);
    return st ? shunti_comm_set_error(comm, st) : st;
}

enum shunt_status
shunti_lists_start(struct shunti_direction *direction, void *out,
                   const void *send, const size_t *send_counts,
                   const size_t *send_displs, void *recv,
                   const size_t *recv_counts,
                   bool (*good)(const struct shunti_direction *direction))
{
    struct shunti_lists *lists = &direction->lists;
    struct shunt_comm *comm = direction->plan->moe->comm;
    struct shunt_request *request;
    enum shunt_status st;

    *lists =
        (struct shunti_lists){.direction = direction, .good = good, .out = out};
    st = shunti_alltoallv_start(comm, SHUNTI_IN_PLAN_CREATE, send, send_counts,
                                send_displs, recv, recv_counts, NULL, SHUNT_U8,
                                &request);
    if (st) {
        free(out);
        lists->out = NULL;
        return st;
    }
    shunti_comm_enter(comm);
    st = watch(lists, request);
    shunti_comm_leave(comm);
    return st;
}

bool shunti_lists_await(const struct shunti_lists *lists, int peer)
{
    return lists->request && lists->inner->awaits &&
           lists->inner->awaits(lists->request, peer);
}

static void settle(const struct shunti_lists *lists)
{
    struct shunt_request *request = lists->request;

    if (!request)
        return;
    request->attachment = SHUNTI_ATTACHED;
    /* After an error of the request, the communicator has failed already. */
    (void)shunti_request_wait(request);
}

static void settle_plan(struct shunti_plan *plan)
{
    for (int d = 0; d < SHUNTI_TOWARDS; d++)
        settle(&plan->direction[d].lists);
    for (size_t w = 0; w < plan->waves.made; w++)
        settle_plan(plan->waves.plan[w]);
}

void shunti_lists_settle(struct shunt_moe *moe)
{
    moe->users++; /* so that a destroyed exchange is freed only at the end of
                     this function */
    for (int i = 0; i < moe->config.plans_in_flight; i++)
        if (!moe->places[i].plan->handle)
            settle_plan(moe->places[i].plan);
    shunti_moe_unuse(moe);
}

enum shunt_status shunti_lists_no_memory(const struct shunt_moe *moe)
{
    enum shunt_status st;

    shunti_comm_enter(moe->comm);
    st = shunti_comm_fail(moe->comm, SHUNT_ERR_MEMORY, moe->rank,
                          "moe_plan_create: no memory for lists");
    st = shunti_comm_set_error(moe->comm, st);
    shunti_comm_leave(moe->comm);
    return st;
}
