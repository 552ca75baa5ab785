// SPDX-License-Identifier: Apache-2.0
/* The common part of the calls on experts' state; see state_call.h. */
#include "moe/state/state_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/coll_call.h"
#include "moe/layout/shares.h"
#include "src/base/error.h"
#include "src/base/fnv.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/blame.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"

/* --- kinds ------------------------------------------------------------------------ */

static void mismatch(struct shunt_request *request,
                     const struct shunti_blame *blame)
{
    shunti_request_error(
        request, SHUNT_ERR_MISMATCH,
        "%s: rank %d called with another exchange, placement or dtype, or with "
        "other arrays than rank %d: all ranks must have made the same calls of "
        "set_placement, and give as many arrays, with the same bytes of an "
        "expert in each",
        shunti_request_name(request), blame->rank, blame->reporter);
}

#define KIND(symbol, text)                                            \
    {                                                                 \
        .number = symbol, .name = text, .detail = SHUNTI_DETAIL_NONE, \
        .mismatch = mismatch,                                         \
    }

static const struct shunti_kind kinds[] = {
    KIND(SHUNTI_KIND_MOE_REFRESH, "moe_replicas_refresh"),
    KIND(SHUNTI_KIND_MOE_REDUCE, "moe_replicas_reduce"),
    KIND(SHUNTI_KIND_MOE_MOVE, "moe_move"),
};

__attribute__((constructor)) static void register_kinds(void)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        shunti_kind_register(&kinds[i]);
}

/* --- a call ------------------------------------------------------------------------ */

static uint32_t signature_of(const struct shunti_state_call *call)
{
    return SHUNTI_SIGNATURE(call->kind, 0, 0, 0);
}

static void finish_own(struct shunt_comm *comm, struct shunti_state_own *own)
{
    shunti_scratch_put(comm, own->out);
    shunti_scratch_put(comm, own->in);
    free(own->more);
    shunti_expert_traffic_finish(&own->traffic);
    shunti_state_finish(&own->state);
    shunti_state_finish(&own->to);
    shunti_placement_drop(own->placement);
}

struct shunti_state_own *shunti_state_own(const struct shunt_request *request)
{
    return shunti_two_level_of(request)->own;
}

void shunti_state_cleanup(struct shunt_request *request)
{
    finish_own(request->comm, shunti_state_own(request));
    shunti_two_level_cleanup(request);
}

bool shunti_state_attempt(struct shunti_state_attempt *attempt,
                          const struct shunti_state_call *call,
                          struct shunt_moe *handle, bool start,
                          struct shunt_request **request)
{
    struct shunt_moe *moe = shunti_moe_called(handle, signature_of(call),
                                              call->name, &attempt->status);

    if (request)
        *request = NULL;
    if (!moe)
        return false;
    shunti_state_attempt_of(attempt, call, moe, start, request);
    return true;
}

void shunti_state_attempt_of(struct shunti_state_attempt *attempt,
                             const struct shunti_state_call *call,
                             struct shunt_moe *moe, bool start,
                             struct shunt_request **request)
{
    *attempt = (struct shunti_state_attempt){
        .call = call, .moe = moe, .start = start, .request = request};
    if (start && !request) {
        snprintf(attempt->why, sizeof(attempt->why), "request is NULL");
        attempt->status = SHUNT_ERR_INVALID;
    }
    attempt->digest = shunti_fnv(SHUNTI_FNV, &moe->serial, sizeof(moe->serial));
    attempt->digest =
        shunti_fnv(attempt->digest, &moe->placed, sizeof(moe->placed));
}

void shunti_state_attempt_copies(struct shunti_state_attempt *attempt,
                                 const struct shunt_moe_state *state,
                                 size_t element)
{
    struct shunt_moe *moe = attempt->moe;
    struct shunti_state_own *own = &attempt->own;

    if (attempt->status)
        return;
    attempt->status = shunti_state_init(
        &own->state, state, "state", shunti_placement_real(moe->placement),
        moe->rank, false, element, attempt->why, sizeof(attempt->why));
    if (attempt->status)
        return;
    own->placement =
        shunti_placement_hold(shunti_placement_real(moe->placement));
    if (!shunti_expert_traffic_of_copies(&own->traffic, moe->comm,
                                         own->placement)) {
        snprintf(attempt->why, sizeof(attempt->why),
                 "no memory for the copies of %d experts", moe->config.experts);
        attempt->status = SHUNT_ERR_MEMORY;
        return;
    }
    attempt->digest = shunti_state_digest(&own->state, attempt->digest);
}

static bool get(unsigned char **memory, size_t experts, size_t each)
{
    size_t bytes;

    if (__builtin_mul_overflow(experts, each, &bytes) || bytes > PTRDIFF_MAX)
        return false;
    *memory = bytes ? shunti_scratch_get(bytes) : NULL;
    return *memory || !bytes;
}

static void get_memory(struct shunti_state_attempt *attempt, size_t out,
                       size_t out_each, size_t in, size_t in_each)
{
    struct shunti_state_own *own = &attempt->own;

    if (own->more_bytes)
        own->more = calloc(1, own->more_bytes);
    if ((!own->more_bytes || own->more) && get(&own->out, out, out_each) &&
        get(&own->in, in, in_each))
        return;
    snprintf(attempt->why, sizeof(attempt->why),
             "no memory to send %zu experts of %zu bytes, and receive %zu", out,
             own->state.bytes, in);
    attempt->status = SHUNT_ERR_MEMORY;
}

/* Launch the operation, or refuse the call. The caller holds the
 * communicator. */
static enum shunt_status launch(struct shunti_state_attempt *attempt)
{
    const struct shunti_state_call *call = attempt->call;
    struct shunt_comm *comm = attempt->moe->comm;
    const struct shunti_coll coll = {comm, call->kind, attempt->start,
                                     attempt->request, &shunti_no_options};
    struct shunt_request *request;
    struct shunti_two_level *x;
    enum shunt_status st;

    if (attempt->status) {
        finish_own(comm, &attempt->own);
        return shunti_request_refuse(comm, signature_of(call), attempt->status,
                                     "%s: %s", call->name, attempt->why);
    }
    st = shunti_two_level_create(&coll, call->class, call->hooks,
                                 signature_of(call), call->phases,
                                 sizeof(attempt->own), &request, &x);
    if (st) {
        finish_own(comm, &attempt->own);
        return st;
    }
    memcpy(x->own, &attempt->own, sizeof(attempt->own));
    x->agreed = true;
    x->argument = attempt->digest;
    call->begin(request, x);
    return shunti_coll_launch(&coll, request);
}

enum shunt_status shunti_state_launch(struct shunti_state_attempt *attempt,
                                      size_t out_each, size_t in_each)
{
    const struct shunti_expert_traffic *traffic = &attempt->own.traffic;
    const int nranks = attempt->moe->nranks;

    return shunti_state_launch_some(
        attempt, attempt->status ? 0 : traffic->out.first[nranks], out_each,
        attempt->status ? 0 : traffic->in.first[nranks], in_each);
}

enum shunt_status shunti_state_launch_some(struct shunti_state_attempt *attempt,
                                           size_t out, size_t out_each,
                                           size_t in, size_t in_each)
{
    struct shunt_comm *comm = attempt->moe->comm;
    enum shunt_status st;

    if (!attempt->status)
        get_memory(attempt, out, out_each, in, in_each);
    shunti_comm_enter(comm);
    st = launch(attempt);
    shunti_comm_leave(comm);
    return st;
}
