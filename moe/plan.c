// SPDX-License-Identifier: Apache-2.0
/*
 * A plan's life: one routing, its counts everywhere, and the place of every
 * row. records.h, columns.h and starts.h have what ranks tell each other,
 * layout.h where rows go, route.h how they travel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/columns.h"
#include "moe/grow.h"
#include "moe/landing.h"
#include "moe/life.h"
#include "moe/loads.h"
#include "moe/moe_call.h"
#include "moe/plan_window.h"
#include "moe/records.h"
#include "moe/route.h"
#include "moe/starts.h"
#include "src/comm.h"
#include "src/device.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/handle.h"
#include "src/track.h"

/* --- memory of a place --------------------------------------------------------- */

/* Everything that a plan of `tokens` tokens will need on this rank, before
 * any peer hears of it. */
static bool prepare(struct shunti_plan *plan, size_t tokens, int parts)
{
    struct shunt_moe *moe = plan->moe;
    size_t local = (size_t)shunti_placement_count(moe->placement, moe->rank);
    size_t nranks = (size_t)moe->nranks;
    size_t terms = tokens * (size_t)moe->config.topk;

    if (!shunti_records_prepare(moe) || !shunti_columns_prepare(moe) ||
        !shunti_starts_prepare(moe) || !shunti_loads_prepare(plan) ||
        !shunti_split_prepare(plan) || !shunti_parts_prepare(plan, parts) ||
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

/* --- layout and buffers ----------------------------------------------------------- */

static size_t rows_lent(const struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    size_t local = (size_t)shunti_placement_count(moe->placement, moe->rank);
    size_t rows = 0;

    for (size_t s = 0; s < (size_t)moe->nranks; s++)
        for (size_t i = 0; i < local && s != (size_t)moe->rank; i++)
            rows += plan->source_count[s * local + i];
    return rows;
}

/*
 * Buffers that are large enough on every rank, or new ones on all: the
 * decision follows from what every rank knows. A quarter more than is needed,
 * and at least what an even routing brings.
 */
static enum shunt_status fit_buffers(struct shunti_plan *plan,
                                     const size_t *total)
{
    struct shunt_moe *moe = plan->moe;
    size_t most = 0, even, rows, bytes;
    enum shunt_status st;

    for (int r = 0; r < moe->nranks; r++)
        most = total[r] > most ? total[r] : most;
    if (most <= plan->at.buffer_rows)
        return SHUNT_OK;
    shunti_landings_close(moe->comm, &plan->at);
    plan->at.buffer_rows = 0;
    plan->at.buffer_stride = 0; /* from which the next exchange knows them */
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
    st = shunti_plan_window(
        moe->comm, 2 * SHUNTI_BUFFERS * bytes + shunti_landing_room(moe->comm),
        "buffers for the rows of max_tokens", &plan->at.window);
    shunti_landings_free(moe->comm, &plan->at);
    if (st)
        return st;
    plan->at.buffer_rows = rows;
    plan->at.buffer_stride = bytes;
    return SHUNT_OK;
}

/* The routes of a plan, their modes and their traffic. */
static void choose_directions(struct shunti_plan *plan)
{
    const struct shunti_routes *routes = &plan->moe->routes;
    struct shunti_direction *there = &plan->direction[SHUNTI_TO_EXPERTS];
    struct shunti_direction *home = &plan->direction[SHUNTI_HOME];

    for (int d = 0; d < SHUNTI_TOWARDS; d++) {
        struct shunti_direction *direction = &plan->direction[d];

        if (direction->route != routes->of[d])
            shunti_direction_drop(direction);
        direction->plan = plan;
        direction->route = routes->of[d];
        direction->lists.here = false;
        direction->serves[SHUNTI_TO_EXPERTS] = d == SHUNTI_TO_EXPERTS;
        direction->serves[SHUNTI_HOME] = d == SHUNTI_HOME;
        direction->route->traffic(
            direction, shunti_mode_asked(plan->moe, (enum shunti_toward)d));
    }
    plan->network_rows_plain = shunti_records_sent(plan->moe).far;
    if (there->mode == home->mode) {
        there->serves[SHUNTI_HOME] = true;
        home->serves[SHUNTI_HOME] = false;
    }
}

/* Windows, lists and state, if there is something that it serves. */
static enum shunt_status prepare_direction(struct shunti_direction *direction)
{
    if (!shunti_direction_serves(direction))
        return SHUNT_OK;
    return direction->route->plan ? direction->route->plan(direction)
                                  : SHUNT_OK;
}

/* What this rank receives. */
static void lay_out_recv(struct shunti_plan *plan,
                         const struct shunti_layout_recv *recv)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_columns columns = {
        shunti_column_of(moe, 0)->count,
        shunti_column_words(
            (size_t)shunti_placement_count(moe->placement, moe->rank)),
        moe->config.pad_to_capacity ? plan->padded : NULL,
    };

    for (int s = 0; s < moe->nranks; s++) {
        plan->padded[s] = shunti_records_padded(moe, s);
        plan->source_tokens[s] = shunti_column_of(moe, s)->tokens;
    }
    plan->total = shunti_layout_recv(moe->placement, &columns,
                                     moe->config.row_align, moe->rank, recv);
    plan->rows_lent = rows_lent(plan);
}

/* From the records and columns: where everything goes. */
static enum shunt_status lay_out(struct shunti_plan *plan, const float *weight)
{
    struct shunt_moe *moe = plan->moe;
    const struct shunti_layout_recv recv = {plan->count, plan->offset,
                                            plan->source_count};
    enum shunt_status st;

    shunti_placement_drop(plan->placement);
    plan->placement = shunti_placement_hold(moe->placement);
    lay_out_recv(plan, &recv);
    shunti_loads_keep(plan);
    if (!plan->placement->shares)
        shunti_split_none(plan);
    choose_directions(plan);
    st = shunti_starts_find(plan, &recv);
    if (st)
        return st;
    shunti_layout_terms(&moe->order, moe->key, weight, plan->tokens,
                        moe->config.topk, moe->base,
                        moe->scratch + 2 * (size_t)moe->nranks, plan->terms,
                        plan->first);
    st = shunti_parts_cut(plan);
    if (!st)
        st = fit_buffers(plan, plan->rank_total);
    for (int d = 0; d < SHUNTI_TOWARDS && !st; d++)
        st = prepare_direction(&plan->direction[d]);
    return st;
}

/* The lowest place that is free everywhere gets the plan. */
static struct shunti_plan *take_place(struct shunt_moe *moe)
{
    for (int i = 0; i < moe->config.plans_in_flight; i++) {
        struct shunti_plan *plan = &moe->plans[i];

        if (shunti_records_free(moe, i)) {
            struct shunti_plan old = *plan;

            *plan = *moe->spare;
            plan->at = old.at;
            memset(&old.at, 0, sizeof(old.at));
            *moe->spare = old;
            return plan;
        }
    }
    return NULL;
}

static enum shunt_status check_call(const struct shunt_moe *moe,
                                    const int32_t *expert, const float *weight,
                                    size_t tokens, int parts, bool have_out,
                                    char *why, size_t len)
{
    if (parts < 0 || parts > SHUNT_MOE_PARTS_MAX) {
        snprintf(why, len, "parts is %d, and must be 1 to %d, or AUTO (0)",
                 parts, SHUNT_MOE_PARTS_MAX);
        return SHUNT_ERR_INVALID;
    }
    if (tokens > moe->config.max_tokens) {
        snprintf(why, len, "%zu tokens, and max_tokens is %zu", tokens,
                 moe->config.max_tokens);
        return SHUNT_ERR_INVALID;
    }
    if (tokens > UINT32_MAX / (size_t)moe->config.topk) {
        snprintf(why, len,
                 "%zu tokens of top-%d; a rank has at most %u assignments",
                 tokens, moe->config.topk, UINT32_MAX);
        return SHUNT_ERR_INVALID;
    }
    if (tokens && !expert) {
        snprintf(why, len, "topk_idx is NULL with %zu tokens", tokens);
        return SHUNT_ERR_INVALID;
    }
    shunti_device_look();
    if (tokens && (shunti_is_device(expert) || shunti_is_device(weight))) {
        snprintf(why, len,
                 "topk_idx or topk_weight is memory of a device: "
                 "copy it to the host first");
        return SHUNT_ERR_UNSUPPORTED;
    }
    if (!have_out) {
        snprintf(why, len, "plan is NULL");
        return SHUNT_ERR_INVALID;
    }
    return SHUNT_OK;
}

/* Our part of the records: get memory, read the routing. */
static enum shunt_status contribute(struct shunt_moe *moe,
                                    const int32_t *expert, const float *weight,
                                    size_t tokens, int parts, char *why,
                                    size_t len)
{
    moe->spare->parts.count = parts;
    if (!prepare(moe->spare, tokens,
                 parts ? parts : shunti_degree_parts(SHUNTI_DEGREES - 1))) {
        snprintf(why, len, "no memory for a plan of %zu tokens", tokens);
        return SHUNT_ERR_MEMORY;
    }
    return shunti_records_read(moe, expert, weight, tokens, why, len);
}

/* With shares: the counts of all ranks, and the routing by copies in the place of
 * that by experts. *st: of our own call, which the records tell. */
static enum shunt_status split(struct shunt_moe *moe, const int32_t **expert,
                               const float *weight, size_t tokens,
                               enum shunt_status *st, char *why, size_t len)
{
    enum shunt_status gathered;

    if (!*st)
        *st = shunti_split_count(moe, *expert, weight, tokens, why, len);
    gathered = shunti_split_gather(moe, *st);
    if (gathered || *st)
        return gathered;
    *expert = shunti_split_apply(moe, moe->spare, tokens);
    if (!*expert) {
        snprintf(why, len, "no memory for the ranges of %d copies",
                 moe->placement->experts);
        *st = SHUNT_ERR_MEMORY;
    }
    return SHUNT_OK;
}

/* All ranks' records are here. */
static void choose_parts(struct shunti_plan *plan)
{
    plan->degree = (struct shunti_degree_of){0};
    if (plan->parts.count == SHUNT_MOE_PARTS_AUTO)
        plan->parts.count = shunti_degree_choose(
            &plan->moe->degrees, shunti_records_most_tokens(plan->moe),
            &plan->degree);
}

static enum shunt_status make_plan(struct shunt_moe *moe,
                                   const int32_t *topk_idx,
                                   const float *topk_weight, size_t tokens,
                                   int parts, struct shunt_moe_plan **out)
{
    struct shunti_plan *plan;
    enum shunt_status st;
    uint64_t number;
    char why[128] = "";

    st = check_call(moe, topk_idx, topk_weight, tokens, parts, out != NULL, why,
                    sizeof(why));
    if (moe->placement->shares) {
        enum shunt_status gathered =
            split(moe, &topk_idx, topk_weight, tokens, &st, why, sizeof(why));

        if (gathered)
            return gathered;
    }
    if (!st)
        st = contribute(moe, topk_idx, topk_weight, tokens, parts, why,
                        sizeof(why));
    if (!st && moe->placement->shares)
        moe->spare->dropped = moe->split.dropped;
    st = shunti_records_gather(moe, st, why);
    if (!st)
        st = shunti_columns_gather(moe);
    if (st)
        return st;
    choose_parts(moe->spare);
    number = shunti_records_number(moe);
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

enum shunt_status shunt_moe_plan_create_parts(struct shunt_moe *handle,
                                              const int32_t *topk_idx,
                                              const float *topk_weight,
                                              size_t tokens, int parts,
                                              struct shunt_moe_plan **out)
{
    struct shunt_moe *moe;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);

    if (out)
        *out = NULL;
    moe = shunti_moe_of(handle, SHUNTI_PURPOSE_MOE_PLAN_CREATE, &st);
    if (!moe)
        return st;
    moe->comm->above.purpose = SHUNTI_PURPOSE_MOE_PLAN_CREATE;
    st = make_plan(moe, topk_idx, topk_weight, tokens, parts, out);
    moe->comm->above.purpose = SHUNTI_PURPOSE_ITSELF;
    return st;
}

enum shunt_status shunt_moe_plan_create(struct shunt_moe *moe,
                                        const int32_t *topk_idx,
                                        const float *topk_weight, size_t tokens,
                                        struct shunt_moe_plan **plan)
{
    return shunt_moe_plan_create_parts(moe, topk_idx, topk_weight, tokens, 1,
                                       plan);
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
