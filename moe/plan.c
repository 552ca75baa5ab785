// SPDX-License-Identifier: Apache-2.0
/*
 * Plans: one routing, its counts everywhere, and the place of every row.
 *
 * Each rank joins one all-gather of a record: what is wrong with its call, if
 * anything, and how many of its assignments go to each expert. From then on
 * every rank knows the layout of every other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/capacity.h"
#include "kernels/fp8.h"
#include "moe/grow.h"
#include "moe/packed.h"
#include "moe/plan.h"
#include "src/comm.h"
#include "src/error.h"
#include "src/handle.h"
#include "src/nodes.h"
#include "src/failure.h"
#include "src/entry.h"
#include "src/refusal.h"

/* A rank's contribution. `count` has an entry for each expert, and behind them
 * the distinct tokens for each rank and for each node. */
struct record {
    uint64_t exchange; /* these two must agree */
    uint64_t placed;
    uint64_t plans; /* before this one, as far as this rank knows */
    int64_t status;
    uint64_t tokens;
    uint64_t padded; /* rows that each expert takes of ours, if padded */
    uint64_t free[SHUNTI_PLANS_MAX / 64]; /* places, bit by bit */
    char why[136];
    uint32_t count[];
};

_Static_assert(sizeof(struct record) % 8 == 0, "records lie in an array");

#define ROWS_MAX (UINT32_MAX / 2)

static struct record *record_of(const struct shunt_moe *moe, int rank)
{
    return (struct record *)(void *)(moe->records +
                                     (size_t)rank * moe->record_bytes);
}

static size_t record_bytes(const struct shunt_moe *moe)
{
    size_t counts =
        (size_t)moe->config.experts + (size_t)moe->nranks + (size_t)moe->nodes;

    return (sizeof(struct record) + counts * 4 + 7) / 8 * 8;
}

/* --- memory of a place --------------------------------------------------------- */

/* Everything that a plan of `tokens` tokens will need on this rank, before
 * anybody hears of it. */
static bool prepare(struct shunti_plan *plan, size_t tokens)
{
    struct shunt_moe *moe = plan->moe;
    size_t local = (size_t)shunti_placement_count(&moe->placement, moe->rank);
    size_t nranks = (size_t)moe->nranks;
    size_t terms = tokens * (size_t)moe->config.topk;

    if (!moe->records) {
        moe->record_bytes = record_bytes(moe);
        moe->records = calloc(nranks, moe->record_bytes);
    }
    if (!moe->records ||
        !shunti_grow(&moe->key, &moe->key_max,
                     shunti_sort_room(
                         tokens, shunti_sort_stride((size_t)moe->config.topk)),
                     sizeof(*moe->key)) ||
        !shunti_grow(&plan->terms, &plan->terms_max, terms,
                     sizeof(*plan->terms)) ||
        !shunti_grow(&plan->first, &plan->first_max, tokens + 1,
                     sizeof(size_t)))
        return false;
    if (!plan->count || !plan->offset || !plan->source_count ||
        local > plan->local_max) {
        free(plan->count);
        free(plan->offset);
        free(plan->source_count);
        plan->local_max = local;
        plan->count = calloc(local + 1, sizeof(size_t));
        plan->offset = calloc(local + 1, sizeof(size_t));
        plan->source_count = calloc((local + 1) * nranks, sizeof(size_t));
    }
    if (!plan->source_tokens)
        plan->source_tokens = calloc(nranks, sizeof(size_t));
    if (!plan->padded)
        plan->padded = calloc(nranks, sizeof(size_t));
    if (!plan->rank_total)
        plan->rank_total = calloc(nranks, sizeof(size_t));
    return plan->count && plan->offset && plan->source_count &&
           plan->source_tokens && plan->padded && plan->rank_total;
}

void shunti_plan_finish(struct shunti_plan *plan)
{
    free(plan->terms);
    free(plan->first);
    free(plan->count);
    free(plan->offset);
    free(plan->source_count);
    free(plan->source_tokens);
    free(plan->padded);
    free(plan->rank_total);
    shunti_packs_finish(&plan->packs);
    shunti_rails_finish(&plan->rails);
}

/* --- our part of the record ----------------------------------------------------- */

/* The places that neither a plan nor an unfinished request holds. */
static bool find_free(const struct shunt_moe *moe, uint64_t *bits)
{
    bool any = false;

    memset(bits, 0, SHUNTI_PLANS_MAX / 8);
    for (int i = 0; i < moe->config.plans_in_flight; i++)
        if (!moe->plans[i].handle && !moe->plans[i].at.users) {
            bits[i / 64] |= (uint64_t)1 << i % 64;
            any = true;
        }
    return any;
}

/* Read the routing into the record and moe->key; *n: its assignments. */
static enum shunt_status read_routing(struct shunt_moe *moe,
                                      const int32_t *expert, size_t tokens,
                                      struct record *mine, size_t *n, char *why,
                                      size_t len)
{
    const struct shunt_moe_config *c = &moe->config;
    const size_t topk = (size_t)c->topk;
    const struct shunti_layout_read out = {
        .key = moe->key,
        .expert = mine->count,
        .rank = mine->count + c->experts,
        .node = mine->count + c->experts + moe->nranks,
    };
    size_t read;

    memset(out.node, 0, (size_t)moe->nodes * sizeof(*out.node));
    read = shunti_layout_read(&moe->order, expert, tokens, c->topk,
                              moe->path == SHUNTI_PATH_RAILS ? moe->node : NULL,
                              moe->scratch, &out);
    if (read < tokens * topk) {
        snprintf(why, len,
                 "topk_idx of token %zu, slot %zu is %d; experts are 0 to %d, "
                 "and -1 is none",
                 read / topk, read % topk, (int)expert[read], c->experts - 1);
        return SHUNT_ERR_INVALID;
    }
    *n = 0;
    for (int e = 0; e < c->experts; e++)
        *n += mine->count[e];
    return SHUNT_OK;
}

/* Without what exceeds the capacity. */
static enum shunt_status drop(struct shunt_moe *moe, const int32_t *expert,
                              const float *weight, size_t tokens,
                              size_t capacity, struct record *mine, size_t *n,
                              char *why, size_t len)
{
    const struct shunt_moe_config *c = &moe->config;
    const size_t all = tokens * (size_t)c->topk;
    bool over = false;

    for (int e = 0; e < c->experts; e++)
        over = over || mine->count[e] > capacity;
    if (!over)
        return SHUNT_OK;
    if (!shunti_grow(&moe->expert, &moe->expert_max, all, sizeof(*expert))) {
        snprintf(why, len, "no memory for a plan of %zu tokens", tokens);
        return SHUNT_ERR_MEMORY;
    }
    memcpy(moe->expert, expert, all * sizeof(*expert));
    if (shunti_capacity_apply(moe->expert, weight, all, c->experts, capacity,
                              c->drop, mine->count)) {
        snprintf(why, len, "no memory to choose what to drop");
        return SHUNT_ERR_MEMORY;
    }
    return read_routing(moe, moe->expert, tokens, mine, n, why, len);
}

/* Is the call itself in order? */
static enum shunt_status check_call(const struct shunt_moe *moe,
                                    const int32_t *expert, size_t tokens,
                                    bool have_out, char *why, size_t len)
{
    if (tokens > moe->config.max_tokens) {
        snprintf(why, len, "%zu tokens, and max_tokens is %zu", tokens,
                 moe->config.max_tokens);
        return SHUNT_ERR_INVALID;
    }
    if (tokens && !expert) {
        snprintf(why, len, "topk_idx is NULL with %zu tokens", tokens);
        return SHUNT_ERR_INVALID;
    }
    if (!have_out) {
        snprintf(why, len, "plan is NULL");
        return SHUNT_ERR_INVALID;
    }
    return SHUNT_OK;
}

/* Check the call and count. */
static enum shunt_status contribute(struct shunt_moe *moe,
                                    const int32_t *expert, const float *weight,
                                    size_t tokens, bool have_out, char *why,
                                    size_t len)
{
    const struct shunt_moe_config *c = &moe->config;
    struct shunti_plan *plan = moe->spare;
    size_t capacity, assigned;
    struct record *mine;
    bool any;
    enum shunt_status st = check_call(moe, expert, tokens, have_out, why, len);

    if (st)
        return st;
    if (!prepare(plan, tokens)) {
        snprintf(why, len, "no memory for a plan of %zu tokens", tokens);
        return SHUNT_ERR_MEMORY;
    }
    mine = record_of(moe, moe->rank);
    st = read_routing(moe, expert, tokens, mine, &assigned, why, len);
    if (st)
        return st;
    shunti_comm_enter(moe->comm);
    shunti_lists_settle(moe);
    any = find_free(moe, mine->free);
    shunti_comm_leave(moe->comm);
    if (!any) {
        snprintf(why, len,
                 "%d plans are in flight (plans_in_flight): destroy one",
                 c->plans_in_flight);
        return SHUNT_ERR_BUSY;
    }
    capacity = shunti_capacity(c->capacity_factor, tokens, c->topk, c->experts);
    if (c->pad_to_capacity && capacity > ROWS_MAX) {
        snprintf(why, len,
                 "capacity_factor %g pads each expert to more than %u rows of "
                 "%zu tokens",
                 c->capacity_factor, (unsigned)ROWS_MAX, tokens);
        return SHUNT_ERR_INVALID;
    }
    plan->kept = assigned;
    st = drop(moe, expert, weight, tokens, capacity, mine, &plan->kept, why,
              len);
    if (st)
        return st;
    plan->tokens = tokens;
    plan->dropped = assigned - plan->kept;
    mine->tokens = tokens;
    mine->padded = c->pad_to_capacity ? capacity : 0;
    return SHUNT_OK;
}

/* --- everybody's ----------------------------------------------------------------- */

/* Do the numbers of a record, which all that follows counts on, agree with each
 * other? */
static bool is_possible(const struct shunt_moe *moe, const struct record *r)
{
    const struct shunt_moe_config *c = &moe->config;
    const uint32_t *distinct = r->count + c->experts;
    size_t kept = 0, padded = 0;

    if (r->tokens > c->max_tokens)
        return false;
    if (c->pad_to_capacity)
        padded =
            shunti_capacity(c->capacity_factor, r->tokens, c->topk, c->experts);
    for (int e = 0; e < c->experts; e++) {
        kept += r->count[e];
        if (padded && r->count[e] > padded)
            return false;
    }
    for (int i = 0; i < moe->nranks + moe->nodes; i++)
        if (distinct[i] > r->tokens)
            return false;
    return kept <= r->tokens * (size_t)c->topk && r->padded == padded;
}

static enum shunt_status compare(struct shunt_moe *moe,
                                 const struct record *mine)
{
    for (int r = 0; r < moe->nranks; r++) {
        const struct record *theirs = record_of(moe, r);

        if (r == moe->rank || !theirs->status)
            continue;
        return shunti_fail(&moe->comm->error, SHUNT_ERR_REMOTE,
                           "moe_plan_create: rank %d's call failed there: "
                           "%.*s",
                           r, (int)sizeof(theirs->why), theirs->why);
    }
    for (int r = 0; r < moe->nranks; r++) {
        const struct record *theirs = record_of(moe, r);

        if (theirs->exchange != mine->exchange)
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: rank %d plans for another "
                               "exchange (struct shunt_moe) than this rank",
                               r);
        if (theirs->placed != mine->placed)
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: rank %d has another "
                               "placement than this rank",
                               r);
        if (!is_possible(moe, theirs))
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: the counts of rank %d "
                               "contradict each other",
                               r);
    }
    return SHUNT_OK;
}

/* Every rank joins, whatever became of its own call. */
static enum shunt_status gather(struct shunt_moe *moe, enum shunt_status status,
                                const char *why)
{
    struct record *mine;
    enum shunt_status st;

    if (!moe->records) { /* prepare() failed or was not reached */
        moe->record_bytes = record_bytes(moe);
        moe->records = calloc((size_t)moe->nranks, moe->record_bytes);
    }
    if (!moe->records) {
        shunti_comm_enter(moe->comm);
        st = shunti_request_refuse(
            moe->comm, SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U8, 0, 0),
            SHUNT_ERR_MEMORY, "moe_plan_create: no memory");
        shunti_comm_leave(moe->comm);
        return st;
    }
    mine = record_of(moe, moe->rank);
    mine->exchange = moe->serial;
    mine->placed = moe->placed;
    mine->plans = moe->plans_made;
    mine->status = status;
    memset(mine->why, 0, sizeof(mine->why));
    if (status)
        snprintf(mine->why, sizeof(mine->why), "%s", why);
    st = shunt_allgather(moe->comm, SHUNT_IN_PLACE, moe->records,
                         moe->record_bytes, SHUNT_U8);
    if (status)
        return shunti_fail(&moe->comm->error, status, "moe_plan_create: %s", why);
    return st ? st : compare(moe, mine);
}

/*
 * The number of a plan that all have agreed on. What each rank counted itself
 * would differ for ever after a call that only some made for this exchange, or
 * that failed on some only: so all go on from the highest count.
 */
static uint64_t number_plan(struct shunt_moe *moe)
{
    for (int r = 0; r < moe->nranks; r++)
        if (record_of(moe, r)->plans > moe->plans_made)
            moe->plans_made = record_of(moe, r)->plans;
    return ++moe->plans_made;
}

/* --- layout and buffers ----------------------------------------------------------- */

/* Rows of ours for experts on other ranks of our node, and on other nodes. */
static void count_rows(const struct shunt_moe *moe, size_t *near, size_t *far)
{
    const struct record *mine = record_of(moe, moe->rank);

    *near = *far = 0;
    for (int e = 0; e < moe->config.experts; e++) {
        const int r = moe->order.expert[e].rank;

        if (moe->node[r] != moe->node[moe->rank])
            *far += mine->count[e];
        else if (r != moe->rank)
            *near += mine->count[e];
    }
}

/* Directly, every row is a copy of its own; in packs a token travels once to
 * each rank. */
static size_t payload_sent(const struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    size_t rows = 0, near, far;

    if (moe->path == SHUNTI_PATH_PACKED) {
        const struct record *mine = record_of(moe, moe->rank);

        for (int r = 0; r < moe->nranks; r++)
            rows += r != moe->rank ? mine->count[moe->config.experts + r] : 0;
        return rows * shunti_wire_bytes(moe);
    }
    count_rows(moe, &near, &far);
    if (moe->path == SHUNTI_PATH_DIRECT)
        return (near + far) * moe->row_bytes;
    return near * moe->row_bytes + plan->network.dispatch_bytes;
}

size_t shunti_wire_bytes(const struct shunt_moe *moe)
{
    return moe->config.wire == SHUNT_MOE_WIRE_FP8
               ? shunti_fp8_bytes(moe->config.hidden)
               : moe->row_bytes;
}

/*
 * Who sends how many rows to which node; and whether all rows go everywhere.
 * That saves no bytes: it is chosen if there is nothing to save, every token
 * being wanted on every node, and if the configuration says so.
 */
static void describe_traffic(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    const size_t nodes = (size_t)moe->nodes;
    bool all = true;

    memset(moe->node_terms, 0,
           (size_t)moe->nranks * nodes * sizeof(*moe->node_terms));
    for (int s = 0; s < moe->nranks; s++) {
        const struct record *r = record_of(moe, s);
        const uint32_t *distinct = r->count + moe->config.experts + moe->nranks;
        uint32_t *terms = moe->node_terms + (size_t)s * nodes;

        memcpy(moe->node_rows + (size_t)s * nodes, distinct,
               nodes * sizeof(*distinct));
        for (int n = 0; n < moe->nodes; n++)
            all = all && (n == moe->node[s] || distinct[n] == r->tokens);
        for (int e = 0; e < moe->config.experts; e++)
            terms[moe->node[shunti_placement_target(&moe->placement, s, e)]] +=
                r->count[e];
    }
    plan->mode = moe->config.mode != SHUNT_MOE_AUTO ? moe->config.mode
                 : all                              ? SHUNT_MOE_ALLGATHER
                                                    : SHUNT_MOE_TWO_LEVEL;
    for (int s = 0; s < moe->nranks && plan->mode == SHUNT_MOE_ALLGATHER; s++)
        for (size_t n = 0; n < nodes; n++)
            moe->node_rows[(size_t)s * nodes + n] =
                (uint32_t)record_of(moe, s)->tokens;
}

/* What the plan sends to other nodes. */
static void count_network(struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t nodes = (size_t)moe->nodes;
    const int rank = moe->rank, node = moe->node[rank];
    const struct record *mine = record_of(moe, rank);
    const size_t local = (size_t)shunti_placement_count(&moe->placement, rank);
    size_t rows = 0, near, plain, back = 0;

    count_rows(moe, &near, &plain);
    for (int r = 0; r < moe->nranks; r++) {
        if (moe->node[r] == node)
            continue;
        if (moe->path == SHUNTI_PATH_PACKED)
            rows += mine->count[moe->config.experts + r];
        if (moe->path == SHUNTI_PATH_RAILS &&
            shunti_rail(moe->comm, r, node) == rank)
            back += moe->node_rows[(size_t)r * nodes + (size_t)node];
        else if (moe->path == SHUNTI_PATH_PACKED)
            for (size_t i = 0; i < local; i++)
                back += plan->source_count[(size_t)r * local + i];
    }
    if (moe->path == SHUNTI_PATH_RAILS)
        for (int n = 0; n < moe->nodes; n++)
            rows += n != node ? moe->node_rows[(size_t)rank * nodes + (size_t)n]
                              : 0;
    if (moe->path == SHUNTI_PATH_DIRECT)
        rows = plain;
    plan->network.rows = rows;
    plan->network.rows_plain = plain;
    plan->network.dispatch_bytes =
        rows * (moe->path == SHUNTI_PATH_DIRECT ? moe->row_bytes
                                                : shunti_wire_bytes(moe));
    plan->network.combine_bytes =
        back * (moe->path == SHUNTI_PATH_RAILS ? shunti_sum_bytes(moe)
                                               : moe->row_bytes);
}

static size_t rows_lent(const struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    size_t local = (size_t)shunti_placement_count(&moe->placement, moe->rank);
    size_t rows = 0;

    for (size_t s = 0; s < (size_t)moe->nranks; s++)
        for (size_t i = 0; i < local && s != (size_t)moe->rank; i++)
            rows += plan->source_count[s * local + i];
    return rows;
}

/*
 * Buffers that are large enough on every rank, or new ones on all: the
 * decision follows from what everybody knows. A quarter more than is needed,
 * and at least what an even routing brings.
 */
static enum shunt_status fit_buffers(struct shunti_plan *plan,
                                     const size_t *total)
{
    struct shunt_moe *moe = plan->moe;
    struct shunti_window *old = plan->at.window;
    size_t most = 0, even, rows, bytes;
    enum shunt_status st;

    for (int r = 0; r < moe->nranks; r++)
        most = total[r] > most ? total[r] : most;
    if (most <= plan->at.buffer_rows)
        return SHUNT_OK;
    plan->at.window = NULL;
    plan->at.buffer_rows = 0;
    plan->at.buffer_stride = 0; /* from which the next exchange knows them */
    if (old) {
        shunti_comm_enter(moe->comm);
        st = shunti_window_free(moe->comm, old);
        shunti_comm_leave(moe->comm);
        if (st)
            return st;
    }
    even = moe->config.max_tokens * (size_t)moe->config.topk;
    rows = most > even ? most : even;
    rows = rows + rows / 4 + 1;
    if (__builtin_mul_overflow(rows, moe->row_bytes, &bytes) ||
        bytes > SIZE_MAX / 16)
        return shunti_fail(&moe->comm->error, SHUNT_ERR_MEMORY,
                           "moe_plan_create: %zu rows do not fit in memory",
                           rows);
    /* Pages of one buffer hold nothing of another. */
    bytes = (bytes + 4095) / 4096 * 4096;
    shunti_comm_enter(moe->comm);
    st = shunti_window_create(moe->comm, 2 * SHUNTI_BUFFERS * bytes,
                              &plan->at.window);
    shunti_comm_leave(moe->comm);
    if (st)
        return st;
    plan->at.buffer_rows = rows;
    plan->at.buffer_stride = bytes;
    return SHUNT_OK;
}

/* From the records: where everything goes. */
static enum shunt_status lay_out(struct shunti_plan *plan, const float *weight)
{
    struct shunt_moe *moe = plan->moe;
    size_t nranks = (size_t)moe->nranks;
    const struct shunti_layout_recv recv = {plan->count, plan->offset,
                                            plan->source_count};
    const uint32_t **rows = malloc(nranks * sizeof(*rows));
    size_t *total = plan->rank_total;
    struct shunti_counts counts = {
        rows, moe->config.pad_to_capacity ? plan->padded : NULL};
    enum shunt_status st = SHUNT_OK;

    if (!rows) {
        /* Too late for a record: the others would be left alone. */
        shunti_comm_enter(moe->comm);
        st = shunti_comm_fail(moe->comm, SHUNT_ERR_MEMORY, moe->rank,
                              "moe_plan_create: no memory for the layout");
        shunti_comm_leave(moe->comm);
        goto out;
    }
    for (size_t s = 0; s < nranks; s++) {
        const struct record *r = record_of(moe, (int)s);

        rows[s] = r->count;
        plan->padded[s] = (size_t)r->padded;
        plan->source_tokens[s] = r->count[moe->config.experts + moe->rank];
    }
    shunti_layout_bases(&moe->placement, &counts, moe->config.row_align,
                        moe->rank, total, moe->base, moe->copy_rows);
    plan->total = shunti_layout_recv(&moe->placement, &counts,
                                     moe->config.row_align, moe->rank, &recv);
    for (int r = 0; r < moe->nranks && !st; r++)
        if (total[r] > ROWS_MAX)
            st = shunti_fail(&moe->comm->error, SHUNT_ERR_INVALID,
                             "moe_plan_create: rank %d would get %zu rows; at "
                             "most %u can be had",
                             r, total[r], (unsigned)ROWS_MAX);
    if (st)
        goto out;
    shunti_layout_terms(&moe->order, moe->key, weight, plan->tokens,
                        moe->config.topk, moe->base, moe->scratch + 2 * nranks,
                        plan->terms, plan->first);
    plan->rows_lent = rows_lent(plan);
    plan->mode =
        moe->path == SHUNTI_PATH_DIRECT ? SHUNT_MOE_DIRECT : SHUNT_MOE_FLAT;
    if (moe->path == SHUNTI_PATH_RAILS)
        describe_traffic(plan);
    count_network(plan);
    plan->bytes_sent = payload_sent(plan);
    st = fit_buffers(plan, total);
    if (!st && moe->path == SHUNTI_PATH_PACKED)
        st = shunti_packs_exchange(plan, &counts, moe->base);
    if (!st && moe->path == SHUNTI_PATH_RAILS)
        st = shunti_rails_exchange(plan);
out:
    free(rows);
    return st;
}

/* The lowest place that is free everywhere gets the plan. */
static struct shunti_plan *take_place(struct shunt_moe *moe)
{
    for (int i = 0; i < moe->config.plans_in_flight; i++) {
        struct shunti_plan *plan = &moe->plans[i];
        bool everywhere = true;

        for (int r = 0; r < moe->nranks; r++)
            everywhere =
                everywhere && record_of(moe, r)->free[i / 64] >> i % 64 & 1;
        if (everywhere) {
            struct shunti_plan old = *plan;

            *plan = *moe->spare;
            plan->lists.here = false;
            plan->at = old.at;
            memset(&old.at, 0, sizeof(old.at));
            *moe->spare = old;
            return plan;
        }
    }
    return NULL;
}

static enum shunt_status make_plan(struct shunt_moe *moe,
                                   const int32_t *topk_idx,
                                   const float *topk_weight, size_t tokens,
                                   struct shunt_moe_plan **out)
{
    struct shunti_plan *plan;
    enum shunt_status st;
    uint64_t number;
    char why[128] = "";

    st = contribute(moe, topk_idx, topk_weight, tokens, out != NULL, why,
                    sizeof(why));
    st = gather(moe, st, why);
    if (st)
        return st;
    number = number_plan(moe);
    plan = take_place(moe);
    if (!plan)
        return shunti_fail(&moe->comm->error, SHUNT_ERR_BUSY,
                           "moe_plan_create: %d plans are in flight "
                           "(plans_in_flight), counting those that some rank "
                           "has not destroyed yet",
                           moe->config.plans_in_flight);
    st = lay_out(plan, topk_weight);
    if (st)
        return st;
    plan->serial = number;
    plan->handle = *out = shunti_handle_issue(plan->at.entry, plan);
    return SHUNT_OK;
}

enum shunt_status shunt_moe_plan_create(struct shunt_moe *handle,
                                        const int32_t *topk_idx,
                                        const float *topk_weight, size_t tokens,
                                        struct shunt_moe_plan **out)
{
    struct shunt_moe *moe;
    enum shunt_status st;

    if (out)
        *out = NULL;
    moe = shunti_moe_of(handle, SHUNTI_PURPOSE_MOE_PLAN_CREATE, &st);
    if (!moe)
        return st;
    moe->comm->purpose = SHUNTI_PURPOSE_MOE_PLAN_CREATE;
    st = make_plan(moe, topk_idx, topk_weight, tokens, out);
    moe->comm->purpose = SHUNTI_PURPOSE_ITSELF;
    return st;
}

/* --- the rest of a plan's life ------------------------------------------------------ */

bool shunti_plan_borrowed(const struct shunti_plan *plan, unsigned which)
{
    bool borrowed;

    /* A progress thread gives it back. */
    shunti_comm_enter(plan->moe->comm);
    borrowed = plan->at.borrowed & which;
    shunti_comm_leave(plan->moe->comm);
    return borrowed;
}

void shunti_plan_use(struct shunti_plan *plan, unsigned borrow)
{
    plan->at.users++;
    plan->moe->users++;
    plan->at.borrowed |= borrow;
}

void shunti_plan_unuse(struct shunti_plan *plan, unsigned borrowed)
{
    plan->at.users--;
    plan->at.borrowed &= ~borrowed;
    shunti_moe_unuse(plan->moe);
}

void shunti_plan_zero_gaps(const struct shunti_plan *plan, void *rows)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = &moe->placement;
    const int32_t *expert = shunti_placement_local(p, moe->rank);
    size_t local = (size_t)shunti_placement_count(p, moe->rank);
    unsigned char *base = rows;

    if (!rows)
        return; /* no rows at all, so no gaps; memset() takes no NULL */
    for (size_t i = 0; i < local; i++) {
        size_t at = plan->offset[i];

        for (int s = 0; s < moe->nranks && moe->config.pad_to_capacity; s++) {
            size_t used = plan->source_count[(size_t)s * local + i];

            if (shunti_placement_target(p, s, expert[i]) != moe->rank)
                continue;
            memset(base + (at + used) * moe->row_bytes, 0,
                   (plan->padded[s] - used) * moe->row_bytes);
            at += plan->padded[s];
        }
        at = plan->offset[i] + plan->count[i];
        memset(base + at * moe->row_bytes, 0,
               (plan->offset[i + 1] - at) * moe->row_bytes);
    }
}

struct shunti_plan *shunti_plan_of(const struct shunt_moe_plan *handle)
{
    return shunti_handle_object(SHUNTI_HANDLE_PLAN, handle);
}

void shunt_moe_plan_destroy(struct shunt_moe_plan *handle)
{
    struct shunti_plan *plan = shunti_plan_of(handle);

    if (!plan)
        return;
    shunti_comm_enter(plan->moe->comm);
    shunti_moe_call_plan_ends(plan);
    shunti_handle_revoke(plan->at.entry);
    plan->handle = NULL;
    shunti_comm_leave(plan->moe->comm);
}

struct shunt_moe_rows shunt_moe_plan_rows(const struct shunt_moe_plan *handle)
{
    const struct shunti_plan *plan = shunti_plan_of(handle);
    struct shunt_moe_rows rows = {0};

    if (!plan)
        return rows;
    rows.local_experts =
        shunti_placement_count(&plan->moe->placement, plan->moe->rank);
    rows.expert =
        shunti_placement_local(&plan->moe->placement, plan->moe->rank);
    rows.count = plan->count;
    rows.offset = plan->offset;
    rows.total = plan->total;
    rows.source_count = plan->source_count;
    rows.source_tokens = plan->source_tokens;
    rows.tokens = plan->tokens;
    rows.kept = plan->kept;
    rows.dropped = plan->dropped;
    rows.bytes_sent = plan->bytes_sent;
    rows.mode = plan->mode;
    rows.network_rows = plan->network.rows;
    rows.network_rows_plain = plan->network.rows_plain;
    rows.network_dispatch_bytes = plan->network.dispatch_bytes;
    rows.network_combine_bytes = plan->network.combine_bytes;
    return rows;
}

void *shunt_moe_buffer(const struct shunt_moe_plan *handle,
                       enum shunt_moe_buffer which)
{
    const struct shunti_plan *plan = shunti_plan_of(handle);

    return plan && (int)which >= SHUNT_MOE_ROWS && which <= SHUNT_MOE_DROWS &&
                   plan->total
               ? shunti_plan_buffer(plan, which)
               : NULL;
}
