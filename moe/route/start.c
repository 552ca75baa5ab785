// SPDX-License-Identifier: Apache-2.0
/* The start of a push or a pull; see start.h. */
#include "moe/route/start.h"

#include <string.h>

#include "moe/plan/lifetime.h"
#include "moe/plan/pages.h"
#include "src/comm.h"
#include "src/progress/turns.h"

/* Bytes of the row buffer of this rank. */
static size_t bytes_of(const struct shunti_plan *plan)
{
    return plan->received.total * plan->moe->row_bytes;
}

enum shunt_status shunti_start_scratch(struct shunti_handshake *handshake,
                                       enum shunt_moe_buffer which,
                                       const char *clash,
                                       struct shunti_remote *remote)
{
    struct shunti_plan *plan = handshake->plan;
    const unsigned borrow = 1u << which;

    if (shunti_plan_borrowed(plan, borrow, handshake->cut))
        return shunti_moe_call_refuse(
            handshake->call, plan, SHUNT_ERR_BUSY,
            "another request of this plan is under way %s: wait for it, or use "
            "shunt_moe_buffer()",
            clash);
    handshake->borrowed |= borrow;
    shunti_pages_use_scratch(plan, which);
    (void)shunti_remote_of(plan->moe->comm, shunti_plan_scratch(plan, which),
                           bytes_of(plan), remote);
    return SHUNT_OK;
}

enum shunt_status shunti_start_offer(struct shunti_handshake *handshake,
                                     const void *rows,
                                     enum shunt_moe_buffer which,
                                     const char *clash,
                                     struct shunti_remote *remote)
{
    const struct shunti_plan *plan = handshake->plan;
    enum shunt_status st;

    if (shunti_remote_of(plan->moe->comm, rows, bytes_of(plan), remote))
        return SHUNT_OK;
    st = shunti_start_scratch(handshake, which, clash, remote);
    if (!st)
        shunti_parts_copy(plan, handshake->cut,
                          shunti_plan_scratch(plan, which), rows);
    return st;
}

void shunti_start_peers(struct shunti_handshake *handshake,
                        struct shunti_handshake_notes *notes,
                        const struct shunti_rails *rails,
                        bool (*acks)(const struct shunti_rails *rails,
                                     int rank))
{
    const int nranks = handshake->plan->moe->nranks;

    shunti_handshake_init(handshake, notes, rails != NULL);
    for (int r = 0; r < nranks && rails; r++) {
        if (notes[r].direct)
            continue;
        if (!shunti_rail_partner(rails, r))
            shunti_handshake_skip(handshake, r);
        notes[r].answered = !acks(rails, r);
    }
}

/* The caller holds the communicator. */
static enum shunt_status create(const struct shunti_start *start,
                                struct shunt_request **request)
{
    const struct shunti_handshake *handshake = start->handshake;
    const struct shunti_plan *plan = handshake->plan;
    const struct shunti_routes routes = shunti_plan_routes(plan);
    struct shunt_comm *comm = plan->moe->comm;
    enum shunt_status st =
        shunti_moe_call_align(handshake->call, comm, &routes);

    if (st)
        return st;
    return shunti_request_create(
        comm, start->class, shunti_moe_call_signature(handshake->call, plan),
        &shunti_no_options,
        start->bytes +
            (size_t)plan->moe->nranks *
                (start->peer_bytes + sizeof(struct shunti_handshake_notes)),
        request);
}

enum shunt_status shunti_start_launch(const struct shunti_start *start,
                                      struct shunt_request **out)
{
    const struct shunti_handshake *handshake = start->handshake;
    const struct shunt_moe *moe = handshake->plan->moe;
    struct shunt_request *request;
    unsigned char *notes;
    enum shunt_status st;

    shunti_comm_enter(moe->comm);
    st = create(start, &request);
    if (st) {
        start->drop(start->state);
    } else {
        memcpy(request->state, start->state, start->bytes);
        notes = request->state + start->bytes +
                (size_t)moe->nranks * start->peer_bytes;
        start->peers(request, (struct shunti_handshake_notes *)notes);
        shunti_moe_call_begin(handshake->call, handshake->plan, handshake->cut,
                              handshake->borrowed);
        st = shunti_request_launch(request, out);
    }
    shunti_comm_leave(moe->comm);
    return st;
}
