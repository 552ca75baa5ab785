// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of experts get the state of their homes, by the legs of legs.h: from a
 * home to its relays on other nodes, then from each relay to the copies of its
 * node. Control messages are empty, and are sent at once; so calls behind this
 * one need not wait for its payload. On one node there are no relays: then blocks
 * are made in the call, and copies read them while their home computes.
 *
 *     to rail peer:   the experts that it passes on, as a block
 *     to local peer:  its copies of our experts, and of those that we relay: of
 *                     several nodes a late block, made when all that we relay is
 *                     here
 */
#include "moe/state_call.h"

#include "src/comm.h"
#include "src/offer.h"
#include "src/track.h"

static bool is_local(const struct shunt_comm *comm, int rank)
{
    return comm->peers[rank].node == comm->node;
}

/* The packed state of an expert that this rank relays. */
static const unsigned char *relayed(const struct shunti_state_own *own,
                                    int home, int32_t expert)
{
    const size_t i = shunti_leg_find(&own->legs.in, home, expert);

    return own->in + (own->legs.in.first[home] + i) * own->state.bytes;
}

/* Our experts that go to `peer`, where they lie, if they do in this order and
 * without gaps; NULL: they must be packed. */
static const unsigned char *as_they_lie(const struct shunti_state_own *own,
                                        int peer)
{
    const struct shunti_leg_experts *out = &own->legs.out;

    return shunti_state_in_one_piece(&own->state,
                                     out->expert + out->first[peer],
                                     shunti_leg_count(out, peer));
}

/* Pack what goes to `peer`, from our own experts and those that have come. */
static void pack(const struct shunt_request *request, int peer)
{
    const struct shunti_state_own *own = shunti_state_own(request);
    const struct shunti_leg_experts *out = &own->legs.out;

    for (size_t i = out->first[peer]; i < out->first[peer + 1]; i++) {
        const int32_t e = out->expert[i];
        const int home = own->placement->home[e];
        unsigned char *to = own->out + i * own->state.bytes;

        if (home == request->comm->rank)
            shunti_state_pack(&own->state, e, to);
        else if (own->state.bytes)
            shunti_copy_payload(to, relayed(own, home, e), own->state.bytes);
    }
}

static void begin(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunt_comm *comm = request->comm;
    const struct shunti_state_own *own = x->own;
    const size_t each = own->state.bytes;

    x->late = comm->nodes > 1;
    for (int r = 0; r < comm->nranks; r++) {
        const size_t out = shunti_leg_count(&own->legs.out, r) * each;
        const size_t in = shunti_leg_count(&own->legs.in, r) * each;

        const unsigned char *from =
            out && !x->late ? as_they_lie(own, r) : NULL;

        if (out && !from && (!x->late || !is_local(comm, r)))
            pack(request, r);
        if (!from)
            from = own->out + own->legs.out.first[r] * each;
        if (out)
            shunti_two_level_send_block(request, r, from, out);
        /* Read, not sent: so this rank may compute meanwhile. */
        x->legs[r].out[SHUNTI_BLOCK].in_place =
            out && !x->late && shunti_readable(comm, r, from, out);
        if (in)
            shunti_two_level_recv_block(
                request, r, own->in + own->legs.in.first[r] * each, in);
    }
}

static void ready(struct shunt_request *request, struct shunti_two_level *x)
{
    for (int r = 0; r < request->comm->nranks && x->late; r++)
        if (r != request->comm->rank && is_local(request->comm, r))
            pack(request, r);
}

/* A relay need not have a copy itself. */
static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunti_state_own *own = x->own;
    const struct shunti_leg_experts *in = &own->legs.in;

    if (request->error)
        return;
    for (size_t i = 0; i < in->first[request->comm->nranks]; i++)
        if (shunti_state_has(&own->state, in->expert[i]))
            shunti_state_unpack(&own->state, in->expert[i],
                                own->in + i * own->state.bytes);
}

static const struct shunti_class class =
    SHUNTI_STATE_CLASS("moe_replicas_refresh");

static const struct shunti_two_level_hooks hooks = {
    .ready = ready,
    .finish = finish,
};

static const struct shunti_state_call refresh = {
    .name = "moe_replicas_refresh",
    .kind = SHUNTI_KIND_MOE_REFRESH,
    .class = &class,
    .hooks = &hooks,
    .begin = begin,
};

static enum shunt_status call(struct shunt_moe *moe,
                              const struct shunt_moe_state *state, bool start,
                              struct shunt_request **request)
{
    struct shunti_state_attempt attempt;
    SHUNTI_TRACK(LIBRARY);

    if (!shunti_state_attempt(&attempt, &refresh, moe, start, request))
        return attempt.status;
    shunti_state_attempt_copies(&attempt, state, 1);
    return shunti_state_launch(&attempt, attempt.own.state.bytes,
                               attempt.own.state.bytes);
}

enum shunt_status
shunt_moe_replicas_refresh(struct shunt_moe *moe,
                           const struct shunt_moe_state *state)
{
    return call(moe, state, false, NULL);
}

enum shunt_status
shunt_moe_replicas_refresh_start(struct shunt_moe *moe,
                                 const struct shunt_moe_state *state,
                                 struct shunt_request **request)
{
    return call(moe, state, true, request);
}
