// SPDX-License-Identifier: Apache-2.0
/*
 * Copies send the sums of their gradients' leaves home, where the rest of the
 * tree is added up (shunt/moe_gradients.h). Each rank sends each home a block
 * with its sums for that home, expert by expert. The number of sums follows
 * from the ranges.
 */
#include <shunt/moe_gradients.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/shares.h"
#include "moe/plan/exchanges.h"
#include "moe/plan/lifetime.h"
#include "moe/state/state_call.h"
#include "moe/state/tree.h"
#include "src/base/error.h"
#include "src/base/fnv.h"
#include "src/base/handle.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"
#include "src/trace/track.h"

/* own->more of the operation. own->placement is the plan's placement. */
struct sums {
    bool add;
    size_t leaf_rows;
    const struct shunt_moe_range *here; /* (experts here) this rank's entries of
                                           `range` */
    struct shunt_moe_range *range; /* (copies) with shares, otherwise (experts
                                      here) */
    float *sum[]; /* (experts here) the caller's sums; NULL: not given */
};

static size_t count_here(const struct shunti_placement *p, int rank)
{
    return (size_t)shunti_placement_count(p, rank);
}

/* The ids of a rank's experts, ascending. */
static const int32_t *experts_on(const struct shunti_placement *p, int rank)
{
    return shunti_placement_local(shunti_placement_real(p), rank);
}

static size_t sums_of(const struct sums *s, size_t copy)
{
    return shunt_moe_tree_sums(&s->range[copy], s->leaf_rows);
}

/* The number of sums that rank `from` has for the home `to`. */
static size_t sums_between(const struct shunti_state_own *own, int from, int to)
{
    const struct shunti_placement *p = own->placement;
    const int32_t *home = shunti_placement_real(p)->home;
    size_t n = 0;

    if (from == to || !p->shares)
        return 0;
    for (size_t i = 0; i < count_here(p, from); i++)
        if (home[experts_on(p, from)[i]] == to)
            n += sums_of(own->more, p->first[from] + i);
    return n;
}

/* --- at home ------------------------------------------------------------------- */

/* The sums that have arrived from a copy on another rank. */
static float *arrived(const struct shunt_request *request, size_t copy)
{
    const struct shunti_state_own *own = shunti_state_own(request);
    const struct shunti_placement *p = own->placement;
    const int32_t *home = shunti_placement_real(p)->home;
    const int rank = request->comm->rank, from = p->owner[copy];
    unsigned char *at = own->in;
    size_t before = 0;

    for (int r = 0; r < from; r++)
        before += sums_between(own, r, rank);
    for (size_t c = p->first[from]; c < copy; c++)
        if (home[experts_on(p, from)[c - p->first[from]]] == rank)
            before += sums_of(own->more, c);
    at += before * own->state.bytes;
    return (float *)(void *)at;
}

/* Add up the sums of all copies of an expert, in place. Returns the gradient.
 * NULL: the expert has no rows. */
static const float *add_up(const struct shunt_request *request, int expert,
                           size_t own_index)
{
    const struct shunti_state_own *own = shunti_state_own(request);
    const struct sums *s = own->more;
    const struct shunti_placement *p = own->placement;
    const size_t n = own->state.bytes / sizeof(float);
    float *sum[SHUNTI_TREE_SUMS];
    struct shunt_moe_tree tree;

    if (!s->here[own_index].all)
        return NULL;
    if (!p->shares || s->here[own_index].count == s->here[own_index].all)
        return s->sum[own_index];
    shunti_tree_begin(&tree,
                      &(struct shunt_moe_range){0, 0, s->here[own_index].all},
                      s->leaf_rows);
    for (size_t v = p->shares->first[expert]; v < p->shares->first[expert + 1];
         v++) {
        const size_t copy = p->copy[v];
        unsigned char level[SHUNTI_TREE_SUMS];
        const size_t count =
            shunti_tree_levels(&s->range[copy], s->leaf_rows, level);
        float *at = count && p->owner[copy] == request->comm->rank
                        ? s->sum[own_index]
                    : count ? arrived(request, copy)
                            : NULL;

        for (size_t i = 0; i < count; i++) {
            sum[tree.sums] = at + i * n;
            shunti_tree_push(&tree, level[i]);
            while (shunti_tree_fold(&tree))
                shunti_tree_add(sum[tree.sums - 1], sum[tree.sums], n);
        }
    }
    return sum[0];
}

static void write_sum(const struct shunti_state *state, int32_t expert,
                      const float *sum, bool add)
{
    for (int i = 0; i < state->arrays; i++) {
        unsigned char *to = shunti_state_at(state, expert, i);
        const size_t bytes = state->array[i].bytes;

        if (add && sum)
            shunti_tree_add((float *)(void *)to, sum, bytes / sizeof(*sum));
        else if (sum && bytes)
            shunti_copy_payload(to, sum, bytes);
        else if (!add && bytes)
            memset(to, 0, bytes);
        if (sum)
            sum += bytes / sizeof(*sum);
    }
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunti_state_own *own = x->own;
    const struct sums *s = own->more;
    const struct shunti_placement *real = shunti_placement_real(own->placement);
    const int rank = request->comm->rank;
    const int32_t *expert = shunti_placement_local(real, rank);

    if (request->error || !own->state.bytes)
        return;
    for (size_t i = 0; i < count_here(real, rank); i++) {
        if (real->home[expert[i]] != rank ||
            (!s->sum[i] && s->here[i].count &&
             s->here[i].count == s->here[i].all))
            continue;
        write_sum(&own->state, expert[i], add_up(request, expert[i], i),
                  s->add);
    }
}

/* --- the operation ------------------------------------------------------------- */

/* Pack this rank's sums for the home `to`. */
static void pack(const struct shunti_state_own *own, int rank, int to,
                 unsigned char *at)
{
    const struct shunti_placement *p = own->placement;
    const struct sums *s = own->more;
    const int32_t *home = shunti_placement_real(p)->home;

    for (size_t i = 0; i < count_here(p, rank); i++) {
        const size_t bytes =
            home[experts_on(p, rank)[i]] == to
                ? sums_of(s, p->first[rank] + i) * own->state.bytes
                : 0;

        if (bytes)
            shunti_copy_payload(at, s->sum[i], bytes);
        at += bytes;
    }
}

static void begin(struct shunt_request *request, struct shunti_two_level *x)
{
    const struct shunti_state_own *own = x->own;
    const int rank = request->comm->rank;
    unsigned char *out = own->out, *in = own->in;

    for (int r = 0; r < request->comm->nranks; r++) {
        const size_t to = sums_between(own, rank, r) * own->state.bytes;
        const size_t from = sums_between(own, r, rank) * own->state.bytes;

        if (to) {
            pack(own, rank, r, out);
            shunti_two_level_send_block(request, r, out, to);
            out += to;
        }
        if (from) {
            shunti_two_level_recv_block(request, r, in, from);
            in += from;
        }
    }
}

static void mismatch(struct shunt_request *request,
                     const struct shunti_blame *blame)
{
    shunti_request_error(request, SHUNT_ERR_MISMATCH,
                         "%s: rank %d called for another plan, with another "
                         "`add`, or with other arrays than rank %d: all ranks "
                         "must give as many, with the same bytes of an expert "
                         "in each",
                         shunti_request_name(request), blame->rank,
                         blame->reporter);
}

static const struct shunti_kind kind = {
    .number = SHUNTI_KIND_MOE_GRADIENTS,
    .name = "moe_gradients_reduce",
    .detail = SHUNTI_DETAIL_NONE,
    .mismatch = mismatch,
};

__attribute__((constructor)) static void register_kind(void)
{
    shunti_kind_register(&kind);
}

static const struct shunti_class class =
    SHUNTI_STATE_CLASS("moe_gradients_reduce", shunti_two_level_sent);

static const struct shunti_two_level_hooks hooks = {.finish = finish};

static const struct shunti_state_call reduce = {
    .name = "moe_gradients_reduce",
    .kind = SHUNTI_KIND_MOE_GRADIENTS,
    .class = &class,
    .hooks = &hooks,
    .phases = SHUNTI_RAILS_FIRST,
    .begin = begin,
};

/* --- the call ------------------------------------------------------------------- */

/* Find the plan of a handle. NULL: there is none, and *status is what the call
 * must return. If the handle still leads to a communicator, the call was
 * refused there, so the other ranks know. */
static struct shunti_plan *plan_called(const struct shunt_moe_plan *handle,
                                       enum shunt_status *status)
{
    struct shunti_plan *plan = shunti_plan_of(handle);
    const struct shunti_slot *slot;

    if (plan)
        return plan;
    slot = shunti_handle_owner(SHUNTI_HANDLE_PLAN, handle);
    if (slot) {
        shunti_comm_enter(slot->comm);
        *status = shunti_request_refuse(
            slot->comm, SHUNTI_SIGNATURE(reduce.kind, 0, 0, 0),
            SHUNT_ERR_INVALID,
            "%s: the plan has been destroyed, or its exchange", reduce.name);
        shunti_comm_leave(slot->comm);
    } else {
        *status = shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: plan is %s",
                              reduce.name, shunti_plan_missing(handle));
    }
    return NULL;
}

static bool copy_ranges(const struct shunti_plan *plan, struct sums **out)
{
    const struct shunti_placement *p = plan->placement;
    const size_t here = count_here(p, plan->moe->rank);
    const size_t n = p->shares ? p->first[p->ranks] : here;
    struct sums *s =
        malloc(sizeof(*s) + here * sizeof(*s->sum) + n * sizeof(*s->range));

    *out = s;
    if (!s)
        return false;
    s->leaf_rows = plan->moe->config.leaf_rows;
    s->range = (struct shunt_moe_range *)(void *)(s->sum + here);
    s->here = s->range + (p->shares ? p->first[plan->moe->rank] : 0);
    if (n)
        memcpy(s->range, plan->range, n * sizeof(*s->range));
    return true;
}

static enum shunt_status
prepare(struct shunti_state_attempt *attempt, const struct shunti_plan *plan,
        float *const *sums, const struct shunt_moe_state *gradients, int add)
{
    struct shunti_state_own *own = &attempt->own;
    const struct shunti_placement *p = plan->placement;
    const struct shunti_placement *real = shunti_placement_real(p);
    const int rank = plan->moe->rank;
    const int32_t *expert = shunti_placement_local(real, rank);
    struct sums *s;
    enum shunt_status st =
        shunti_state_init(&own->state, gradients, "gradients", real, rank, true,
                          sizeof(float), attempt->why, sizeof(attempt->why));

    if (st)
        return st;
    if (!p->shares && !shunti_placement_has_one_copy(p)) {
        snprintf(
            attempt->why, sizeof(attempt->why),
            "the plan has copies without shares, whose rows are no ranges: "
            "shunt_moe_set_shares(), or shunt_moe_replicas_reduce()");
        return SHUNT_ERR_UNSUPPORTED;
    }
    if (p->shares && plan->waves.cut) {
        snprintf(attempt->why, sizeof(attempt->why),
                 "the plan is in %d waves, and each shares out its rows: call "
                 "it for each of shunt_moe_plan_wave()",
                 plan->waves.count);
        return SHUNT_ERR_INVALID;
    }
    if (plan->wave.whole && plan->waves.in_order) {
        snprintf(attempt->why, sizeof(attempt->why),
                 "a wave in order has only a part of the rows of a sum: call "
                 "it once, for the whole plan");
        return SHUNT_ERR_INVALID;
    }
    if (!copy_ranges(plan, &s)) {
        snprintf(attempt->why, sizeof(attempt->why),
                 "no memory for the ranges of %d copies", p->experts);
        return SHUNT_ERR_MEMORY;
    }
    own->more = s;
    own->placement = shunti_placement_hold(plan->placement);
    s->add = add != 0;
    for (size_t i = 0; i < count_here(p, rank); i++) {
        const bool whole =
            real->home[expert[i]] == rank && s->here[i].count == s->here[i].all;

        s->sum[i] = sums ? sums[i] : NULL;
        if (!s->here[i].count || whole || s->sum[i] || !own->state.bytes)
            continue;
        snprintf(attempt->why, sizeof(attempt->why),
                 "sums[%zu], of expert %d, is NULL, and there are %zu", i,
                 (int)expert[i],
                 shunt_moe_tree_sums(&s->here[i], s->leaf_rows));
        return SHUNT_ERR_INVALID;
    }
    attempt->digest = shunti_state_digest(&own->state, attempt->digest);
    attempt->digest =
        shunti_fnv(attempt->digest, &plan->serial, sizeof(plan->serial));
    attempt->digest = shunti_fnv(attempt->digest, &s->add, sizeof(s->add));
    return SHUNT_OK;
}

static enum shunt_status call(struct shunt_moe_plan *handle, float *const *sums,
                              const struct shunt_moe_state *gradients, int add,
                              bool start, struct shunt_request **request)
{
    struct shunti_state_attempt attempt;
    enum shunt_status st;
    struct shunti_plan *plan;
    size_t out = 0, in = 0;
    SHUNTI_TRACK(LIBRARY);

    if (request)
        *request = NULL;
    plan = plan_called(handle, &st);
    if (!plan)
        return st;
    shunti_state_attempt_of(&attempt, &reduce, plan->moe, start, request);
    if (!attempt.status)
        attempt.status = prepare(&attempt, plan, sums, gradients, add);
    for (int r = 0; r < plan->moe->nranks && !attempt.status; r++) {
        out += sums_between(&attempt.own, plan->moe->rank, r);
        in += sums_between(&attempt.own, r, plan->moe->rank);
    }
    return shunti_state_launch_some(&attempt, out, attempt.own.state.bytes, in,
                                    attempt.own.state.bytes);
}

enum shunt_status
shunt_moe_gradients_reduce(struct shunt_moe_plan *plan, float *const *sums,
                           const struct shunt_moe_state *gradients, int add)
{
    return call(plan, sums, gradients, add, false, NULL);
}

enum shunt_status
shunt_moe_gradients_reduce_start(struct shunt_moe_plan *plan,
                                 float *const *sums,
                                 const struct shunt_moe_state *gradients,
                                 int add, struct shunt_request **request)
{
    return call(plan, sums, gradients, add, true, request);
}
