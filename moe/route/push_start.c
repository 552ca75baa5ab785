// SPDX-License-Identifier: Apache-2.0
/* The start of a push (push.h): its memory, and its request. */
#include <stdlib.h>
#include <string.h>

#include "moe/device/device_rows.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/pages.h"
#include "moe/plan/plan_rows.h"
#include "moe/route/push_state.h"
#include "moe/route/rails_rows.h"
#include "src/comm.h"
#include "src/progress/turns.h"

/* From this size on, rows are written past the cache, because they would be
 * evicted before they are read (src/kernels/copy.c has the figures). */
#define STREAM_MIN ((size_t)16 << 20)

static void count_bytes(struct shunt_comm *comm, struct shunti_pushing *push)
{
    const struct shunti_plan *plan = push->plan;
    const size_t bytes = plan->moe->row_bytes;
    size_t i = plan->first[shunti_parts_token(plan, push->what.cut.from)];

    for (; i < plan->first[push->end]; i++) {
        int r = plan->terms[i].rank;

        if (r == comm->rank || !push->meeting.met[r].direct)
            continue;
        push->bytes += bytes;
        comm->stats.bytes_mapped += bytes;
        if (plan->moe->node[r] != plan->moe->node[comm->rank])
            comm->stats.bytes_remote += bytes;
    }
    if (push->across)
        push->bytes += shunti_rail_rows_bytes(push->across);
}

/* Choose memory that peers can reach: the caller's, or scratch memory. */
static enum shunt_status choose_memory(const struct shunti_moe_call *call,
                                       struct shunti_plan *plan,
                                       struct shunti_pushing *push)
{
    const struct shunt_comm *comm = plan->moe->comm;
    size_t bytes = plan->received.total * plan->moe->row_bytes;
    unsigned which;

    push->land = push->what.dst;
    if (push->what.device & SHUNTI_DEVICE_ROWS ||
        !shunti_remote_of(comm, push->what.dst, bytes, &push->meeting.rows)) {
        which = 1u << push->what.landing;
        if (shunti_plan_borrowed(plan, which, push->what.cut))
            return shunti_moe_call_refuse(
                call, plan, SHUNT_ERR_BUSY,
                "another request of this plan is under way that also has no "
                "window to write to: wait for it, or use shunt_moe_buffer()");
        push->borrowed |= which;
        push->land = shunti_plan_scratch(plan, push->what.landing);
        shunti_pages_use_scratch(plan, push->what.landing);
        (void)shunti_remote_of(comm, push->land, bytes, &push->meeting.rows);
    }
    push->meeting.out.window = SHUNTI_NOT_OFFERED;
    push->meeting.out.offset = 0;
    if (push->what.offers &&
        !shunti_remote_of(comm, push->what.out, bytes, &push->meeting.out)) {
        unsigned char *staging = shunti_plan_scratch(plan, SHUNT_MOE_OUT);

        which = 1u << SHUNT_MOE_OUT;
        if (shunti_plan_borrowed(plan, which, push->what.cut))
            return shunti_moe_call_refuse(
                call, plan, SHUNT_ERR_BUSY,
                "another request of this plan is under way whose `out` is no "
                "window either: wait for it, or use shunt_moe_buffer()");
        push->borrowed |= which;
        shunti_pages_use_scratch(plan, SHUNT_MOE_OUT);
        shunti_parts_copy(plan, push->what.cut, staging, push->what.out);
        (void)shunti_remote_of(comm, staging, bytes, &push->meeting.out);
    }
    return SHUNT_OK;
}

/* Prepare for rows in memory of devices, before any peer knows of the call. */
static enum shunt_status prepare_devices(const struct shunti_moe_call *call,
                                         struct shunti_plan *plan,
                                         struct shunti_pushing *push)
{
    struct shunti_push *what = &push->what;
    char why[512];

    if (!what->device)
        return SHUNT_OK;
    push->device =
        shunti_device_rows_create(plan, what->cut, what->landing, what->device,
                                  what->src, what->dst, why, sizeof(why));
    if (!push->device)
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_MEMORY, "%s", why);
    push->meeting.out.offset = shunti_device_rows_flags(push->device);
    if (what->device & SHUNTI_DEVICE_TOKENS) {
        push->src_first = shunti_parts_token(plan, what->cut.from);
        what->src = NULL;
    }
    return SHUNT_OK;
}

static struct shunti_rail_rows *make_across(struct shunti_direction *direction,
                                            const struct shunti_push *what)
{
    struct shunti_rail_rows *across = calloc(1, sizeof(*across));

    if (!across)
        return NULL;
    across->cut = what->cut;
    across->src = what->src;
    across->fp8 = what->fp8;
    across->weighted = what->weighted;
    across->offers = what->offers;
    across->dweight = what->dweight;
    if (shunti_rail_rows_init(across, direction))
        return across;
    free(across);
    return NULL;
}

enum shunt_status shunti_push_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_push *what,
                                    bool two_level, struct shunt_request **out)
{
    struct shunti_plan *plan = direction->plan;
    struct shunt_moe *moe = plan->moe;
    struct shunt_comm *comm = moe->comm;
    struct shunti_pushing begin = {
        .meeting = {.call = call, .plan = plan, .cut = what->cut},
        .plan = plan,
        .direction = direction,
        .what = *what,
        .end = shunti_parts_token(plan, what->cut.to),
        .offers = shunti_offers_of(plan, what->dweight, what->offers),
    };
    const size_t from = shunti_parts_token(plan, what->cut.from);
    const struct shunti_routes routes = shunti_plan_routes(plan);
    struct shunt_request *request;
    struct shunti_pushing *push;
    enum shunt_status st;

    st = choose_memory(call, plan, &begin);
    if (!st)
        st = prepare_devices(call, plan, &begin);
    if (st)
        return st;
    begin.scratch = malloc(moe->row_bytes);
    if (two_level)
        begin.across = make_across(direction, what);
    if (!begin.scratch || (two_level && !begin.across)) {
        shunti_push_drop(&begin);
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_MEMORY,
                                      "no memory");
    }
    begin.stream =
        (plan->first[begin.end] - plan->first[from]) * moe->row_bytes >=
        STREAM_MIN;
    begin.chunk = SHUNTI_PUSH_CHUNK / moe->row_bytes + 1;
    if (!what->cut.from && !(what->device & SHUNTI_DEVICE_ROWS))
        shunti_plan_zero_gaps(plan, what->dst);
    if (what->dweight)
        memset(what->dweight + from * (size_t)moe->config.topk, 0,
               (begin.end - from) * (size_t)moe->config.topk * sizeof(float));

    shunti_comm_enter(comm);
    st = shunti_moe_call_align(call, comm, &routes);
    if (!st)
        st = shunti_request_create(
            comm,
            &shunti_push_classes[call->kind != SHUNTI_KIND_MOE_DISPATCH]
                                [two_level],
            shunti_moe_call_signature(call, plan), &shunti_no_options,
            sizeof(*push) + (size_t)moe->nranks * (sizeof(push->peers[0]) +
                                                   sizeof(struct shunti_met)),
            &request);
    if (st) {
        shunti_push_drop(&begin);
    } else {
        push = shunti_pushing_of(request);
        memcpy(push, &begin, sizeof(begin));
        shunti_meeting_init(&push->meeting,
                            (struct shunti_met *)(push->peers + moe->nranks),
                            two_level);
        for (int r = 0; r < moe->nranks; r++) {
            struct shunti_met *met = &push->meeting.met[r];

            push->peers[r].cursor = met->direct ? from : begin.end;
            if (met->direct)
                continue;
            if (!shunti_rail_partner(push->across->rails, r)) {
                shunti_meeting_skip(&push->meeting, r);
                push->peers[r].served = true;
            }
            met->answered = !shunti_rail_sends(push->across->rails, r);
        }
        if (push->across) {
            push->across->stream = push->stream;
            shunti_rail_line_up(&push->across->rails->rows_line,
                                &push->across->turn, what->cut);
        }
        push->peers[moe->rank] = (struct shunti_push_peer){
            .served = true,
            .cursor = from,
            .rows = what->device & SHUNTI_DEVICE_ROWS ? begin.land : what->dst,
            .out = what->out,
        };
        if (begin.device && shunti_device_rows_meet_self(begin.device))
            push->peers[moe->rank].cursor = begin.end;
        shunti_moe_call_begin(call, plan, what->cut, begin.borrowed);
        count_bytes(comm, push);
        st = shunti_request_launch(request, out);
    }
    shunti_comm_leave(comm);
    return st;
}
