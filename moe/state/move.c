// SPDX-License-Identifier: Apache-2.0
/*
 * Experts move from their homes to the homes in another placement. An expert
 * goes straight from rank to rank, as a block. By notes between rail peers and
 * local peers, ranks check that all of them made the same call.
 */
#include <stdio.h>
#include <string.h>

#include "moe/layout/shares.h"
#include "moe/state/state_call.h"
#include "src/base/fnv.h"
#include "src/comm.h"
#include "src/trace/track.h"

/* True if an expert stays on this rank, but at another address. */
static bool shifts(const struct shunti_state_own *own, int32_t expert)
{
    if (!shunti_state_has(&own->state, expert) ||
        !shunti_state_has(&own->to, expert))
        return false;
    for (int i = 0; i < own->to.arrays; i++)
        if (own->to.array[i].bytes &&
            shunti_state_at(&own->to, expert, i) !=
                shunti_state_at(&own->state, expert, i))
            return true;
    return false;
}

/* Pack all experts that leave their address before any expert is written, so
 * that the old and the new state may share memory. */
static void begin(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const struct shunti_traffic_experts *out = &own->traffic.out,
                                        *in = &own->traffic.in;
    const size_t each = own->state.bytes;
    unsigned char *shifted = own->more;

    for (size_t i = 0; i < out->first[comm->nranks]; i++)
        shunti_state_pack(&own->state, out->expert[i], own->out + i * each);
    for (int32_t e = 0; e < own->placement->experts; e++)
        if (shifts(own, e)) {
            shunti_state_pack(&own->state, e, shifted);
            shifted += each;
        }
    for (int i = 1; i < comm->nranks; i++) {
        const int to = (comm->rank + i) % comm->nranks;
        const int from = (comm->rank + comm->nranks - i) % comm->nranks;

        if (shunti_traffic_count(out, to) && each)
            shunti_two_level_send_block(request, to,
                                        own->out + out->first[to] * each,
                                        shunti_traffic_count(out, to) * each);
        if (shunti_traffic_count(in, from) && each)
            shunti_two_level_recv_block(request, from,
                                        own->in + in->first[from] * each,
                                        shunti_traffic_count(in, from) * each);
    }
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const struct shunti_traffic_experts *in = &own->traffic.in;
    const size_t each = own->state.bytes;
    const unsigned char *shifted = own->more;

    if (request->error)
        return;
    for (size_t i = 0; i < in->first[comm->nranks]; i++)
        shunti_state_unpack(&own->to, in->expert[i], own->in + i * each);
    for (int32_t e = 0; e < own->placement->experts; e++)
        if (shifts(own, e)) {
            shunti_state_unpack(&own->to, e, shifted);
            shifted += each;
        }
}

static const struct shunti_class class =
    SHUNTI_STATE_CLASS("moe_move", shunti_two_level_sent);

static const struct shunti_two_level_hooks hooks = {.finish = finish};

static const struct shunti_state_call move = {
    .name = "moe_move",
    .kind = SHUNTI_KIND_MOE_MOVE,
    .class = &class,
    .hooks = &hooks,
    .phases = SHUNTI_RAILS_FIRST,
    .begin = begin,
};

/* True if both states have the same arrays. */
static bool same_arrays(const struct shunti_state_own *own)
{
    if (own->to.arrays != own->state.arrays)
        return false;
    for (int i = 0; i < own->to.arrays; i++)
        if (own->to.array[i].bytes != own->state.array[i].bytes)
            return false;
    return true;
}

/* Prepare the old and the new state, and the traffic. */
static enum shunt_status prepare(struct shunti_state_attempt *attempt,
                                 const struct shunti_placement *to,
                                 const struct shunt_moe_state *old_state,
                                 const struct shunt_moe_state *new_state)
{
    struct shunt_moe *moe = attempt->moe;
    struct shunti_state_own *own = &attempt->own;
    const size_t len = sizeof(attempt->why);
    struct shunti_placement *now = shunti_placement_real(moe->placement);
    size_t shifted = 0;
    enum shunt_status st =
        shunti_state_init(&own->state, old_state, "from", now, moe->rank, true,
                          1, attempt->why, len);

    if (!st)
        st = shunti_state_init(&own->to, new_state, "to", to, moe->rank, true,
                               1, attempt->why, len);
    if (st)
        return st;
    if (!same_arrays(own)) {
        snprintf(attempt->why, len,
                 "from and to have different arrays: as many are needed, with "
                 "the same bytes of an expert");
        return SHUNT_ERR_INVALID;
    }
    own->placement = shunti_placement_hold(now);
    for (int32_t e = 0; e < to->experts; e++)
        shifted += shifts(own, e);
    if (__builtin_mul_overflow(shifted, own->state.bytes, &own->more_bytes) ||
        own->more_bytes > PTRDIFF_MAX ||
        !shunti_expert_traffic_of_moves(&own->traffic, moe->comm, now, to)) {
        snprintf(attempt->why, len, "no memory to move %d experts",
                 to->experts);
        return SHUNT_ERR_MEMORY;
    }
    attempt->digest = shunti_state_digest(&own->state, attempt->digest);
    attempt->digest = shunti_fnv(attempt->digest, to->home,
                                 (size_t)to->experts * sizeof(*to->home));
    attempt->digest = shunti_fnv(attempt->digest, to->owner,
                                 to->first[to->ranks] * sizeof(*to->owner));
    attempt->digest = shunti_fnv(attempt->digest, to->local,
                                 to->first[to->ranks] * sizeof(*to->local));
    return SHUNT_OK;
}

static enum shunt_status
call(struct shunt_moe *handle, const int32_t *placement,
     const struct shunt_moe_replica *replicas, size_t nreplicas,
     const struct shunt_moe_state *from, const struct shunt_moe_state *to,
     bool start, struct shunt_request **request)
{
    struct shunti_state_attempt attempt;
    struct shunti_placement *fresh = NULL;
    SHUNTI_TRACK(LIBRARY);

    if (!shunti_state_attempt(&attempt, &move, handle, start, request))
        return attempt.status;
    if (!attempt.status)
        fresh = shunti_placement_create(
            attempt.moe->nranks, attempt.moe->config.experts, placement,
            replicas, nreplicas, attempt.moe->node, attempt.why,
            sizeof(attempt.why), &attempt.status);
    if (!attempt.status)
        attempt.status = prepare(&attempt, fresh, from, to);
    shunti_placement_drop(fresh);
    return shunti_state_launch(&attempt, attempt.own.state.bytes,
                               attempt.own.state.bytes);
}

enum shunt_status shunt_moe_move(struct shunt_moe *moe,
                                 const int32_t *placement,
                                 const struct shunt_moe_replica *replicas,
                                 size_t nreplicas,
                                 const struct shunt_moe_state *from,
                                 const struct shunt_moe_state *to)
{
    return call(moe, placement, replicas, nreplicas, from, to, false, NULL);
}

enum shunt_status shunt_moe_move_start(struct shunt_moe *moe,
                                       const int32_t *placement,
                                       const struct shunt_moe_replica *replicas,
                                       size_t nreplicas,
                                       const struct shunt_moe_state *from,
                                       const struct shunt_moe_state *to,
                                       struct shunt_request **request)
{
    return call(moe, placement, replicas, nreplicas, from, to, true, request);
}
