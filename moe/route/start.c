// SPDX-License-Identifier: Apache-2.0
/* The start of a push or a pull; see start.h. */
#include "moe/route/start.h"

#include <string.h>

#include "moe/plan/lifetime.h"
#include "moe/plan/pages.h"
#include "src/comm.h"
#include "src/progress/turns.h"

/* Bytes of the rows that this rank receives. */
static size_t bytes_of(const struct shunti_plan *plan)
{
    return plan->received.total * plan->moe->row_bytes;
}

enum shunt_status shunti_start_scratch(struct shunti_meeting *meeting,
                                       enum shunt_moe_buffer which,
                                       const char *clash,
                                       struct shunti_remote *remote)
{
    struct shunti_plan *plan = meeting->plan;
    const unsigned borrow = 1u << which;

    if (shunti_plan_borrowed(plan, borrow, meeting->cut))
        return shunti_moe_call_refuse(
            meeting->call, plan, SHUNT_ERR_BUSY,
            "another request of this plan is under way %s: wait for it, or use "
            "shunt_moe_buffer()",
            clash);
    meeting->borrowed |= borrow;
    shunti_pages_use_scratch(plan, which);
    (void)shunti_remote_of(plan->moe->comm, shunti_plan_scratch(plan, which),
                           bytes_of(plan), remote);
    return SHUNT_OK;
}

enum shunt_status shunti_start_offer(struct shunti_meeting *meeting,
                                     const void *rows,
                                     enum shunt_moe_buffer which,
                                     const char *clash,
                                     struct shunti_remote *remote)
{
    const struct shunti_plan *plan = meeting->plan;
    enum shunt_status st;

    if (shunti_remote_of(plan->moe->comm, rows, bytes_of(plan), remote))
        return SHUNT_OK;
    st = shunti_start_scratch(meeting, which, clash, remote);
    if (!st)
        shunti_parts_copy(plan, meeting->cut, shunti_plan_scratch(plan, which),
                          rows);
    return st;
}

void shunti_start_peers(struct shunti_meeting *meeting, struct shunti_met *met,
                        const struct shunti_rails *rails,
                        bool (*acks)(const struct shunti_rails *rails,
                                     int rank))
{
    const int nranks = meeting->plan->moe->nranks;

    shunti_meeting_init(meeting, met, rails != NULL);
    for (int r = 0; r < nranks && rails; r++) {
        if (met[r].direct)
            continue;
        if (!shunti_rail_partner(rails, r))
            shunti_meeting_skip(meeting, r);
        met[r].answered = !acks(rails, r);
    }
}

/* The caller holds the communicator. */
static enum shunt_status create(const struct shunti_start *start,
                                struct shunt_request **request)
{
    const struct shunti_meeting *meeting = start->meeting;
    const struct shunti_plan *plan = meeting->plan;
    const struct shunti_routes routes = shunti_plan_routes(plan);
    struct shunt_comm *comm = plan->moe->comm;
    enum shunt_status st = shunti_moe_call_align(meeting->call, comm, &routes);

    if (st)
        return st;
    return shunti_request_create(
        comm, start->class, shunti_moe_call_signature(meeting->call, plan),
        &shunti_no_options,
        start->bytes + (size_t)plan->moe->nranks *
                           (start->peer_bytes + sizeof(struct shunti_met)),
        request);
}

enum shunt_status shunti_start_launch(const struct shunti_start *start,
                                      struct shunt_request **out)
{
    const struct shunti_meeting *meeting = start->meeting;
    const struct shunt_moe *moe = meeting->plan->moe;
    struct shunt_request *request;
    unsigned char *met;
    enum shunt_status st;

    shunti_comm_enter(moe->comm);
    st = create(start, &request);
    if (st) {
        start->drop(start->state);
    } else {
        memcpy(request->state, start->state, start->bytes);
        met = request->state + start->bytes +
              (size_t)moe->nranks * start->peer_bytes;
        start->peers(request, (struct shunti_met *)met);
        shunti_moe_call_begin(meeting->call, meeting->plan, meeting->cut,
                              meeting->borrowed);
        st = shunti_request_launch(request, out);
    }
    shunti_comm_leave(moe->comm);
    return st;
}
