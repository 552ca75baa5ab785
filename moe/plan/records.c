// SPDX-License-Identifier: Apache-2.0
/* Records of a plan; see records.h. */
#include "moe/plan/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/allgather.h"
#include "moe/layout/capacity.h"
#include "moe/layout/counts.h"
#include "moe/layout/growing_array.h"
#include "moe/layout/pieces.h"
#include "moe/plan/settings.h"
#include "moe/route.h"
#include "src/base/error.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"

/* One rank's record. `count` has an entry for each expert and each rank, and
 * two or three for each node: struct shunti_record_view. `count` is empty if
 * records have no counts. */
struct record {
    uint64_t exchange; /* `exchange` and `placed` must agree on all ranks */
    uint64_t placed;
    uint64_t plans; /* number of plans made before this one, as far as this rank
                       knows */
    int64_t status;
    uint64_t tokens;
    uint64_t most;     /* assignments to the fullest expert, before any drop */
    uint64_t left;     /* tokens in later waves */
    uint64_t max_rows; /* this and the next two must agree on all ranks */
    double capacity;
    uint64_t in_order;
    uint32_t everywhere; /* 1: each token has an expert on every other node */
    uint32_t parts;      /* number of parts that the caller asks for; 0: AUTO */
    uint64_t free[SHUNTI_PLANS_MAX / 64]; /* a bit for each place that is free
                                             on this rank */
    union {
        char why[136]; /* the error text, if status is an error */
        struct shunti_time times[SHUNTI_TIMES_MAX]; /* if status is SHUNT_OK */
    };
    uint32_t count[];
};

_Static_assert(sizeof(struct record) % 8 == 0, "records lie in an array");

size_t shunti_record_bytes(int experts, int ranks, int nodes, bool pieces)
{
    const size_t counts =
        (size_t)experts + (size_t)ranks + (pieces ? 3 : 2) * (size_t)nodes;

    return (sizeof(struct record) + counts * 4 + 7) / 8 * 8;
}

static struct record *record_of(const struct shunt_moe *moe, int rank)
{
    return (struct record *)(void *)(moe->records +
                                     (size_t)rank * moe->record_bytes);
}

/* Bytes of a record that has its counts. */
static size_t whole_bytes(const struct shunt_moe *moe)
{
    return shunti_record_bytes(moe->placement->experts, moe->nranks, moe->nodes,
                               moe->routes.pieces);
}

bool shunti_records_have_counts(const struct shunt_moe *moe)
{
    return (size_t)moe->nranks * whole_bytes(moe) <=
           shunti_moe_settings(moe->comm)->records;
}

/* Get room for one record more than there are ranks. If records have no counts,
 * the additional one holds this rank's own counts. */
bool shunti_records_prepare(struct shunt_moe *moe)
{
    const size_t whole = whole_bytes(moe);
    const size_t each = shunti_records_have_counts(moe)
                            ? whole
                            : shunti_record_bytes(0, 0, 0, false);
    const size_t bytes = (size_t)moe->nranks * each + whole;

    /* The size depends on the placement: with shares there are more experts. */
    moe->record_bytes = each;
    if (moe->records && bytes <= moe->records_max)
        return true;
    free(moe->records);
    moe->records = calloc(1, bytes);
    moe->records_max = moe->records ? bytes : 0;
    return moe->records != NULL;
}

/* The counts of a record. If records have no counts, returns this rank's
 * counts, which are behind all records. */
static uint32_t *counts_of(const struct shunt_moe *moe, int rank)
{
    return shunti_records_have_counts(moe) ? record_of(moe, rank)->count
                                           : record_of(moe, moe->nranks)->count;
}

size_t shunti_records_tokens(const struct shunt_moe *moe, int rank)
{
    return (size_t)record_of(moe, rank)->tokens;
}

size_t shunti_records_padded(const struct shunt_moe *moe, int rank)
{
    const struct shunt_moe_config *c = &moe->config;
    const struct record *r = record_of(moe, rank);
    size_t capacity;

    if (!c->pad_to_capacity)
        return 0;
    capacity =
        shunti_capacity(r->capacity, (size_t)r->tokens, c->topk, c->experts);
    /* Use the smallest capacity that drops nothing, unless the given one is
     * less. */
    return r->capacity > 0 || capacity < moe->expert_most ? capacity
                                                          : moe->expert_most;
}

bool shunti_records_left(const struct shunt_moe *moe)
{
    for (int r = 0; r < moe->nranks; r++)
        if (record_of(moe, r)->left)
            return true;
    return false;
}

bool shunti_records_everywhere(const struct shunt_moe *moe)
{
    for (int r = 0; r < moe->nranks; r++)
        if (!record_of(moe, r)->everywhere)
            return false;
    return true;
}

struct shunti_record_view shunti_record(const struct shunt_moe *moe, int rank)
{
    struct shunti_record_view view = {.expert = counts_of(moe, rank)};

    view.rank = view.expert + moe->placement->experts;
    view.node = view.rank + moe->nranks;
    view.node_rows = view.node + moe->nodes;
    if (moe->routes.pieces)
        view.pieces = view.node_rows + moe->nodes;
    return view;
}

struct shunti_sent shunti_records_sent(const struct shunt_moe *moe)
{
    const uint32_t *count = counts_of(moe, moe->rank);
    struct shunti_sent sent = {0, 0};

    for (int e = 0; e < moe->placement->experts; e++) {
        const int r = moe->order.expert[e].rank;

        if (moe->node[r] != moe->node[moe->rank])
            sent.far += count[e];
        else if (r != moe->rank)
            sent.near += count[e];
    }
    return sent;
}

/* --- the own record --------------------------------------------------------------- */

/* Find the places that neither a plan nor an unfinished request uses. */
static bool find_free(const struct shunt_moe *moe, uint64_t *bits)
{
    bool any = false;

    memset(bits, 0, SHUNTI_PLANS_MAX / 8);
    for (int i = 0; i < moe->config.plans_in_flight; i++)
        if (shunti_place_is_free(&moe->places[i])) {
            bits[i / 64] |= (uint64_t)1 << i % 64;
            any = true;
        }
    return any;
}

/* Read the routing into the record and moe->key. *n: number of assignments. */
static enum shunt_status read_routing(struct shunt_moe *moe,
                                      const int32_t *expert, size_t tokens,
                                      size_t *n, char *why, size_t len)
{
    const struct shunt_moe_config *c = &moe->config;
    uint32_t *count = counts_of(moe, moe->rank);
    const int experts = moe->placement->experts;
    const struct shunti_layout_read out = {
        .key = moe->key,
        .expert = count,
        .rank = count + experts,
        .node = count + experts + moe->nranks,
    };
    const bool by_node = shunti_routes_by_node(&moe->routes);
    size_t read;

    memset(out.node, 0, 2 * (size_t)moe->nodes * sizeof(*out.node));
    read = shunti_layout_read(&moe->order, expert, tokens, c->topk,
                              by_node ? moe->node : NULL, moe->scratch, &out);
    if (read < tokens * (size_t)c->topk) {
        shunti_layout_bad_id(expert, read, c->topk, c->experts, why, len);
        return SHUNT_ERR_INVALID;
    }
    *n = 0;
    for (int e = 0; e < experts; e++) {
        *n += count[e];
        if (by_node)
            out.node[moe->nodes + moe->node[moe->order.expert[e].rank]] +=
                count[e];
    }
    return SHUNT_OK;
}

/* Drop assignments over the capacity, and read the routing again. */
static enum shunt_status drop(struct shunt_moe *moe, const int32_t *expert,
                              const float *weight, size_t tokens,
                              size_t capacity, size_t *n, char *why, size_t len)
{
    const struct shunt_moe_config *c = &moe->config;
    uint32_t *count = counts_of(moe, moe->rank);
    const size_t all = tokens * (size_t)c->topk;
    bool over = false;

    for (int e = 0; e < moe->placement->experts; e++)
        over = over || count[e] > capacity;
    if (!over)
        return SHUNT_OK;
    if (!shunti_grow(&moe->expert, &moe->expert_max, all, sizeof(*expert))) {
        snprintf(why, len, "no memory for a plan of %zu tokens", tokens);
        return SHUNT_ERR_MEMORY;
    }
    memcpy(moe->expert, expert, all * sizeof(*expert));
    if (shunti_capacity_apply(moe->expert, weight, all, c->experts, capacity,
                              c->drop, count)) {
        snprintf(why, len, "no memory to choose what to drop");
        return SHUNT_ERR_MEMORY;
    }
    return read_routing(moe, moe->expert, tokens, n, why, len);
}

/* Count the pieces that each node will send home for this rank's tokens. The
 * terms are those of the plan, except for their rows, which are not known
 * yet. */
static void count_pieces(struct shunt_moe *moe, const float *weight,
                         size_t tokens)
{
    const struct shunti_plan *plan = moe->spare;
    uint32_t *pieces = counts_of(moe, moe->rank) + moe->placement->experts +
                       moe->nranks + 2 * moe->nodes;

    shunti_layout_terms(&moe->order, moe->key, weight, tokens, moe->config.topk,
                        moe->base, moe->scratch + 2 * (size_t)moe->nranks,
                        plan->terms, plan->first);
    memset(pieces, 0, (size_t)moe->nodes * sizeof(*pieces));
    shunti_pieces_count(plan->terms, plan->first, tokens, moe->node, pieces);
}

/* True if every token goes to every other node. Then two levels save no
 * bytes. */
static bool all_go_everywhere(const struct shunt_moe *moe, size_t tokens)
{
    const struct shunti_record_view mine = shunti_record(moe, moe->rank);

    for (int n = 0; n < moe->nodes; n++)
        if (n != moe->node[moe->rank] && mine.node[n] != tokens)
            return false;
    return true;
}

enum shunt_status shunti_records_read(struct shunt_moe *moe,
                                      const int32_t *expert,
                                      const float *weight, size_t tokens,
                                      char *why, size_t len)
{
    const struct shunt_moe_config *c = &moe->config;
    struct shunti_plan *plan = moe->spare;
    size_t capacity, assigned;
    const uint32_t *count;
    struct record *mine = record_of(moe, moe->rank);
    enum shunt_status st =
        read_routing(moe, expert, tokens, &assigned, why, len);
    bool any;

    if (st)
        return st;
    shunti_comm_enter(moe->comm);
    if (!plan->wave.whole)
        shunti_lists_settle(moe);
    any = find_free(moe, mine->free);
    shunti_comm_leave(moe->comm);
    if (!any && !plan->wave.whole) {
        snprintf(why, len,
                 "%d plans are in flight (plans_in_flight): destroy one",
                 c->plans_in_flight);
        return SHUNT_ERR_BUSY;
    }
    mine->most = 0;
    count = counts_of(moe, moe->rank);
    for (int e = 0; e < moe->placement->experts; e++)
        mine->most = count[e] > mine->most ? count[e] : mine->most;
    capacity = shunti_capacity(plan->capacity, tokens, c->topk, c->experts);
    if (c->pad_to_capacity && plan->capacity > 0 &&
        capacity > SHUNTI_ROWS_MAX) {
        snprintf(why, len,
                 "capacity_factor %g pads each expert to more than %u rows of "
                 "%zu tokens",
                 plan->capacity, (unsigned)SHUNTI_ROWS_MAX, tokens);
        return SHUNT_ERR_INVALID;
    }
    plan->kept = assigned;
    st = drop(moe, expert, weight, tokens, capacity, &plan->kept, why, len);
    if (st)
        return st;
    if (moe->routes.pieces)
        count_pieces(moe, weight, tokens);
    plan->tokens = tokens;
    plan->dropped = assigned - plan->kept;
    mine->parts = (uint32_t)plan->parts.count;
    mine->tokens = tokens;
    mine->left = plan->wave.left;
    mine->everywhere = all_go_everywhere(moe, tokens);
    return SHUNT_OK;
}

/* --- the records of all ranks ------------------------------------------------------ */

/* True if the counts of a record agree with each other. All later steps rely on
 * them. */
static bool are_counts_possible(const struct shunt_moe *moe,
                                const struct record *r, size_t padded)
{
    const struct shunt_moe_config *c = &moe->config;
    const size_t experts = (size_t)moe->placement->experts;
    const size_t nodes = (size_t)moe->nodes;
    const size_t groups = (size_t)moe->nranks + nodes;
    const uint32_t *distinct = r->count + experts;
    const size_t kept = shunti_counts_sum(r->count, experts);

    if (shunti_counts_exceed(r->count, experts, r->most) ||
        (padded && shunti_counts_exceed(r->count, experts, padded)))
        return false;
    if (shunti_counts_exceed(distinct, groups, r->tokens))
        return false;
    if (shunti_routes_by_node(&moe->routes) &&
        shunti_counts_sum(distinct + groups, nodes) != kept)
        return false;
    for (size_t n = 0; n < nodes && moe->routes.pieces; n++) {
        const uint32_t *tokens = distinct + moe->nranks, *rows = tokens + nodes;
        const uint32_t *pieces = rows + nodes;

        if (pieces[n] < tokens[n] || pieces[n] > rows[n])
            return false;
    }
    return kept <= r->tokens * (size_t)c->topk;
}

/* True if a record can be right. Columns are checked by the ranks that receive
 * them. */
static bool is_possible(const struct shunt_moe *moe, int rank)
{
    const struct shunt_moe_config *c = &moe->config;
    const struct record *r = record_of(moe, rank);

    return r->tokens <= c->max_tokens &&
           r->most <= r->tokens * (size_t)c->topk &&
           (!shunti_records_have_counts(moe) ||
            are_counts_possible(moe, r, shunti_records_padded(moe, rank)));
}

/* The number of parts as a text, or AUTO. */
static const char *name_parts(uint32_t parts, char text[12])
{
    if (!parts)
        return "AUTO";
    snprintf(text, 12, "%u", parts);
    return text;
}

static enum shunt_status compare(struct shunt_moe *moe,
                                 const struct record *mine)
{
    char theirs_are[12], ours_are[12];

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
        if (theirs->parts != mine->parts)
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: rank %d plans in %s parts, "
                               "this rank in %s",
                               r, name_parts(theirs->parts, theirs_are),
                               name_parts(mine->parts, ours_are));
        if (memcmp(&theirs->capacity, &mine->capacity, sizeof(double)))
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: rank %d has capacity_factor "
                               "%g, this rank %g",
                               r, theirs->capacity, mine->capacity);
        if (theirs->max_rows != mine->max_rows)
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: rank %d has max_rows %zu, "
                               "this rank %zu (0: any number)",
                               r, (size_t)theirs->max_rows,
                               (size_t)mine->max_rows);
        if (theirs->in_order != mine->in_order)
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: rank %d has in_order %d, this "
                               "rank %d",
                               r, (int)theirs->in_order, (int)mine->in_order);
    }
    moe->expert_most = 0;
    for (int r = 0; r < moe->nranks; r++)
        if (record_of(moe, r)->most > moe->expert_most)
            moe->expert_most = (size_t)record_of(moe, r)->most;
    for (int r = 0; r < moe->nranks; r++)
        if (!is_possible(moe, r))
            return shunti_fail(&moe->comm->error, SHUNT_ERR_MISMATCH,
                               "moe_plan_create: the counts of rank %d "
                               "contradict each other",
                               r);
    return SHUNT_OK;
}

enum shunt_status shunti_records_gather(struct shunt_moe *moe,
                                        enum shunt_status status,
                                        const char *why)
{
    struct record *mine;
    enum shunt_status st;

    if (!shunti_records_prepare(moe)) {
        shunti_comm_enter(moe->comm);
        st = shunti_request_refuse(
            moe->comm,
            SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U8, 0,
                             SHUNTI_PURPOSE_MOE_PLAN_CREATE),
            SHUNT_ERR_MEMORY, "moe_plan_create: no memory");
        shunti_comm_leave(moe->comm);
        return st;
    }
    mine = record_of(moe, moe->rank);
    mine->exchange = moe->serial;
    mine->placed = moe->placed;
    mine->plans = moe->plans_made;
    mine->capacity = moe->spare->capacity;
    mine->max_rows = moe->spare->waves.max_rows;
    mine->in_order = moe->spare->waves.in_order;
    mine->status = status;
    memset(mine->why, 0, sizeof(mine->why));
    if (status)
        snprintf(mine->why, sizeof(mine->why), "%s", why);
    else
        memcpy(mine->times, moe->degrees.times, sizeof(mine->times));
    st = shunti_allgather(moe->comm, SHUNTI_IN_PLAN_CREATE, SHUNT_IN_PLACE,
                          moe->records, moe->record_bytes, SHUNT_U8);
    if (status)
        return shunti_fail(&moe->comm->error, status, "moe_plan_create: %s",
                           why);
    if (!st)
        st = compare(moe, mine);
    if (!st)
        shunti_degrees_read_times(&moe->degrees, record_of(moe, 0)->times,
                                  moe->record_bytes, moe->nranks);
    return st;
}

size_t shunti_records_most_tokens(const struct shunt_moe *moe)
{
    size_t most = 0;

    for (int r = 0; r < moe->nranks; r++)
        if (shunti_records_tokens(moe, r) > most)
            most = shunti_records_tokens(moe, r);
    return most;
}

/* If only some ranks made a call for this exchange, or a call failed only on
 * some, the ranks have counted different numbers of plans. All ranks continue
 * from the highest number, so that later plans have the same number on all
 * ranks. */
uint64_t shunti_records_number(struct shunt_moe *moe)
{
    for (int r = 0; r < moe->nranks; r++)
        if (record_of(moe, r)->plans > moe->plans_made)
            moe->plans_made = record_of(moe, r)->plans;
    return ++moe->plans_made;
}

bool shunti_records_free(const struct shunt_moe *moe, int i)
{
    for (int r = 0; r < moe->nranks; r++)
        if (!(record_of(moe, r)->free[i / 64] >> i % 64 & 1))
            return false;
    return true;
}
