// SPDX-License-Identifier: Apache-2.0
/*
 * The state of experts in a random program: weights that homes send to copies,
 * and gradients that copies send back. Numbers are small integers, so that a
 * sum has the same bits in any order.
 */

#include <string.h>

#include "tests/random/world.h"

static int home_of(const struct exchange *x, int expert)
{
    return x->config.placement
               ? x->config.placement[expert]
               : (int)((int64_t)expert * x->group->size / x->config.experts);
}

static bool is_on(const struct exchange *x, int expert, int rank)
{
    bool here = home_of(x, expert) == rank;

    for (size_t i = 0; i < x->config.nreplicas; i++)
        here |= x->config.replicas[i].expert == expert &&
                x->config.replicas[i].rank == rank;
    return here;
}

/* Returns the value of an element of an expert on `rank` before the call. */
static float has(const struct event *e, int rank, int expert, size_t i)
{
    return (float)(hash(e->seed, (uint64_t)expert, i) % 1000 +
                   100 * (uint64_t)rank);
}

/* Returns the expected value of an element on this rank after the call. */
static float becomes(const struct exchange *x, const struct event *e,
                     int expert, size_t i)
{
    const int home = home_of(x, expert), me = x->group->rank;
    float sum = 0;

    if (e->kind == REFRESH)
        return has(e, home, expert, i);
    if (home != me)
        return has(e, me, expert, i);
    for (int r = 0; r < x->group->size; r++)
        if (is_on(x, expert, r))
            sum += has(e, r, expert, i);
    return sum;
}

int do_state(struct world *w, const struct exchange *x, const struct event *e)
{
    struct group *g = x->group;
    const size_t n = 1 + e->seed % 50;
    const bool reduces = e->kind == REPLICAS_REDUCE;
    struct shunt_moe_array array = {.bytes = n * sizeof(float)};
    struct shunt_moe_state state = {
        .size = sizeof(state), .array = &array, .arrays = 1};
    struct op *op = new_op(w, g, "replicas_%s of exchange %d, %zu floats each",
                           reduces ? "reduce" : "refresh", e->exchange, n);
    size_t here = 0;
    struct buffer *b;
    float *at, *want;

    for (int k = 0; k < x->config.experts; k++)
        here += is_on(x, k, g->rank);
    b = take_any(w, op, here * array.bytes, sizeof(float));
    at = array.at = b->at;
    want = expects(b, b->bytes);
    for (int k = 0; k < x->config.experts; k++) {
        if (!is_on(x, k, g->rank))
            continue;
        for (size_t i = 0; i < n; i++) {
            if (reduces || home_of(x, k) == g->rank)
                *at = has(e, g->rank, k, i);
            at++;
            *want++ = becomes(x, e, k, i);
        }
    }
    if (!e->start)
        return begun(w, op,
                     reduces
                         ? shunt_moe_replicas_reduce(x->moe, &state, SHUNT_F32)
                         : shunt_moe_replicas_refresh(x->moe, &state));
    return begun(w, op,
                 reduces ? shunt_moe_replicas_reduce_start(
                               x->moe, &state, SHUNT_F32, &op->request)
                         : shunt_moe_replicas_refresh_start(x->moe, &state,
                                                            &op->request));
}
