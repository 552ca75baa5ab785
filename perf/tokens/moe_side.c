// SPDX-License-Identifier: Apache-2.0
/* A side of a measurement of exchanges; see moe_side.h. */
#include "perf/tokens/moe_side.h"

#include <string.h>

#include "perf/base/check.h"
#include "perf/tables/table.h"

void perf_moe_side_open(struct perf_moe_side *side)
{
    const struct perf_bench *b = side->bench;
    bool own =
        side->engine == &perf_engine_shunt && b->o->mem == PERF_MEM_WINDOW;
    struct perf_exchange exchange = {
        .rank = b->g->rank,
        .ranks = b->g->ranks,
        .tokens = b->routing.tokens,
        .hidden = b->o->hidden,
        .dtype = b->o->dtype,
        .topk = b->o->topk,
        .experts = b->o->experts,
        .wire = b->o->wire,
        .modes = b->o->modes,
        .partials = b->o->partials,
        .parts = b->o->parts,
        .index = perf_token_experts(&b->routing, b->g->rank, 0),
        .weight = perf_token_weights(&b->routing, b->g->rank, 0),
        .x = b->x,
        .y = b->y,
        .total = b->total,
        .rows = own ? NULL : b->in,
        .out = own ? NULL : b->out,
        .dweight = b->dweight,
        .device = b->mirror != NULL,
        .there = b->traffic[PERF_LINK].there,
        .back = b->traffic[PERF_LINK].back,
    };
    const char *why = "it has no calls that return at once";
    if (!b->o->overlap || side->engine->moe_start)
        why = side->engine->moe_open(&exchange, &side->state);
    if (why)
        perf_die(PERF_EXIT_USAGE, "--peer %s: %s", side->engine->name, why);
    if (side->engine->moe_note(side->state))
        perf_table_note("%s", side->engine->moe_note(side->state));
}

void perf_moe_side_plan(void *state)
{
    struct perf_moe_side *side = state;
    side->engine->moe_plan(side->state);
}

static void go(struct perf_moe_side *side, enum perf_go what)
{
    side->engine->moe_go(side->state, what);
}

/* Define an exchange as perf_measure() calls it, and its start. */
#define EXCHANGE(name, what)                        \
    static void name(void *state)                   \
    {                                               \
        go(state, what);                            \
    }                                               \
    static void start_##name(void *state)           \
    {                                               \
        struct perf_moe_side *side = state;         \
        side->engine->moe_start(side->state, what); \
    }

EXCHANGE(dispatch, PERF_GO_DISPATCH)
EXCHANGE(combine, PERF_GO_COMBINE)
EXCHANGE(combine_backward, PERF_GO_COMBINE_BACKWARD)
EXCHANGE(dispatch_backward, PERF_GO_DISPATCH_BACKWARD)

void perf_moe_side_test(void *state)
{
    struct perf_moe_side *side = state;
    side->engine->moe_test(side->state);
}

void perf_moe_side_wait(void *state)
{
    struct perf_moe_side *side = state;
    side->engine->moe_wait(side->state);
}

void (*const perf_moe_side_runs[])(void *) = {
    [PERF_GO_DISPATCH] = dispatch,
    [PERF_GO_COMBINE] = combine,
    [PERF_GO_COMBINE_BACKWARD] = combine_backward,
    [PERF_GO_DISPATCH_BACKWARD] = dispatch_backward,
};

void (*const perf_moe_side_starts[])(void *) = {
    [PERF_GO_DISPATCH] = start_dispatch,
    [PERF_GO_COMBINE] = start_combine,
    [PERF_GO_COMBINE_BACKWARD] = start_combine_backward,
    [PERF_GO_DISPATCH_BACKWARD] = start_dispatch_backward,
};

static void settle(const struct perf_moe_side *side)
{
    if (side->engine->settle)
        side->engine->settle();
}

void perf_moe_side_release(void *state)
{
    struct perf_moe_side *side = state;
    side->engine->moe_release(side->state);
}

static void fill_once(struct perf_moe_side *side, void *out)
{
    const struct perf_bench *b = side->bench;

    for (int i = 0; i < side->nfilled; i++)
        if (side->filled[i] == out)
            return;
    perf_fill_out(&b->rows, perf_bench_host(b, out));
    perf_bench_put(b, out, b->total * b->row_bytes);
    if (side->nfilled < PERF_MOE_BUFFERS)
        side->filled[side->nfilled++] = out;
}

void perf_moe_side_answer(void *state)
{
    struct perf_moe_side *side = state;
    void *out = side->engine->moe_buffer(side->state, SHUNT_MOE_OUT);

    if (!out)
        return;
    fill_once(side, out);
    if (side->bench->o->op == PERF_BACKWARD)
        fill_once(side, side->engine->moe_buffer(side->state, SHUNT_MOE_DROWS));
}

/* Run one exchange on all ranks at once, as in a measurement. */
static void run_once(struct perf_moe_side *side, enum perf_go what)
{
    perf_gate_wait(side->bench->g);
    if (side->bench->o->overlap) {
        perf_moe_side_starts[what](side);
        perf_moe_side_wait(side);
    } else {
        go(side, what);
    }
    settle(side);
}

static void poison(const struct perf_bench *b, void *array, size_t bytes)
{
    memset(perf_bench_host(b, array), PERF_POISON, bytes);
    perf_bench_put(b, array, bytes);
}

/* Returns the contents of an array, in memory that the host can read. */
static const void *look(const struct perf_bench *b, void *array, size_t bytes)
{
    perf_bench_get(b, array, bytes);
    return perf_bench_host(b, array);
}

static void check_dispatch(struct perf_moe_side *side)
{
    const struct perf_bench *b = side->bench;
    const size_t bytes = b->total * b->row_bytes;
    void *rows = side->engine->moe_buffer(side->state, SHUNT_MOE_ROWS);

    if (rows)
        poison(b, rows, bytes);
    run_once(side, PERF_GO_DISPATCH);
    if (rows) {
        bool fp8 = b->o->wire == SHUNT_MOE_WIRE_FP8 &&
                   side->engine == &perf_engine_shunt;
        side->wrong +=
            (double)perf_check_dispatch(&b->rows, fp8, look(b, rows, bytes));
    }
}

/* Check combine, or dispatch_backward, which is the same without weights. */
static void check_sum(struct perf_moe_side *side, enum perf_go what)
{
    const struct perf_bench *b = side->bench;
    const size_t bytes = b->routing.tokens * b->row_bytes;

    perf_moe_side_answer(side);
    poison(b, b->y, bytes);
    run_once(side, what);
    if (!side->engine->delivers)
        return;
    bool rounded =
        side->role == PERF_OURS && b->o->partials != SHUNT_MOE_PARTIALS_F32;
    side->wrong += (double)perf_check_combine(&b->rows, what == PERF_GO_COMBINE,
                                              rounded ? b->g->node_of : NULL,
                                              look(b, b->y, bytes));
}

/* Check combine_backward after a combine, as in a training step. */
static void check_combine_backward(struct perf_moe_side *side)
{
    const struct perf_bench *b = side->bench;
    void *dout = side->engine->moe_buffer(side->state, SHUNT_MOE_DOUT);
    const size_t bytes = b->total * b->row_bytes;
    const size_t weights =
        b->routing.tokens * (size_t)b->o->topk * sizeof(*b->dweight);

    check_sum(side, PERF_GO_COMBINE);
    if (dout)
        poison(b, dout, bytes);
    poison(b, b->dweight, weights);
    run_once(side, PERF_GO_COMBINE_BACKWARD);
    if (!dout)
        return;
    side->wrong +=
        (double)perf_check_combine_backward(&b->rows, look(b, dout, bytes));
    side->wrong +=
        (double)perf_check_dweight(&b->rows, look(b, b->dweight, weights));
}

void perf_moe_side_check(struct perf_moe_side *side, enum perf_go what)
{
    if (what == PERF_GO_DISPATCH)
        check_dispatch(side);
    else if (what == PERF_GO_COMBINE_BACKWARD)
        check_combine_backward(side);
    else
        check_sum(side, what);
}
