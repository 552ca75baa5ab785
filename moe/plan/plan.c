// SPDX-License-Identifier: Apache-2.0
/*
 * How a plan is made and destroyed. Ranks exchange the counts of one routing,
 * and every row gets a slot. records.h, received_counts.h and remote_offsets.h
 * have the data that ranks exchange. layout.h finds where rows go, and route.h
 * how they travel.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/moe_waves.h>

#include "collectives/allgather.h"
#include "moe/layout/growing_array.h"
#include "moe/plan/device_window.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/loads.h"
#include "moe/plan/moe_call.h"
#include "moe/plan/page_bytes.h"
#include "moe/plan/pages.h"
#include "moe/plan/plan_window.h"
#include "moe/plan/received_counts.h"
#include "moe/plan/records.h"
#include "moe/plan/remote_offsets.h"
#include "moe/route.h"
#include "src/base/error.h"
#include "src/base/handle.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/device.h"
#include "src/progress/turns.h"
#include "src/trace/track.h"

/* --- memory of a place --------------------------------------------------------- */

/* Get all memory that a plan of `tokens` tokens will need on this rank, before
 * any peer knows of the plan. */
static bool prepare(struct shunti_plan *plan, size_t tokens, int parts)
{
    struct shunt_moe *moe = plan->moe;
    size_t local = (size_t)shunti_placement_count(moe->placement, moe->rank);
    size_t nranks = (size_t)moe->nranks;
    size_t terms = tokens * (size_t)moe->config.topk;

    if (!shunti_records_prepare(moe) || !shunti_received_counts_prepare(moe) ||
        !shunti_remote_offsets_prepare(moe) || !shunti_loads_prepare(plan) ||
        !shunti_split_prepare(plan) || !shunti_parts_prepare(plan, parts) ||
        !shunti_waves_prepare(plan) ||
        !shunti_received_rows_init(&plan->received, nranks, local) ||
        !shunti_grow(&moe->key, &moe->key_max,
                     shunti_sort_room(
                         tokens, shunti_sort_stride((size_t)moe->config.topk)),
                     sizeof(*moe->key)) ||
        !shunti_grow(&plan->terms, &plan->terms_max, terms,
                     sizeof(*plan->terms)) ||
        !shunti_grow(&plan->first, &plan->first_max, tokens + 1,
                     sizeof(size_t)))
        return false;
    if (!plan->padded)
        plan->padded = calloc(nranks, sizeof(size_t));
    if (!plan->idle)
        plan->idle = calloc(nranks, sizeof(*plan->idle));
    if (!plan->rank_total)
        plan->rank_total = calloc(nranks, sizeof(size_t));
    if (!plan->rank_rows)
        plan->rank_rows = calloc(nranks, sizeof(size_t));
    return plan->padded && plan->idle && plan->rank_total && plan->rank_rows;
}

/* --- layout and buffers ----------------------------------------------------------- */

/*
 * Make the buffers large enough. Either all ranks get new buffers or none does,
 * because the decision depends only on numbers that every rank knows. New
 * buffers have room for a quarter more than is needed, and at least for an even
 * routing.
 */
static enum shunt_status fit_buffers(struct shunti_plan *plan,
                                     const size_t *total)
{
    struct shunt_moe *moe = plan->moe;
    struct shunti_place *place = plan->place;
    size_t most = 0, even, rows, bytes, stride;
    enum shunt_status st;

    for (int r = 0; r < moe->nranks; r++)
        most = total[r] > most ? total[r] : most;
    if (most <= place->buffer_rows)
        return SHUNT_OK;
    shunti_device_windows_close(moe->comm, place);
    shunti_pages_forget(place);
    place->buffer_rows = 0;
    place->buffer_bytes = 0; /* so that the next exchange knows that there is no
                                buffer */
    place->buffer_stride = 0;
    even = moe->config.max_tokens * (size_t)moe->config.topk;
    rows = most > even ? most : even;
    rows = rows + rows / 4 + 1;
    /* No wave has more rows than max_rows. */
    if (plan->waves.max_rows && plan->waves.max_rows < rows)
        rows = plan->waves.max_rows;
    if (__builtin_mul_overflow(rows, moe->row_bytes, &bytes) ||
        bytes > SIZE_MAX / 16)
        return shunti_fail(&moe->comm->error, SHUNT_ERR_MEMORY,
                           "moe_plan_create: %zu rows do not fit in memory",
                           rows);
    /* Buffers share no page. */
    stride = shunti_in_pages(bytes);
    st = shunti_plan_window(
        moe->comm,
        2 * SHUNTI_BUFFERS * stride + shunti_device_window_room(moe->comm),
        "buffers for the rows of max_tokens", &place->window);
    shunti_device_windows_free(moe->comm, place);
    if (st)
        return st;
    place->buffer_rows = rows;
    place->buffer_bytes = bytes;
    place->buffer_stride = stride;
    return SHUNT_OK;
}

/* Set the routes of a plan, their modes and their traffic. */
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
        direction->pieces = d == SHUNTI_HOME && routes->pieces;
        direction->lists.here = false;
        direction->serves[SHUNTI_TO_EXPERTS] = d == SHUNTI_TO_EXPERTS;
        direction->serves[SHUNTI_HOME] = d == SHUNTI_HOME;
        direction->route->traffic(
            direction, shunti_mode_asked(plan->moe, (enum shunti_toward)d));
    }
    plan->network_rows_plain = shunti_records_sent(plan->moe).far;
    if (there->mode == home->mode && !home->pieces) {
        there->serves[SHUNTI_HOME] = true;
        home->serves[SHUNTI_HOME] = false;
    }
}

/* Make windows, lists and state of a direction, if it serves any call. */
static enum shunt_status prepare_direction(struct shunti_direction *direction)
{
    if (!shunti_direction_serves(direction))
        return SHUNT_OK;
    return direction->route->plan ? direction->route->plan(direction)
                                  : SHUNT_OK;
}

/* Lay out what this rank receives. */
static void lay_out_recv(struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_received_counts columns = {
        shunti_column_of(moe, 0)->count,
        shunti_column_words(plan->received.local),
        moe->config.pad_to_capacity ? plan->padded : NULL,
    };

    for (int s = 0; s < moe->nranks; s++) {
        plan->padded[s] = shunti_records_padded(moe, s);
        plan->idle[s] = !shunti_records_tokens(moe, s);
        plan->received.source_tokens[s] = shunti_column_of(moe, s)->tokens;
    }
    shunti_layout_recv(moe->placement, &columns, moe->config.row_align,
                       moe->rank, &plan->received);
}

/* Find which rows go where, from the records and columns. */
static enum shunt_status lay_out(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;

    shunti_placement_drop(plan->placement);
    plan->placement = shunti_placement_hold(moe->placement);
    lay_out_recv(plan);
    shunti_loads_keep(plan);
    if (!plan->placement->shares)
        shunti_split_none(plan);
    choose_directions(plan);
    return shunti_remote_offsets_find(plan);
}

/* Make all that calls of the plan need: terms, parts, buffers, windows and
 * lists. */
static enum shunt_status prepare_calls(struct shunti_plan *plan,
                                       const float *weight)
{
    struct shunt_moe *moe = plan->moe;
    enum shunt_status st;

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

/* Put the plan that is being made into `place`. The next plan is made in the
 * memory of the plan that was in `place` before. */
static struct shunti_plan *take_over(struct shunt_moe *moe,
                                     struct shunti_place *place)
{
    struct shunti_plan *plan = moe->spare;

    moe->spare = place->plan;
    place->plan = plan;
    plan->place = place;
    plan->entry = place->entry;
    for (int d = 0; d < SHUNTI_TOWARDS; d++)
        place->rail[d].signals_used = place->rail[d].used = 0;
    return plan;
}

/* Put the plan that is being made into the lowest place that is free on every
 * rank. NULL: no place is free. */
static struct shunti_plan *take_place(struct shunt_moe *moe)
{
    for (int i = 0; i < moe->config.plans_in_flight; i++)
        if (shunti_records_free(moe, i))
            return take_over(moe, &moe->places[i]);
    return NULL;
}

/* The arguments of a call, or of one wave of its plan. */
struct asked {
    const int32_t *expert;
    const float *weight;
    size_t tokens;
    struct shunt_moe_plan_options options;
    struct shunti_wave wave; /* zeroed: the plan is no wave */
};

/* Check all arguments of a call except for its routing. */
static enum shunt_status check(const struct shunt_moe *moe,
                               const struct asked *asked, char *why, size_t len)
{
    const struct shunt_moe_plan_options *o = &asked->options;

    if (o->parts < 0 || o->parts > SHUNT_MOE_PARTS_MAX) {
        snprintf(why, len, "parts is %zd, and must be 1 to %d, or AUTO (0)",
                 (ssize_t)o->parts, SHUNT_MOE_PARTS_MAX);
        return SHUNT_ERR_INVALID;
    }
    if (o->max_rows && o->in_order && moe->config.pad_to_capacity) {
        snprintf(why, len,
                 "in_order is not for pad_to_capacity, whose rows are no "
                 "ranges: leave out one of them");
        return SHUNT_ERR_UNSUPPORTED;
    }
    if (o->max_rows && o->in_order && moe->placement->shares) {
        snprintf(why, len,
                 "in_order is not for copies with shares: each wave shares out "
                 "its own rows");
        return SHUNT_ERR_UNSUPPORTED;
    }
    if (o->capacity_factor && !isfinite(*o->capacity_factor)) {
        snprintf(why, len, "capacity_factor is %g; it must be a number",
                 *o->capacity_factor);
        return SHUNT_ERR_INVALID;
    }
    if (o->max_rows && o->max_rows < shunti_waves_least(moe)) {
        snprintf(why, len,
                 "max_rows is %zu; it must be at least %zu, so that a token of "
                 "each rank fits",
                 o->max_rows, shunti_waves_least(moe));
        return SHUNT_ERR_INVALID;
    }
    if (asked->tokens > moe->config.max_tokens) {
        snprintf(why, len, "%zu tokens, and max_tokens is %zu", asked->tokens,
                 moe->config.max_tokens);
        return SHUNT_ERR_INVALID;
    }
    if (asked->tokens > UINT32_MAX / (size_t)moe->config.topk) {
        snprintf(why, len,
                 "%zu tokens of top-%d; a rank has at most %u assignments",
                 asked->tokens, moe->config.topk, UINT32_MAX);
        return SHUNT_ERR_INVALID;
    }
    if (asked->tokens && !asked->expert) {
        snprintf(why, len, "topk_idx is NULL with %zu tokens", asked->tokens);
        return SHUNT_ERR_INVALID;
    }
    shunti_device_look();
    if (asked->tokens &&
        (shunti_is_device(asked->expert) || shunti_is_device(asked->weight))) {
        snprintf(why, len,
                 "topk_idx or topk_weight is memory of a device: "
                 "copy it to the host first");
        return SHUNT_ERR_UNSUPPORTED;
    }
    return SHUNT_OK;
}

/* The capacity factor of a call. */
static double factor_of(const struct shunt_moe *moe, const struct asked *asked)
{
    return asked->options.capacity_factor ? *asked->options.capacity_factor
                                          : moe->config.capacity_factor;
}

enum { WIDE_IDS = 16 }; /* the fewest pairs for which the hint is logged */

/* Log a hint if the caller's ids seem to have 64 bits, and came through an
 * untyped pointer. Read as 32 bits, they look like id, 0, id, 0, which are all
 * valid ids. A routing may really be like that, so it is no error. */
SHUNTI_NOINLINE static void look_for_wide_ids(const struct asked *asked,
                                              int topk)
{
    const size_t n = asked->tokens * (size_t)topk / 2;
    bool other = false;

    for (size_t i = 0; i < n; i++) {
        const int32_t id = asked->expert[2 * i];

        if (asked->expert[2 * i + 1] != (id < 0 ? -1 : 0))
            return;
        other = other || id > 0;
    }
    if (other && n >= WIDE_IDS)
        shunti_info("moe",
                    "every second id of topk_idx is 0: if its elements have 64 "
                    "bits, copy them to int32_t first");
}

/* Do this rank's part of plan_create(): get memory, and read the routing. */
static enum shunt_status contribute(struct shunt_moe *moe,
                                    const struct asked *asked, char *why,
                                    size_t len)
{
    struct shunti_plan *plan = moe->spare;
    const int parts = (int)asked->options.parts;

    plan->parts.count = parts;
    plan->waves.max_rows = asked->options.max_rows;
    plan->waves.in_order = asked->options.in_order != 0;
    plan->capacity = factor_of(moe, asked);
    plan->wave = asked->wave;
    if (!prepare(plan, asked->tokens,
                 parts ? parts : shunti_degree_parts(SHUNTI_DEGREES - 1))) {
        snprintf(why, len, "no memory for a plan of %zu tokens", asked->tokens);
        return SHUNT_ERR_MEMORY;
    }
    if (shunti_log_wanted(SHUNTI_LOG_INFO, "moe"))
        look_for_wide_ids(asked, moe->config.topk);
    return shunti_records_read(moe, asked->expert, asked->weight, asked->tokens,
                               why, len);
}

/* Gather the records and columns of all ranks, and agree on the number of the
 * plan. status, why: the error of this rank's call so far. */
static enum shunt_status gather(struct shunt_moe *moe,
                                const struct asked *asked,
                                enum shunt_status status, char *why, size_t len,
                                uint64_t *number)
{
    if (!status)
        status = contribute(moe, asked, why, len);
    status = shunti_records_gather(moe, status, why);
    if (!status)
        status = shunti_received_counts_gather(moe);
    if (!status)
        *number = shunti_records_number(moe);
    return status;
}

/* With shares: gather the counts of all ranks, and replace the routing by
 * experts with one by copies. *st: status of this rank's call, which the
 * records send to the other ranks. */
static enum shunt_status split(struct shunt_moe *moe, struct asked *asked,
                               enum shunt_status *st, char *why, size_t len)
{
    enum shunt_status gathered;

    if (!moe->placement->shares)
        return SHUNT_OK;
    if (!*st)
        *st =
            shunti_split_count(moe, asked->expert, asked->weight, asked->tokens,
                               factor_of(moe, asked), why, len);
    gathered = shunti_split_gather(moe, *st);
    if (gathered || *st)
        return gathered;
    asked->expert = shunti_split_apply(moe, moe->spare, asked->tokens);
    if (!asked->expert) {
        snprintf(why, len, "no memory for the ranges of %d copies",
                 moe->placement->experts);
        *st = SHUNT_ERR_MEMORY;
    }
    return SHUNT_OK;
}

/* Choose the number of parts, once all ranks' records have arrived. */
static void choose_parts(struct shunti_plan *plan)
{
    plan->degree = (struct shunti_degree_of){0};
    if (plan->parts.count == SHUNT_MOE_PARTS_AUTO)
        plan->parts.count = shunti_degree_choose(
            &plan->moe->degrees, shunti_records_most_tokens(plan->moe),
            &plan->degree);
}

/* Make the next wave from the first tokens of *asked, which are in no wave yet.
 * Afterwards *asked has the rest of the tokens. */
static enum shunt_status make_wave(struct shunti_plan *whole,
                                   struct asked *asked)
{
    struct shunt_moe *moe = whole->moe;
    const size_t k = (size_t)moe->config.topk;
    const double all = 0; /* assignments over the capacity were dropped
                             before */
    struct asked one = *asked;
    struct shunti_plan *const spare = moe->spare;
    struct shunti_plan *wave;
    uint64_t number = 0;
    enum shunt_status st = SHUNT_OK, gathered;
    char why[128] = "";

    one.tokens = shunti_waves_take(whole, asked->expert, asked->tokens);
    one.wave.number = whole->waves.count;
    one.wave.left = asked->tokens - one.tokens;
    one.options.capacity_factor = &all;
    one.options.parts = whole->parts.count;
    wave = shunti_waves_next(whole);
    if (!wave) {
        snprintf(why, sizeof(why), "no memory for wave %d of a plan",
                 whole->waves.count);
        st = SHUNT_ERR_MEMORY;
    }
    /* A wave is made in its final memory, because it is not put into a
     * place. */
    moe->spare = wave ? wave : spare;
    gathered = split(moe, &one, &st, why, sizeof(why));
    if (!gathered)
        gathered = gather(moe, &one, st, why, sizeof(why), &number);
    moe->spare = spare;
    if (gathered)
        return gathered;
    wave->place = whole->place;
    wave->serial = number;
    wave->degree = (struct shunti_degree_of){0};
    st = lay_out(wave);
    if (!st)
        st = prepare_calls(wave, one.weight);
    if (st)
        return st;
    shunti_waves_add(whole, wave);
    asked->expert += one.tokens * k;
    asked->weight += asked->weight ? one.tokens * k : 0;
    asked->tokens -= one.tokens;
    asked->wave.first_token += one.tokens;
    return SHUNT_OK;
}

/* In order: find how many rows each source has for each rank. */
static enum shunt_status find_left(struct shunti_plan *whole)
{
    const struct shunt_moe *moe = whole->moe;
    const bool all = shunti_records_have_counts(moe);

    for (int s = 0; s < moe->nranks; s++)
        if (all || s == moe->rank)
            shunti_waves_source(whole, s, shunti_record(moe, s).expert);
    return all ? SHUNT_OK
               : shunti_allgather(moe->comm, SHUNTI_IN_PLAN_CREATE,
                                  SHUNT_IN_PLACE, whole->waves.left,
                                  (size_t)moe->nranks, SHUNT_U32);
}

/* Make the waves of a plan. The records are those of the whole plan. */
static enum shunt_status make_waves(struct shunti_plan *whole,
                                    const struct asked *asked)
{
    struct asked rest = *asked;
    enum shunt_status st;

    rest.wave.whole = whole;
    if (whole->dropped)
        rest.expert = whole->moe->expert; /* without the dropped assignments */
    if (whole->waves.in_order) {
        st = find_left(whole);
        if (st)
            return st;
    }
    shunti_waves_begin(whole,
                       shunti_record(whole->moe, whole->moe->rank).expert);
    do
        st = make_wave(whole, &rest);
    while (!st && shunti_records_left(whole->moe));
    if (!st && whole->placement->shares)
        shunti_waves_end(whole);
    return st;
}

static void issue_handles(struct shunti_plan *plan)
{
    for (int w = 0; w < plan->waves.count; w++) {
        struct shunti_plan *wave = shunti_wave_of(plan, w);

        wave->handle = shunti_handle_issue(wave->entry, wave);
    }
    if (!plan->handle)
        plan->handle = shunti_handle_issue(plan->entry, plan);
}

/* Make a plan. status, why: what is wrong with the call so far. */
static enum shunt_status make_plan(struct shunt_moe *moe,
                                   const struct asked *asked,
                                   enum shunt_status status, char *why,
                                   size_t len, struct shunt_moe_plan **out)
{
    struct asked mine = *asked;
    struct shunti_plan *plan;
    enum shunt_status st;
    uint64_t number = 0;

    if (!status)
        status = check(moe, asked, why, len);
    if (!status && !out) {
        snprintf(why, len, "plan is NULL");
        status = SHUNT_ERR_INVALID;
    }
    st = split(moe, &mine, &status, why, len);
    if (!st)
        st = gather(moe, &mine, status, why, len, &number);
    if (st)
        return st;
    if (moe->placement->shares)
        moe->spare->dropped = moe->split.dropped;
    choose_parts(moe->spare);
    plan = take_place(moe);
    if (!plan)
        return shunti_fail(&moe->comm->error, SHUNT_ERR_BUSY,
                           "moe_plan_create: %d plans are in flight "
                           "(plans_in_flight), counting those that some rank "
                           "has not destroyed yet",
                           moe->config.plans_in_flight);
    st = lay_out(plan);
    if (!st)
        st = shunti_waves_needed(plan) ? make_waves(plan, asked)
                                       : prepare_calls(plan, asked->weight);
    if (st)
        return st;
    plan->serial = number;
    shunti_pages_fit(plan);
    issue_handles(plan);
    *out = (struct shunt_moe_plan *)(uintptr_t)plan->handle;
    return SHUNT_OK;
}

/* Read the fields that the caller's struct has, and set the others to their
 * defaults. */
static enum shunt_status read_options(struct shunt_moe_plan_options *o,
                                      const struct shunt_moe_plan_options *from,
                                      char *why, size_t len)
{
    static const struct shunt_moe_plan_options init =
        SHUNT_MOE_PLAN_OPTIONS_INIT;

    *o = init;
    if (!from)
        return SHUNT_OK;
    if (from->size < sizeof(from->size)) {
        snprintf(why, len,
                 "options->size is %zu: fill it with "
                 "SHUNT_MOE_PLAN_OPTIONS_INIT",
                 from->size);
        return SHUNT_ERR_INVALID;
    }
    for (size_t i = sizeof(*o); i < from->size; i++)
        if (((const unsigned char *)from)[i]) {
            snprintf(why, len,
                     "options have a field (at byte %zu) that this version "
                     "does not know: update the library",
                     i);
            return SHUNT_ERR_INVALID;
        }
    memcpy(o, from, from->size < sizeof(*o) ? from->size : sizeof(*o));
    return SHUNT_OK;
}

enum shunt_status
shunt_moe_plan_create_with(struct shunt_moe *handle, const int32_t *topk_idx,
                           const float *topk_weight, size_t tokens,
                           const struct shunt_moe_plan_options *options,
                           struct shunt_moe_plan **out)
{
    struct asked asked = {
        .expert = topk_idx, .weight = topk_weight, .tokens = tokens};
    struct shunt_moe *moe;
    enum shunt_status st;
    char why[128] = "";
    SHUNTI_TRACK(LIBRARY);

    if (out)
        *out = NULL;
    moe = shunti_moe_of(handle, SHUNTI_PURPOSE_MOE_PLAN_CREATE, &st);
    if (!moe)
        return st;
    st = read_options(&asked.options, options, why, sizeof(why));
    return make_plan(moe, &asked, st, why, sizeof(why), out);
}

enum shunt_status shunt_moe_plan_create_parts(struct shunt_moe *moe,
                                              const int32_t *topk_idx,
                                              const float *topk_weight,
                                              size_t tokens, int parts,
                                              struct shunt_moe_plan **plan)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;

    options.parts = parts;
    return shunt_moe_plan_create_with(moe, topk_idx, topk_weight, tokens,
                                      &options, plan);
}

enum shunt_status shunt_moe_plan_create(struct shunt_moe *moe,
                                        const int32_t *topk_idx,
                                        const float *topk_weight, size_t tokens,
                                        struct shunt_moe_plan **plan)
{
    return shunt_moe_plan_create_with(moe, topk_idx, topk_weight, tokens, NULL,
                                      plan);
}

void shunti_plan_release(struct shunti_plan *plan)
{
    for (int w = 0; w < plan->waves.count && plan->handle; w++) {
        struct shunti_plan *wave = shunti_wave_of(plan, w);

        shunti_moe_call_plan_ends(wave);
        shunti_handle_revoke(wave->entry);
        if (wave != plan)
            wave->handle = NULL;
    }
    shunti_handle_revoke(plan->entry);
    plan->handle = NULL;
}

void shunt_moe_plan_destroy(struct shunt_moe_plan *handle)
{
    struct shunti_plan *plan = shunti_plan_of(handle);

    if (!plan)
        return;
    shunti_comm_enter(plan->moe->comm);
    if (!plan->wave.whole)
        shunti_plan_release(plan);
    shunti_comm_leave(plan->moe->comm);
}
