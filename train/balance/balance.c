// SPDX-License-Identifier: Apache-2.0
/* See balance.h. */
#include "train/balance/balance.h"

#include "train/base/clock.h"
#include "train/base/error.h"
#include "train/exchange/exchange_shunt.h"

#include <shunt/balance.h>
#include <shunt/moe_gradients.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_on(const struct balance *b)
{
    return b->c && b->c->how != BALANCE_OFF;
}

/* Does each routing have copies of its own? */
static bool by_batch(const struct balance *b)
{
    return b->c->how == BALANCE_MICROBATCH;
}

/* Index of a routing's placement in b->now. */
static size_t row_of(const struct balance *b, size_t routing)
{
    return by_batch(b) ? routing : routing % b->layers;
}

static size_t rows_of_places(const struct balance *b)
{
    return by_batch(b) ? b->routings : b->layers;
}

static size_t ranks(const struct balance *b)
{
    return (size_t)b->team->size;
}

static struct shunt_moe *moe(const struct balance *b, size_t layer)
{
    return exchange_shunt_moe(b->exchange, layer);
}

/* Bytes of one array of an expert. */
static size_t bytes(const struct balance *b)
{
    return b->expert->unit * sizeof(float);
}

/* --- slots ------------------------------------------------------------------ */

/* Give each expert that moves to a rank the seat of an expert that leaves that
 * rank. */
static void seat(struct balance *b, size_t layer, const struct places *next)
{
    const int32_t *was = b->now[layer].home, *home = next->home;
    int32_t *seat = b->seat + layer * b->experts, *got = b->here;

    memcpy(got, seat, b->experts * sizeof(*got));
    for (int32_t r = 0; r < b->team->size; r++)
        for (size_t e = 0, from = 0; e < b->experts; e++) {
            if (home[e] != r || was[e] == r)
                continue;
            while (was[from] != r || home[from] == r)
                from++;
            got[e] = seat[from++];
        }
    memcpy(seat, got, b->experts * sizeof(*got));
}

/* Assign slots for a row of b->now. Copies that stay keep their slots. */
static void assign(struct balance *b, size_t row)
{
    const size_t E = b->experts, layer = row % b->layers;
    const struct places *now = &b->now[row];
    const int32_t first = (int32_t)(b->layers * b->own + row * b->c->slots);
    int32_t *slot = b->slot + row * E;

    memset(b->taken, 0, b->c->slots * sizeof(*b->taken));
    for (size_t e = 0; e < E; e++) {
        if (now->home[e] == b->team->rank)
            slot[e] = (int32_t)(layer * b->own) + b->seat[layer * E + e];
        else if (!places_has_copy(now, e, b->team->rank))
            slot[e] = -1;
        else if (slot[e] < first)
            slot[e] = -2; /* a new copy, which needs a slot */
        else
            b->taken[slot[e] - first] = true;
    }
    for (size_t e = 0, i = 0; e < E; e++) {
        if (slot[e] != -2)
            continue;
        while (b->taken[i])
            i++;
        slot[e] = first + (int32_t)i++;
    }
    if (!by_batch(b))
        for (size_t r = row + b->layers; r < b->routings; r += b->layers)
            memcpy(b->slot + r * E, slot, E * sizeof(*slot));
}

static void follow(struct balance *b, size_t layer, const struct places *next)
{
    seat(b, layer, next);
    places_copy(&b->now[layer], next);
    assign(b, layer);
}

/* List the slots of the experts on this rank, in ascending order of experts. */
static void list(const struct balance *b, size_t row, int32_t *slots)
{
    const size_t n = places_of(&b->now[row], b->team->rank, b->here);

    for (size_t i = 0; i < n; i++)
        slots[i] = b->slot[row * b->experts + (size_t)b->here[i]];
}

/* --- set-up ----------------------------------------------------------------- */

static void *zeroed(size_t count, size_t size, bool *bad)
{
    void *p = calloc(count ? count : 1, size);

    *bad |= !p;
    return p;
}

static int allocate(struct balance *b)
{
    const size_t ME = b->layers * b->experts, R = ranks(b);
    bool bad = false;

    b->now = zeroed(b->routings, sizeof(*b->now), &bad);
    b->node = zeroed(R, sizeof(*b->node), &bad);
    b->exchange_of = zeroed(b->layers, sizeof(*b->exchange_of), &bad);
    b->has = zeroed(b->layers, sizeof(*b->has), &bad);
    b->seat = zeroed(ME, sizeof(*b->seat), &bad);
    b->slot = zeroed(b->routings * b->experts, sizeof(*b->slot), &bad);
    b->taken = zeroed(b->c->slots, sizeof(*b->taken), &bad);
    b->here = zeroed(b->experts, sizeof(*b->here), &bad);
    b->from = zeroed(b->experts, sizeof(*b->from), &bad);
    b->to = zeroed(b->experts, sizeof(*b->to), &bad);
    b->rows = zeroed(R * ME, sizeof(*b->rows), &bad);
    b->predicted = zeroed(R * ME, sizeof(*b->predicted), &bad);
    b->counts = zeroed(b->experts, sizeof(*b->counts), &bad);
    b->loads = zeroed(R * b->experts, sizeof(*b->loads), &bad);
    b->own_rows = zeroed(b->layers + 3, sizeof(*b->own_rows), &bad);
    b->all_rows = zeroed(R * (b->layers + 3), sizeof(*b->all_rows), &bad);
    b->moving = zeroed(b->layers, sizeof(*b->moving), &bad);
    b->refreshing = zeroed(b->routings, sizeof(*b->refreshing), &bad);
    b->reducing = zeroed(b->layers, sizeof(*b->reducing), &bad);
    if (bad)
        return train_error("out of memory");
    for (size_t r = 0; r < rows_of_places(b); r++)
        if (places_create(R, b->experts, b->c->slots, &b->now[r]))
            return -1;
    for (size_t l = 0; l < b->layers; l++)
        if (places_create(R, b->experts, b->c->slots, &b->has[l]))
            return -1;
    return places_create(R, b->experts, b->c->slots, &b->next);
}

static int planning(void *arg, size_t routing, const int32_t *choice,
                    size_t tokens, bool again);
static int planned(void *arg, size_t routing,
                   const struct shunt_moe_plan *plan);
static int arrived(void *arg, size_t routing, enum exchange_call call);

int balance_create(struct balance *b, const struct balance_config *c,
                   struct team *team, struct exchange *exchange,
                   struct params *expert, const struct model_config *model,
                   size_t routings)
{
    const size_t layers = model_moe_layers(model), experts = model->experts;
    size_t first, count;

    *b = (struct balance){
        .c = c,
        .team = team,
        .exchange = exchange,
        .expert = expert,
        .topk = model->topk,
        .layers = layers,
        .experts = experts,
        .routings = routings,
    };
    exchange_experts(experts, team->rank, team->size, &first, &b->own);
    if (allocate(b))
        return -1;
    for (size_t l = 0; l < layers; l++)
        for (size_t e = 0; e < experts; e++) {
            exchange_experts(experts, b->now[l].home[e], team->size, &first,
                             &count);
            b->seat[l * experts + e] = (int32_t)(e - first);
        }
    for (size_t r = 0; r < rows_of_places(b); r++)
        assign(b, r);
    if (!is_on(b))
        return 0;
    for (size_t l = 0; l < layers; l++)
        while (moe(b, b->exchange_of[l]) != moe(b, l))
            b->exchange_of[l]++;
    for (int r = 0; r < team->size; r++)
        b->node[r] = shunt_comm_node(team->comm, r);
    if (params_grow(expert, rows_of_places(b) * c->slots * expert->unit))
        return -1;
    exchange_shunt_hook(
        exchange, &(struct exchange_hooks){planning, planned, arrived, b});
    return 0;
}

/* Wait for the requests that an error has left under way, since their memory
 * will be freed. */
static void abandon(struct shunt_request **requests, size_t count)
{
    for (size_t i = 0; requests && i < count; i++)
        if (requests[i] && shunt_wait(&requests[i]))
            continue; /* the first error is reported already */
}

void balance_destroy(struct balance *b)
{
    abandon(b->moving, b->layers);
    abandon(b->refreshing, b->routings);
    abandon(b->reducing, b->layers);
    for (size_t r = 0; b->now && r < rows_of_places(b); r++)
        places_destroy(&b->now[r]);
    for (size_t l = 0; b->has && l < b->layers; l++)
        places_destroy(&b->has[l]);
    places_destroy(&b->next);
    free(b->now);
    free(b->node);
    free(b->exchange_of);
    free(b->has);
    free(b->seat);
    free(b->slot);
    free(b->taken);
    free(b->here);
    free(b->from);
    free(b->to);
    free(b->rows);
    free(b->predicted);
    free(b->counts);
    free(b->loads);
    free(b->own_rows);
    free(b->all_rows);
    free(b->moving);
    free(b->refreshing);
    free(b->reducing);
    free(b->saved);
    memset(b, 0, sizeof(*b));
}

/* --- transfers ------------------------------------------------------------ */

static int finish(struct balance *b, struct shunt_request **request,
                  const char *what)
{
    const double began = clock_now();

    if (!*request)
        return 0;
    const int st = team_check(b->team, shunt_wait(request), what);
    b->did.seconds += clock_now() - began;
    return st;
}

static int finish_move(struct balance *b, size_t layer)
{
    return finish(b, &b->moving[layer], "moving experts");
}

static struct shunt_moe_state state(const struct shunt_moe_array *array,
                                    int arrays, const int32_t *slots)
{
    return (struct shunt_moe_state){
        .size = sizeof(struct shunt_moe_state),
        .array = array,
        .arrays = arrays,
        .slot = slots,
    };
}

/* Set the placement b->now[row] in the shunt_moe. All later plans and transfers
 * use it. Gradients that are summed leaf by leaf need the rows of each copy, so
 * the shares are set, too. Layers that take turns share one shunt_moe, whose
 * placement may be that of another layer. */
static int place(struct balance *b, size_t row)
{
    const struct places *now = &b->now[row];
    const size_t layer = row % b->layers;
    const bool shares = b->c->leaf_rows && now->replicas;
    struct places *has = &b->has[b->exchange_of[layer]];

    if (now->replicas || has->replicas ? places_equal(has, now)
                                       : !places_moved(has, now))
        return 0;
    places_copy(has, now);
    return team_check(
        b->team,
        shares ? shunt_moe_set_shares(moe(b, layer), now->home, now->replica,
                                      now->replicas, now->share)
               : shunt_moe_set_placement(moe(b, layer), now->home, now->replica,
                                         now->replicas),
        "placing experts");
}

/* Start to send weights to the copies. */
static int refresh(struct balance *b, size_t row)
{
    const struct shunt_moe_array w = {b->expert->w, bytes(b), 0};
    const struct shunt_moe_state weights = state(&w, 1, b->from);
    const double began = clock_now();
    int st;

    if (!b->now[row].replicas)
        return 0;
    if (place(b, row))
        return -1;
    list(b, row, b->from);
    st = team_check(b->team,
                    shunt_moe_replicas_refresh_start(
                        moe(b, row % b->layers), &weights, &b->refreshing[row]),
                    "bringing weights to copies of experts");
    b->did.seconds += clock_now() - began;
    b->did.copies += (double)b->now[row].replicas;
    b->did.copy_bytes += (double)(b->now[row].replicas * bytes(b));
    return st;
}

static int finish_refresh(struct balance *b, size_t row)
{
    return finish(b, &b->refreshing[row],
                  "bringing weights to copies of experts");
}

/* Start to add the gradients of a layer's copies at the homes. */
static int reduce(struct balance *b, size_t layer)
{
    const struct shunt_moe_array g = {b->expert->grad, bytes(b), 0};
    const double began = clock_now();
    int st;

    if (!b->now[layer].replicas)
        return 0;
    if (place(b, layer))
        return -1;
    list(b, layer, b->from);
    const struct shunt_moe_state gradients = state(&g, 1, b->from);
    st = team_check(b->team,
                    shunt_moe_replicas_reduce_start(moe(b, layer), &gradients,
                                                    SHUNT_F32,
                                                    &b->reducing[layer]),
                    "gradients of copies of experts");
    b->did.seconds += clock_now() - began;
    b->did.copy_bytes += (double)(b->now[layer].replicas * bytes(b));
    return st;
}

int balance_place(struct balance *b, size_t layer, const struct places *next)
{
    follow(b, layer, next);
    return place(b, layer);
}

/* Change a layer's placement: start to move the experts, and send rows to their
 * new homes from now on. */
static int change(struct balance *b, size_t layer, const struct places *next)
{
    const size_t moved = places_moved(&b->now[layer], next);
    const struct shunt_moe_array arrays[] = {{b->expert->w, bytes(b), 0},
                                             {b->expert->m, bytes(b), 0},
                                             {b->expert->v, bytes(b), 0}};
    const struct shunt_moe_state from = state(arrays, 3, b->from);
    const struct shunt_moe_state to = state(arrays, 3, b->to);
    const double began = clock_now();
    int st = moved ? place(b, layer) : 0; /* set the placement before the
                                             move */

    list(b, layer, b->from);
    follow(b, layer, next);
    list(b, layer, b->to);
    if (moved && !st)
        st = team_check(b->team,
                        shunt_moe_move_start(moe(b, layer), next->home,
                                             next->replica, next->replicas,
                                             &from, &to, &b->moving[layer]),
                        "moving experts");
    st = st ? st : place(b, layer);
    b->did.moved += (double)moved;
    b->did.move_bytes += (double)(moved * 3 * bytes(b));
    b->did.seconds += clock_now() - began;
    return st;
}

/* --- a step ------------------------------------------------------------------- */

void balance_begin(struct balance *b)
{
    b->did = (struct balance_did){0};
    balance_forget(b);
    if (is_on(b) && !b->c->leaf_rows)
        memset(b->expert->grad + b->expert->length, 0,
               b->layers * b->c->slots * bytes(b));
    b->counting = true;
}

void balance_forget(struct balance *b)
{
    memset(b->rows, 0, ranks(b) * b->layers * b->experts * sizeof(*b->rows));
    memset(b->own_rows, 0, b->layers * sizeof(*b->own_rows));
}

static int planned(void *arg, size_t routing, const struct shunt_moe_plan *plan)
{
    struct balance *b = arg;
    const size_t l = routing % b->layers, RE = ranks(b) * b->experts;
    struct shunt_moe_rows at;

    if (!b->counting)
        return 0;
    if (team_check(b->team, shunt_moe_loads_by_source(plan, b->loads),
                   "loads of experts"))
        return -1;
    for (size_t i = 0; i < RE; i++)
        b->rows[l * RE + i] += (double)b->loads[i];
    shunt_moe_plan_rows(plan, &at, sizeof(at));
    b->own_rows[l] += (double)at.total;
    return 0;
}

/* BALANCE_MICROBATCH: decide on the copies for a routing. */
static int decide_batch(struct balance *b, size_t routing,
                        const int32_t *choice, size_t tokens)
{
    const size_t E = b->experts;
    double began;

    memset(b->counts, 0, E * sizeof(*b->counts));
    for (size_t i = 0; i < tokens * b->topk; i++)
        if (choice[i] >= 0)
            b->counts[choice[i]]++;
    began = clock_now();
    if (team_gather(b->team, b->counts, b->loads, E * sizeof(*b->counts)))
        return -1;
    b->did.seconds += clock_now() - began;
    began = clock_now();
    if (places_decide_batch(b->c, b->loads, b->node, &b->now[routing],
                            &b->next))
        return -1;
    b->did.planner += clock_now() - began;
    places_copy(&b->now[routing], &b->next);
    assign(b, routing);
    return 0;
}

/* A routing that is planned again keeps its placement. */
static int planning(void *arg, size_t routing, const int32_t *choice,
                    size_t tokens, bool again)
{
    struct balance *b = arg;
    const bool decides = by_batch(b) && !again;

    if (decides && decide_batch(b, routing, choice, tokens))
        return -1;
    if (place(b, row_of(b, routing)))
        return -1;
    return decides ? refresh(b, routing) : 0;
}

/* The rows of a dispatch have arrived. Wait until the experts that compute with
 * them have arrived, too. */
static int arrived(void *arg, size_t routing, enum exchange_call call)
{
    struct balance *b = arg;

    if (call != EXCHANGE_DISPATCH)
        return 0;
    return finish_move(b, routing % b->layers) ||
                   finish_refresh(b, row_of(b, routing))
               ? -1
               : 0;
}

bool balance_is_home(const struct balance *b, size_t routing, int32_t expert)
{
    return b->now[row_of(b, routing)].home[expert] == b->team->rank;
}

int balance_sums_are_home(struct balance *b, size_t layer)
{
    return finish(b, &b->reducing[layer], "gradients of copies of experts");
}

int balance_send_sums(struct balance *b, size_t routing, float *const *sums)
{
    const size_t row = row_of(b, routing), l = routing % b->layers;
    const struct shunt_moe_array g = {b->expert->grad, bytes(b), 0};
    const struct shunt_moe_state gradients = state(&g, 1, b->from);
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows at;
    double began;
    int st;

    if (!is_on(b) || !b->now[row].replicas)
        return 0;
    plan = exchange_shunt_plan(b->exchange, routing);
    shunt_moe_plan_rows(plan, &at, sizeof(at));
    for (int i = 0; i < at.local_experts; i++)
        if (b->now[row].home[at.expert[i]] != b->team->rank)
            b->did.sum_bytes +=
                (double)(bytes(b) *
                         shunt_moe_tree_sums(&at.range[i], at.leaf_rows));
    list(b, row, b->from);
    began = clock_now();
    st = team_check(b->team,
                    shunt_moe_gradients_reduce_start(plan, sums, &gradients, 1,
                                                     &b->reducing[l]),
                    "gradients of copies of experts");
    b->did.seconds += clock_now() - began;
    return st;
}

int balance_gradients(struct balance *b)
{
    b->counting = false;
    if (!is_on(b))
        return 0;
    for (size_t l = b->layers; l-- > 0;)
        if (!b->c->leaf_rows && reduce(b, l))
            return -1;
    for (size_t l = b->layers; l-- > 0;)
        if (balance_sums_are_home(b, l))
            return -1;
    return 0;
}

/* With no prediction yet, the loads of this batch are the prediction. */
static int predict(struct balance *b)
{
    const double theta = b->steps ? b->c->theta : 0;

    b->steps++;
    return team_check(b->team,
                      shunt_balance_predict(b->predicted, b->rows,
                                            b->layers * ranks(b) * b->experts,
                                            theta),
                      "predicting loads of experts");
}

static int decide(struct balance *b, size_t layer)
{
    const double began = clock_now();

    if (places_decide(b->c, b->predicted + layer * ranks(b) * b->experts,
                      &b->now[layer], &b->next))
        return -1;
    b->did.planner += clock_now() - began;
    return places_equal(&b->now[layer], &b->next) ? 0
                                                  : change(b, layer, &b->next);
}

int balance_update(struct balance *b, size_t step)
{
    if (!is_on(b) || by_batch(b))
        return 0;
    if (predict(b))
        return -1;
    if (step % b->c->every == 0)
        for (size_t l = 0; l < b->layers; l++)
            if (decide(b, l))
                return -1;
    /* Copies receive weights from the expert's home, so the weights must have
     * arrived at the home. */
    for (size_t l = 0; l < b->layers; l++)
        if ((b->now[l].replicas && finish_move(b, l)) || refresh(b, l))
            return -1;
    return 0;
}

int balance_settle(struct balance *b)
{
    if (!is_on(b))
        return 0;
    for (size_t l = 0; l < b->layers; l++)
        if (finish_move(b, l))
            return -1;
    for (size_t row = 0; row < rows_of_places(b); row++)
        if (finish_refresh(b, row))
            return -1;
    return 0;
}

int balance_restore(struct balance *b)
{
    for (size_t l = 0; is_on(b) && !by_batch(b) && l < b->layers; l++)
        if (refresh(b, l))
            return -1;
    return 0;
}
