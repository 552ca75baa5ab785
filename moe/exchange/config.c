// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges: their configuration, and the check that all ranks have the same
 * one.
 *
 * Every rank joins one all-gather of its arguments, even if these are wrong. So
 * each rank learns at once what is wrong on any rank.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/moe_waves.h>

#include "collectives/argument_check.h"
#include "moe/layout/shares.h"
#include "moe/plan.h"
#include "moe/plan/exchanges.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/moe_call.h"
#include "moe/route.h"
#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/fnv.h"
#include "src/base/handle.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/kernels/rows.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"
#include "src/trace/track.h"
#include "src/wire/nodes.h"

/* Limits that keep every index in its type. */
#define EXPERTS_MAX SHUNTI_EXPERTS_MAX
#define TOPK_MAX SHUNTI_TOPK_MAX
#define PLANS_MAX SHUNTI_PLANS_MAX

#define LEAF_ROWS 64

/* --- what is compared --------------------------------------------------------- */

enum {
    FIELD_EXCHANGE, /* set only in set_placement */
    FIELD_HIDDEN,
    FIELD_DTYPE,
    FIELD_EXPERTS,
    FIELD_TOPK,
    FIELD_MAX_TOKENS,
    FIELD_WEIGHTS,
    FIELD_WIRE,
    FIELD_PLACEMENT,
    FIELD_REPLICAS,
    FIELD_ROW_ALIGN,
    FIELD_PLANS,
    FIELD_CAPACITY,
    FIELD_DROP,
    FIELD_PAD,
    FIELD_TREE,
    FIELD_MODE,
    FIELD_PARTIALS,
    FIELD_TREE_NODES,
    FIELD_COMBINE_MODE,
    FIELD_ORDER,
    FIELD_SHARE,
    FIELD_LEAF_ROWS,
    FIELDS,
};

static const char *const field_names[FIELDS] = {
    "exchange",        "hidden",       "dtype",
    "experts",         "topk",         "max_tokens",
    "weights",         "wire",         "placement (hash)",
    "replicas (hash)", "row_align",    "plans_in_flight",
    "capacity_factor", "drop",         "pad_to_capacity",
    "tree_ranks",      "mode",         "partials",
    "tree_nodes",      "combine_mode", "order",
    "share (hash)",    "leaf_rows",
};

struct terms {
    struct shunti_argument_check check;
    uint64_t field[FIELDS];
    /* Slots that are free on this rank; after agree(): slots that are free on
     * every rank. */
    uint64_t free[SHUNTI_EXCHANGES_WORDS];
    /* After agree(): the number of the last operation of agree(). The number is
     * the same on all ranks, and different for each call. */
    uint64_t number;
};

static void describe(struct terms *terms, const struct shunt_moe_config *c,
                     const struct shunti_places *places)
{
    const size_t copies = (size_t)c->experts + places->nreplicas;
    uint64_t *f = terms->field;
    uint64_t h;

    f[FIELD_HIDDEN] = c->hidden;
    f[FIELD_DTYPE] = c->dtype;
    f[FIELD_EXPERTS] = (uint64_t)c->experts;
    f[FIELD_TOPK] = (uint64_t)c->topk;
    f[FIELD_MAX_TOKENS] = c->max_tokens;
    f[FIELD_WEIGHTS] = c->weights;
    f[FIELD_WIRE] = c->wire;
    f[FIELD_ROW_ALIGN] = c->row_align;
    f[FIELD_PLANS] = (uint64_t)c->plans_in_flight;
    memcpy(&f[FIELD_CAPACITY], &c->capacity_factor, 8);
    f[FIELD_DROP] = c->drop;
    f[FIELD_PAD] = c->pad_to_capacity != 0;
    f[FIELD_TREE] = (uint64_t)c->tree_ranks;
    f[FIELD_MODE] = c->mode;
    f[FIELD_PARTIALS] = c->partials;
    f[FIELD_TREE_NODES] = (uint64_t)c->tree_nodes;
    f[FIELD_COMBINE_MODE] = c->combine_mode;
    f[FIELD_ORDER] = c->order;
    h = SHUNTI_FNV;
    f[FIELD_PLACEMENT] =
        places->home ? shunti_fnv(h, places->home, (size_t)c->experts * 4) : 0;
    f[FIELD_LEAF_ROWS] = c->leaf_rows;
    f[FIELD_SHARE] =
        places->share ? shunti_fnv(h, places->share, copies * sizeof(int64_t))
                      : 0;
    f[FIELD_REPLICAS] = places->nreplicas;
    for (size_t i = 0; i < places->nreplicas; i++) {
        int32_t pair[2] = {places->replicas[i].expert,
                           places->replicas[i].rank};

        h = shunti_fnv(h, pair, sizeof(pair));
        f[FIELD_REPLICAS] = h;
    }
}

static void print_field(char *text, size_t len, int field, uint64_t value)
{
    double number;

    if (field == FIELD_CAPACITY) {
        memcpy(&number, &value, 8);
        snprintf(text, len, "%g", number);
    } else if (field == FIELD_DTYPE) {
        snprintf(text, len, "%s", shunti_dtype_name((enum shunt_dtype)value));
    } else if (field == FIELD_PLACEMENT || field == FIELD_REPLICAS ||
               field == FIELD_SHARE) {
        snprintf(text, len, value ? "%llx" : "none", (unsigned long long)value);
    } else {
        snprintf(text, len, "%llu", (unsigned long long)value);
    }
}

/* Gather the terms of all ranks, compare them, and report what differs on which
 * rank. */
static enum shunt_status agree(struct shunt_comm *comm,
                               enum shunti_purpose purpose, struct terms *mine)
{
    const char *call = shunti_purpose_name(purpose);
    int nranks = shunt_comm_size(comm);
    void *gathered;
    enum shunt_status st = shunti_argument_checks_gather(
        comm, &(struct shunti_options){.purpose = purpose}, mine, sizeof(*mine),
        &gathered);
    struct terms *all = gathered;

    if (!all)
        return st;
    for (int r = 0; r < nranks && !st; r++)
        for (int f = 0; f < FIELDS && !st; f++) {
            char theirs[32], ours[32];

            if (all[r].field[f] == mine->field[f])
                continue;
            print_field(theirs, sizeof(theirs), f, all[r].field[f]);
            print_field(ours, sizeof(ours), f, mine->field[f]);
            st = shunti_fail(&comm->error, SHUNT_ERR_MISMATCH,
                             "%s: rank %d has %s %s, this rank %s", call, r,
                             field_names[f], theirs, ours);
        }
    for (int r = 0; r < nranks; r++)
        for (int w = 0; w < SHUNTI_EXCHANGES_WORDS; w++)
            mine->free[w] &= all[r].free[w];
    free(all);
    shunti_comm_enter(comm);
    mine->number = comm->operations.next_seq - 1;
    shunti_comm_leave(comm);
    return st;
}

/* --- checks ------------------------------------------------------------------- */

static enum shunt_status check_memory(size_t tokens, size_t topk, size_t bytes)
{
    size_t all;

    return __builtin_mul_overflow(tokens, topk, &all) ||
                   __builtin_mul_overflow(all, bytes, &all) ||
                   all > SIZE_MAX / 16
               ? SHUNT_ERR_INVALID
               : SHUNT_OK;
}

/* Make *order and *copy_rows, which plans on a placement need. */
static enum shunt_status prepare_placement(const struct shunt_moe *moe,
                                           const struct shunti_placement *p,
                                           struct shunti_order *order,
                                           size_t **copy_rows, char *why,
                                           size_t len)
{
    const struct shunti_tree tree = {
        moe->config.tree_ranks, moe->node, moe->config.tree_nodes,
        moe->config.order == SHUNT_MOE_ORDER_HOMES};

    *copy_rows =
        calloc(p->first[p->ranks] + (size_t)p->experts, sizeof(**copy_rows));
    if (*copy_rows && shunti_order_init(order, p, &tree, moe->rank))
        return SHUNT_OK;
    snprintf(why, len, "no memory for the order of %d experts", p->experts);
    return SHUNT_ERR_MEMORY;
}

/* Fill in modes that are AUTO. A mode in the configuration takes precedence
 * over the environment. `mode` also applies to combine, if combine_mode is
 * AUTO. */
static void fill_in_modes(struct shunt_moe_config *c)
{
    enum shunt_moe_mode environment[SHUNTI_TOWARDS];

    shunti_route_of_environment(environment);
    if (c->combine_mode == SHUNT_MOE_AUTO)
        c->combine_mode =
            c->mode != SHUNT_MOE_AUTO ? c->mode : environment[SHUNTI_HOME];
    if (c->mode == SHUNT_MOE_AUTO)
        c->mode = environment[SHUNTI_TO_EXPERTS];
}

/* Check each field by itself, and fill in the defaults. */
static enum shunt_status check(struct shunt_moe_config *c, int nranks,
                               char *why, size_t len)
{
#define REFUSE(...)                      \
    do {                                 \
        snprintf(why, len, __VA_ARGS__); \
        return SHUNT_ERR_INVALID;        \
    } while (0)
    if (c->dtype != SHUNT_F32 && c->dtype != SHUNT_BF16)
        REFUSE("dtype is %s; rows are f32 or bf16",
               shunti_dtype_name(c->dtype));
    if (c->hidden < 1 || c->hidden > SIZE_MAX / 64)
        REFUSE("hidden is %zu; it must be 1 to %zu", c->hidden, SIZE_MAX / 64);
    if (c->experts < 1 || c->experts > EXPERTS_MAX)
        REFUSE("experts is %d; it must be 1 to %d", c->experts, EXPERTS_MAX);
    if (c->topk < 1 || c->topk > TOPK_MAX)
        REFUSE("topk is %d; it must be 1 to %d", c->topk, TOPK_MAX);
    if (c->experts == EXPERTS_MAX && c->topk == TOPK_MAX)
        REFUSE("experts is %d and topk %d: one of them must be less",
               c->experts, c->topk);
    if (check_memory(c->max_tokens, (size_t)c->topk,
                     c->hidden * shunt_dtype_size(c->dtype)))
        REFUSE("max_tokens is %zu: their rows do not fit in memory",
               c->max_tokens);
    if (c->weights != SHUNT_MOE_APPLY_WEIGHTS &&
        c->weights != SHUNT_MOE_PLAIN_SUM)
        REFUSE("weights is %d; say SHUNT_MOE_APPLY_WEIGHTS or "
               "SHUNT_MOE_PLAIN_SUM",
               (int)c->weights);
    if (c->wire != SHUNT_MOE_WIRE_PAYLOAD && c->wire != SHUNT_MOE_WIRE_FP8)
        REFUSE("wire is %d, no enum shunt_moe_wire", (int)c->wire);
    if (c->drop != SHUNT_MOE_DROP_POSITION && c->drop != SHUNT_MOE_DROP_WEIGHT)
        REFUSE("drop is %d, no enum shunt_moe_drop", (int)c->drop);
    if (!isfinite(c->capacity_factor))
        REFUSE("capacity_factor is %g; it must be a number (0: nothing is "
               "dropped)",
               c->capacity_factor);
    if (c->row_align > UINT32_MAX)
        REFUSE("row_align is %zu; it must be less than 2^32", c->row_align);
    if (c->plans_in_flight != 0 &&
        (c->plans_in_flight < 2 || c->plans_in_flight > PLANS_MAX))
        REFUSE("plans_in_flight is %d; it must be 2 to %d", c->plans_in_flight,
               PLANS_MAX);
    if (c->tree_ranks < 0 || c->tree_ranks % nranks ||
        c->tree_ranks > EXPERTS_MAX)
        REFUSE("tree_ranks is %d; it must be a multiple of the %d ranks, and "
               "at most %d",
               c->tree_ranks, nranks, EXPERTS_MAX);
    if (c->tree_nodes < 0 ||
        (c->tree_nodes && (!c->tree_ranks || c->tree_ranks % c->tree_nodes)))
        REFUSE("tree_nodes is %d; it must divide tree_ranks, which is %d",
               c->tree_nodes, c->tree_ranks);
    if (!shunti_route_has((int)c->mode))
        REFUSE("mode is %d, no enum shunt_moe_mode", (int)c->mode);
    if (!shunti_route_has((int)c->combine_mode))
        REFUSE("combine_mode is %d, no enum shunt_moe_mode",
               (int)c->combine_mode);
    if (c->order != SHUNT_MOE_ORDER_COPIES && c->order != SHUNT_MOE_ORDER_HOMES)
        REFUSE("order is %d, no enum shunt_moe_order", (int)c->order);
    if (c->leaf_rows > UINT32_MAX)
        REFUSE("leaf_rows is %zu; it must be less than 2^32", c->leaf_rows);
    if (c->partials != SHUNT_MOE_PARTIALS_F32 &&
        c->partials != SHUNT_MOE_PARTIALS_DTYPE)
        REFUSE("partials is %d, no enum shunt_moe_partials", (int)c->partials);
#undef REFUSE
    if (!c->row_align)
        c->row_align = 1;
    if (!c->leaf_rows)
        c->leaf_rows = LEAF_ROWS;
    if (!c->plans_in_flight)
        c->plans_in_flight = 4;
    fill_in_modes(c);
    return SHUNT_OK;
}

/* A public struct must end with its last field. Callers do not set padding, so
 * a field that the next version puts there could have any value. */
_Static_assert(offsetof(struct shunt_moe_config, leaf_rows) + sizeof(size_t) ==
                       sizeof(struct shunt_moe_config) &&
                   offsetof(struct shunt_moe_rows, network_combine_rows) +
                           sizeof(size_t) ==
                       sizeof(struct shunt_moe_rows) &&
                   offsetof(struct shunt_moe_plan_options, in_order) +
                           sizeof(intptr_t) ==
                       sizeof(struct shunt_moe_plan_options),
               "padding at the end of a public struct");

/* Read the fields that the caller's struct has, and set the others to their
 * defaults. */
static enum shunt_status read_config(struct shunt_moe_config *c,
                                     const struct shunt_moe_config *from,
                                     char *why, size_t len)
{
    static const struct shunt_moe_config init = SHUNT_MOE_CONFIG_INIT;
    const size_t least =
        offsetof(struct shunt_moe_config, weights) + sizeof(from->weights);
    const size_t known = sizeof(*c);

    *c = init;
    if (!from) {
        snprintf(why, len, "config is NULL");
        return SHUNT_ERR_INVALID;
    }
    if (from->size < least) {
        snprintf(why, len,
                 "config->size is %zu: fill it with SHUNT_MOE_CONFIG_INIT",
                 from->size);
        return SHUNT_ERR_INVALID;
    }
    for (size_t i = known; i < from->size; i++)
        if (((const unsigned char *)from)[i]) {
            snprintf(why, len,
                     "config has a field (at byte %zu) that this version "
                     "does not know: update the library",
                     i);
            return SHUNT_ERR_INVALID;
        }
    memcpy(c, from, from->size < known ? from->size : known);
    return SHUNT_OK;
}

/* --- create, destroy ----------------------------------------------------------- */

/* Allocate an exchange, without its placement. */
static struct shunt_moe *allocate(struct shunt_comm *comm,
                                  const struct shunt_moe_config *c)
{
    struct shunt_moe *moe = calloc(1, sizeof(*moe));
    size_t nranks = (size_t)shunt_comm_size(comm);

    if (!moe)
        return NULL;
    moe->comm = comm;
    moe->rank = shunt_comm_rank(comm);
    moe->nranks = (int)nranks;
    moe->config = *c;
    moe->config.placement = NULL;
    moe->config.replicas = NULL;
    moe->config.nreplicas = 0;
    moe->config.share = NULL;
    moe->element = shunt_dtype_size(c->dtype);
    moe->row_bytes = c->hidden * moe->element;
    moe->rows = shunti_rows(c->dtype);
    moe->nodes = shunt_comm_nodes(comm);
    moe->node = malloc(nranks * sizeof(*moe->node));
    moe->scratch = malloc((2 * nranks + shunti_sort_stride((size_t)c->topk)) *
                          sizeof(*moe->scratch));
    moe->local = malloc(nranks * sizeof(*moe->local));
    moe->plans = calloc((size_t)c->plans_in_flight + 1, sizeof(*moe->plans));
    if (!moe->node || !moe->local || !moe->scratch || !moe->plans)
        goto fail;
    for (size_t r = 0; r < nranks; r++) {
        moe->node[r] = shunt_comm_node(comm, (int)r);
        moe->local[r] = comm->peers[r].local;
    }
    for (int i = 0; i <= c->plans_in_flight; i++)
        moe->plans[i].moe = moe;
    moe->spare = &moe->plans[c->plans_in_flight];
    return moe;
fail:
    shunti_moe_free(moe);
    return NULL;
}

enum shunt_status shunt_moe_create(struct shunt_comm *comm,
                                   const struct shunt_moe_config *config,
                                   struct shunt_moe **out)
{
    struct terms terms = {0};
    struct shunt_moe_config c;
    struct shunti_places places;
    struct shunt_moe *moe = NULL;
    struct shunti_slot *slot = NULL;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);

    if (out)
        *out = NULL;
    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "moe_create: comm is NULL");
    st = read_config(&c, config, terms.check.why, sizeof(terms.check.why));
    if (!st)
        st = check(&c, shunt_comm_size(comm), terms.check.why,
                   sizeof(terms.check.why));
    places =
        (struct shunti_places){c.placement, c.replicas, c.nreplicas, c.share};
    if (!st && !out) {
        snprintf(terms.check.why, sizeof(terms.check.why), "moe is NULL");
        st = SHUNT_ERR_INVALID;
    }
    if (!st) {
        moe = allocate(comm, &c);
        slot = shunti_slot_new(comm, (size_t)c.plans_in_flight);
        st = moe && slot ? SHUNT_OK : SHUNT_ERR_MEMORY;
        if (st)
            snprintf(terms.check.why, sizeof(terms.check.why),
                     "no memory for %d plans of %zu tokens", c.plans_in_flight,
                     c.max_tokens);
    }
    if (!st)
        moe->placement = shunti_shares_placement(moe, &places, terms.check.why,
                                                 sizeof(terms.check.why), &st);
    if (!st)
        st = shunti_routes_choose(moe, moe->placement, &moe->routes,
                                  terms.check.why, sizeof(terms.check.why));
    if (!st)
        st =
            prepare_placement(moe, moe->placement, &moe->order, &moe->copy_rows,
                              terms.check.why, sizeof(terms.check.why));
    if (!st)
        moe->base = moe->copy_rows + moe->placement->first[moe->nranks];
    if (!st)
        describe(&terms, &c, &places);
    shunti_comm_enter(comm);
    if (!st && !shunti_slots_prepare(comm)) {
        snprintf(terms.check.why, sizeof(terms.check.why),
                 "no memory for a first one");
        st = SHUNT_ERR_MEMORY;
    }
    shunti_slots_settle(comm);
    shunti_slots_free_here(comm, terms.free);
    shunti_comm_leave(comm);
    terms.check.status = st;
    st = agree(comm, SHUNTI_PURPOSE_MOE_CREATE, &terms);
    shunti_comm_enter(comm);
    if (!st && !shunti_slot_take(moe, slot, terms.free))
        st = shunti_fail(&comm->error, SHUNT_ERR_BUSY,
                         "moe_create: %d exchanges exist already, counting "
                         "those that some rank has not destroyed yet",
                         SHUNTI_EXCHANGES_MAX);
    if (st) {
        shunti_slot_free(slot);
        if (moe)
            shunti_moe_free(moe);
    } else {
        moe->serial = terms.number;
        *out = shunti_handle_issue(moe->slot->handle, moe);
    }
    shunti_comm_leave(comm);
    return st;
}

void shunt_moe_destroy(struct shunt_moe *handle)
{
    struct shunt_moe *moe = shunti_handle_object(SHUNTI_HANDLE_MOE, handle);
    struct shunt_comm *comm;

    if (!moe)
        return;
    comm = moe->comm;
    shunti_comm_enter(comm);
    shunti_handle_revoke(moe->slot->handle);
    moe->destroyed = true;
    for (int i = 0; i < moe->config.plans_in_flight; i++)
        if (moe->places[i].plan->handle)
            shunti_plan_release(moe->places[i].plan);
    if (!moe->users)
        shunti_moe_free(moe);
    shunti_comm_leave(comm);
}

enum shunt_status shunt_moe_set_shares(struct shunt_moe *handle,
                                       const int32_t *placement,
                                       const struct shunt_moe_replica *replicas,
                                       size_t nreplicas, const int64_t *share)
{
    const struct shunti_places places = {placement, replicas, nreplicas, share};
    struct terms terms = {0};
    struct shunti_placement *fresh;
    struct shunti_order order = {0};
    size_t *copy_rows = NULL;
    struct shunti_routes routes = {0};
    struct shunt_moe *moe;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);

    moe = shunti_moe_of(handle, SHUNTI_PURPOSE_MOE_SET_PLACEMENT, &st);
    if (!moe)
        return st;
    fresh = shunti_shares_placement(moe, &places, terms.check.why,
                                    sizeof(terms.check.why), &st);
    if (!st)
        st = shunti_routes_choose(moe, fresh, &routes, terms.check.why,
                                  sizeof(terms.check.why));
    if (!st)
        st = prepare_placement(moe, fresh, &order, &copy_rows, terms.check.why,
                               sizeof(terms.check.why));
    if (!st)
        describe(&terms, &moe->config, &places);
    terms.check.status = st;
    terms.field[FIELD_EXCHANGE] = moe->serial;
    st = agree(moe->comm, SHUNTI_PURPOSE_MOE_SET_PLACEMENT, &terms);
    if (st) {
        shunti_placement_drop(fresh);
        shunti_order_finish(&order);
        free(copy_rows);
        return st;
    }
    shunti_placement_drop(moe->placement);
    shunti_order_finish(&moe->order);
    free(moe->copy_rows);
    moe->placement = fresh;
    moe->order = order;
    moe->copy_rows = copy_rows;
    moe->base = copy_rows + fresh->first[moe->nranks];
    moe->placed = terms.number;
    moe->routes = moe->slot->routes = routes;
    return SHUNT_OK;
}

enum shunt_status
shunt_moe_set_placement(struct shunt_moe *moe, const int32_t *placement,
                        const struct shunt_moe_replica *replicas,
                        size_t nreplicas)
{
    return shunt_moe_set_shares(moe, placement, replicas, nreplicas, NULL);
}
