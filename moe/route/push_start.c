// SPDX-License-Identifier: Apache-2.0
/* The start of a push (push.h): its memory, and its request. */
#include <stdlib.h>
#include <string.h>

#include "moe/device/device_rows.h"
#include "moe/plan/plan_rows.h"
#include "moe/route/push_state.h"
#include "moe/route/rails_rows.h"
#include "moe/route/start.h"
#include "src/comm.h"

/* If a call writes so many bytes, rows are written past the cache. There, they
 * would be evicted before they are read (src/kernels/copy.c has the
 * figures). */
#define STREAM_MIN ((size_t)16 << 20)

static void count_bytes(struct shunt_comm *comm, struct shunti_pushing *push)
{
    const struct shunti_plan *plan = push->plan;
    const size_t bytes = plan->moe->row_bytes;
    size_t i = plan->first[shunti_parts_token(plan, push->what.cut.from)];

    for (; i < plan->first[push->end]; i++) {
        int r = plan->terms[i].rank;

        if (r == comm->rank || !push->handshake.notes[r].direct)
            continue;
        push->bytes += bytes;
        comm->stats.bytes_mapped += bytes;
        if (plan->moe->node[r] != plan->moe->node[comm->rank])
            comm->stats.bytes_remote += bytes;
    }
    if (push->across)
        push->bytes += shunti_rail_rows_bytes(push->across);
}

/* Choose memory that peers can reach: one piece into which they write rows, and
 * one from which they read `out`. */
static enum shunt_status choose_memory(struct shunti_pushing *push)
{
    const struct shunti_plan *plan = push->plan;
    const struct shunti_push *what = &push->what;
    struct shunti_handshake *handshake = &push->handshake;
    enum shunt_status st = SHUNT_OK;

    push->arrivals = what->dst;
    handshake->out.window = SHUNTI_NOT_OFFERED;
    if (what->device & SHUNTI_DEVICE_ROWS ||
        !shunti_remote_of(plan->moe->comm, what->dst,
                          plan->received.total * plan->moe->row_bytes,
                          &handshake->rows)) {
        push->arrivals = shunti_plan_scratch(plan, what->arrivals);
        st = shunti_start_scratch(handshake, what->arrivals,
                                  "that also has no window to write to",
                                  &handshake->rows);
    }
    if (st || !what->offers)
        return st;
    return shunti_start_offer(handshake, what->out, SHUNT_MOE_OUT,
                              "whose `out` is no window either",
                              &handshake->out);
}

/* Prepare for rows in memory of devices. */
static enum shunt_status prepare_devices(struct shunti_pushing *push)
{
    struct shunti_plan *plan = push->plan;
    struct shunti_push *what = &push->what;
    char why[512];

    if (!what->device)
        return SHUNT_OK;
    push->device =
        shunti_device_rows_create(plan, what->cut, what->arrivals, what->device,
                                  what->src, what->dst, why, sizeof(why));
    if (!push->device)
        return shunti_moe_call_refuse(push->handshake.call, plan,
                                      SHUNT_ERR_MEMORY, "%s", why);
    push->handshake.out.offset = shunti_device_rows_flags(push->device);
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

static enum shunt_status allocate(struct shunti_pushing *push, bool two_level)
{
    push->scratch = malloc(push->plan->moe->row_bytes);
    if (two_level)
        push->across = make_across(push->direction, &push->what);
    if (push->scratch && (push->across || !two_level))
        return SHUNT_OK;
    return shunti_moe_call_refuse(push->handshake.call, push->plan,
                                  SHUNT_ERR_MEMORY, "no memory");
}

/* Zero the results that no rank writes: gaps between rows, and products of
 * dropped assignments. */
static void zero_results(const struct shunti_pushing *push, size_t from)
{
    const struct shunti_push *what = &push->what;
    const size_t topk = (size_t)push->plan->moe->config.topk;

    if (!what->cut.from && !(what->device & SHUNTI_DEVICE_ROWS))
        shunti_plan_zero_gaps(push->plan, what->dst);
    if (what->dweight)
        memset(what->dweight + from * topk, 0,
               (push->end - from) * topk * sizeof(float));
}

static void peers(struct shunt_request *request,
                  struct shunti_handshake_notes *notes)
{
    struct shunti_pushing *push = shunti_pushing_of(request);
    const struct shunti_push *what = &push->what;
    const struct shunt_comm *comm = request->comm;
    const size_t from = shunti_parts_token(push->plan, what->cut.from);
    struct shunti_rails *rails = push->across ? push->across->rails : NULL;

    shunti_start_peers(&push->handshake, notes, rails, shunti_rail_sends);
    for (int r = 0; r < comm->nranks; r++)
        push->peers[r] = (struct shunti_push_peer){
            .served = notes[r].stranger,
            .cursor = notes[r].direct ? from : push->end,
        };
    push->peers[comm->rank] = (struct shunti_push_peer){
        .served = true,
        .cursor = from,
        .rows = what->device & SHUNTI_DEVICE_ROWS ? push->arrivals : what->dst,
        .out = what->out,
    };
    if (push->device && shunti_device_rows_meet_self(push->device))
        push->peers[comm->rank].cursor = push->end;
    if (rails)
        shunti_rail_line_up(&rails->rows_line, &push->across->turn, what->cut);
    count_bytes(request->comm, push);
}

static void drop(void *state)
{
    shunti_push_drop(state);
}

enum shunt_status shunti_push_start(const struct shunti_moe_call *call,
                                    struct shunti_direction *direction,
                                    const struct shunti_push *what,
                                    bool two_level, struct shunt_request **out)
{
    struct shunti_plan *plan = direction->plan;
    const size_t row_bytes = plan->moe->row_bytes;
    const size_t from = shunti_parts_token(plan, what->cut.from);
    const size_t end = shunti_parts_token(plan, what->cut.to);
    struct shunti_pushing begin = {
        .handshake = {.call = call, .plan = plan, .cut = what->cut},
        .plan = plan,
        .direction = direction,
        .what = *what,
        .end = end,
        .stream =
            (plan->first[end] - plan->first[from]) * row_bytes >= STREAM_MIN,
        .chunk = SHUNTI_PUSH_CHUNK / row_bytes + 1,
        .offers = shunti_offers_of(plan, what->dweight, what->offers),
    };
    enum shunt_status st = choose_memory(&begin);

    if (!st)
        st = prepare_devices(&begin);
    if (!st)
        st = allocate(&begin, two_level);
    if (st) {
        shunti_push_drop(&begin);
        return st;
    }
    if (begin.across)
        begin.across->stream = begin.stream;
    zero_results(&begin, from);
    return shunti_start_launch(
        &(struct shunti_start){
            .class = &shunti_push_classes[call->kind !=
                                          SHUNTI_KIND_MOE_DISPATCH][two_level],
            .handshake = &begin.handshake,
            .state = &begin,
            .bytes = sizeof(begin),
            .peer_bytes = sizeof(begin.peers[0]),
            .peers = peers,
            .drop = drop,
        },
        out);
}
