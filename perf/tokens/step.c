// SPDX-License-Identifier: Apache-2.0
/* One step with balance, phase by phase; see step.h. */
#include "perf/tokens/step.h"

#include <string.h>

/* Weight of the mean of loads in shunt_balance_predict(). */
#define THETA 0.9

static const char *const names[STEP_PHASES] = {
    [STEP_LOADS] = "gather loads",
    [STEP_DECISION] = "decide which experts to copy",
    [STEP_PLACE] = "place copies",
    [STEP_PLAN] = "plan",
    [STEP_DISPATCH] = "dispatch",
    [STEP_REFRESH] = "start sending parameters",
    [STEP_EXPERTS] = "forward, experts",
    [STEP_REFRESHED] = "wait for parameters",
    [STEP_COPIES] = "forward, copies of experts",
    [STEP_COMBINE] = "combine",
    [STEP_COMBINE_BACK] = "gradient of combine",
    [STEP_SHARED_BACK] = "backward, experts with copies",
    [STEP_REDUCE] = "start adding gradients",
    [STEP_EXPERTS_BACK] = "backward, other experts",
    [STEP_DISPATCH_BACK] = "gradient of dispatch",
    [STEP_REDUCED] = "wait for gradients",
};

const char *step_phase_name(enum step_phase phase)
{
    return names[phase];
}

void step_must(const struct step *s, enum shunt_status st, const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(s->g->comm));
}

static void ended(struct step *s, enum step_phase phase)
{
    const double now = perf_now_us();

    s->phase[phase] = now - s->began;
    s->began = now;
}

/* --- balance -------------------------------------------------------------- */

/* Collect the row counts of this batch from all ranks. */
static void gather(struct step *s)
{
    const struct perf_routing *r = &s->routing[STEP_BALANCED];
    const struct perf_options *o = s->o;
    const int32_t *index = perf_token_experts(r, s->g->rank, 0);
    int64_t *mine = s->rows + (size_t)s->g->rank * (size_t)o->experts;

    memset(mine, 0, (size_t)o->experts * sizeof(*mine));
    for (size_t i = 0; i < r->tokens * (size_t)o->topk; i++)
        if (index[i] >= 0)
            mine[index[i]]++;
    step_must(s,
              shunt_allgather(s->g->comm, SHUNT_IN_PLACE, s->rows,
                              (size_t)o->experts, SHUNT_I64),
              "allgather");
}

/* Predict row counts from previous batches. All ranks have the loads of the
 * plans, so no exchange is needed. */
static void predict(struct step *s)
{
    const size_t n = (size_t)s->g->ranks * (size_t)s->o->experts;

    for (size_t i = 0; i < n; i++)
        s->rows[i] = s->seen ? (int64_t)(s->predicted[i] + 0.5) : 0;
}

static void remember(struct step *s, const struct shunt_moe_plan *plan)
{
    const size_t n = (size_t)s->g->ranks * (size_t)s->o->experts;

    step_must(s, shunt_moe_loads_by_source(plan, s->rows), "loads");
    for (size_t i = 0; i < n; i++)
        s->loads[i] = (double)s->rows[i];
    step_must(
        s,
        shunt_balance_predict(s->predicted, s->loads, n, s->seen ? THETA : 0),
        "predict");
    s->seen = true;
}

/* Decide the placement for this batch and pass it to the exchange. */
static void balance(struct step *s)
{
    const struct perf_options *o = s->o;
    const struct shunt_balance_goal goal = {
        .within = o->within,
        .row_s = 3e-6 * o->expert_us,
        .copy_s = 1e-6 * o->copy_us,
    };

    if (o->balance == PERF_BALANCE_REPLICAS)
        predict(s);
    else
        gather(s);
    ended(s, STEP_LOADS);
    step_must(s,
              shunt_balance_batch_goal(s->rows, s->g->ranks, o->experts, NULL,
                                       s->g->node_of, o->slots, o->leaf_rows,
                                       &goal, s->replicas, s->share,
                                       &s->nreplicas, NULL),
              "balance_batch");
    ended(s, STEP_DECISION);
    if (s->nreplicas || s->placed)
        step_must(s,
                  shunt_moe_set_shares(s->moe[STEP_BALANCED], NULL, s->replicas,
                                       s->nreplicas, s->share),
                  "set_shares");
    s->placed = s->nreplicas > 0;
    step_list_experts(s);
    ended(s, STEP_PLACE);
}

/* --- transfers of state --------------------------------------------------- */

/* The parameters or the gradients of this rank's experts. */
struct state {
    struct shunt_moe_array array;
    struct shunt_moe_state state;
};

static void describe(const struct step *s, char *at, struct state *state)
{
    state->array =
        (struct shunt_moe_array){.at = at, .bytes = s->o->expert_bytes};
    state->state = (struct shunt_moe_state){
        .size = sizeof(state->state),
        .array = &state->array,
        .arrays = 1,
        .slot = s->own.slot,
    };
}

static void refresh(struct step *s, struct shunt_request **travels)
{
    struct state parameters;

    describe(s, s->own.parameters, &parameters);
    step_must(s,
              shunt_moe_replicas_refresh_start(s->moe[STEP_BALANCED],
                                               &parameters.state, travels),
              "refresh");
}

/* Set the gradient of each expert to its number of rows. */
static void count_rows(const struct step *s, const struct shunt_moe_rows *rows)
{
    for (int e = 0; e < rows->local_experts; e++)
        *step_first_of(s, s->own.gradients, e) = (float)rows->count[e];
}

static void reduce(struct step *s, struct shunt_request **travels)
{
    struct state gradients;

    describe(s, s->own.gradients, &gradients);
    step_must(s,
              shunt_moe_replicas_reduce_start(
                  s->moe[STEP_BALANCED], &gradients.state, SHUNT_F32, travels),
              "reduce");
}

static void wait_for(const struct step *s, struct shunt_request **request)
{
    if (*request)
        step_must(s, shunt_wait(request), "wait");
}

/* --- a step --------------------------------------------------------------- */

static bool is_home(const struct step *s, int i)
{
    return !step_is_copy(s, i);
}

static bool is_shared(const struct step *s, int i)
{
    return s->own.shared[i];
}

static bool is_alone(const struct step *s, int i)
{
    return !s->own.shared[i];
}

struct buffers {
    float *in, *out, *dout, *drows;
};

/* Parameters are sent to copies while the experts at home compute. */
static void forward(struct step *s, enum step_side side, bool copies,
                    struct shunt_moe_plan *plan,
                    const struct shunt_moe_rows *rows, const struct buffers *b)
{
    const struct perf_bench *t = &s->tokens;
    struct shunt_request *travels = NULL;

    step_must(s, shunt_moe_dispatch(plan, t->x, b->in, rows->total),
              "dispatch");
    ended(s, STEP_DISPATCH);
    if (copies)
        refresh(s, &travels);
    ended(s, STEP_REFRESH);
    step_compute(s, side, rows, copies ? is_home : NULL, b->in, b->out, 1,
                 &travels);
    ended(s, STEP_EXPERTS);
    wait_for(s, &travels);
    ended(s, STEP_REFRESHED);
    if (copies)
        step_compute(s, side, rows, step_is_copy, b->in, b->out, 1, NULL);
    ended(s, STEP_COPIES);
    step_must(s, shunt_moe_combine(plan, b->out, NULL, t->y), "combine");
    ended(s, STEP_COMBINE);
}

/* Gradients of copies are sent home while experts without copies compute. */
static void backward(struct step *s, enum step_side side, bool copies,
                     struct shunt_moe_plan *plan,
                     const struct shunt_moe_rows *rows, const struct buffers *b)
{
    const struct perf_bench *t = &s->tokens;
    struct shunt_request *travels = NULL;

    step_must(s,
              shunt_moe_combine_backward(plan, t->x, b->out, b->dout,
                                         rows->total, t->dweight),
              "combine_backward");
    ended(s, STEP_COMBINE_BACK);
    if (copies)
        step_compute(s, side, rows, is_shared, b->dout, b->drows, 2, NULL);
    ended(s, STEP_SHARED_BACK);
    if (side == STEP_BALANCED)
        count_rows(s, rows);
    if (copies)
        reduce(s, &travels);
    ended(s, STEP_REDUCE);
    step_compute(s, side, rows, copies ? is_alone : NULL, b->dout, b->drows, 2,
                 &travels);
    ended(s, STEP_EXPERTS_BACK);
    step_must(s, shunt_moe_dispatch_backward(plan, b->drows, t->in),
              "dispatch_backward");
    ended(s, STEP_DISPATCH_BACK);
    wait_for(s, &travels);
    ended(s, STEP_REDUCED);
}

void step_run(struct step *s, enum step_side side)
{
    const struct perf_routing *r = &s->routing[side];
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    struct buffers b;
    bool copies;

    memset(s->phase, 0, sizeof(s->phase));
    s->began = perf_now_us();
    if (side == STEP_BALANCED)
        balance(s);
    copies = side == STEP_BALANCED && s->nreplicas;
    step_must(s,
              shunt_moe_plan_create(
                  s->moe[side], perf_token_experts(r, s->g->rank, 0),
                  perf_token_weights(r, s->g->rank, 0), r->tokens, &plan),
              "plan");
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    s->total = (double)rows.total;
    b = (struct buffers){
        .in = shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
        .out = shunt_moe_buffer(plan, SHUNT_MOE_OUT),
        .dout = shunt_moe_buffer(plan, SHUNT_MOE_DOUT),
        .drows = shunt_moe_buffer(plan, SHUNT_MOE_DROWS),
    };
    ended(s, STEP_PLAN);
    forward(s, side, copies, plan, &rows, &b);
    backward(s, side, copies, plan, &rows, &b);
    if (side == STEP_BALANCED && s->o->balance == PERF_BALANCE_REPLICAS)
        remember(s, plan);
    shunt_moe_plan_destroy(plan);
}
