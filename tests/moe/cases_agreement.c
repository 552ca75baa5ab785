// SPDX-License-Identifier: Apache-2.0
/*
 * One rank makes another call than the others, calls too late, or calls no
 * more. The errors of the other ranks must name that rank.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* Starts a call in each of its parts, so that all are under way at once.
 * Returns the first error. */
static enum shunt_status call_in_parts(struct run *run, int which)
{
    struct shunt_request *q[SHUNT_MOE_PARTS_MAX] = {NULL};
    enum shunt_status st = SHUNT_OK, waited;

    for (int p = 0; p < run->rows.parts && !st; p++)
        st = run_start_part(run, which, p, false, false, &q[p]);
    waited = shunt_wait_all(q, (size_t)run->rows.parts);
    return st ? st : waited;
}

/* The ranks call until rank 1 is killed. The error must name rank 1. */
static int loss(const struct rank *self)
{
    struct shunt_moe_config c = config_of(512, SHUNT_BF16, 8, 2);
    struct shunt_moe *moe;
    struct world w;
    struct run run;
    enum shunt_status st = SHUNT_OK;
    const int *lost;
    size_t nlost;

    world_init(&w, &c, self->size, world_nodes(self), INTEGERS, 2, 30, 60, 0);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_X);
    rank_say("in the loop");
    while (st == SHUNT_OK) {
        st = call_in_parts(&run, 0);
        if (st == SHUNT_OK)
            st = shunt_moe_combine(run.plan, run.buffer[0], NULL, run.y);
        if (st == SHUNT_OK)
            st = call_in_parts(&run, 1);
    }
    CHECK(st == SHUNT_ERR_PEER, "%s", rank_why(self->comm, st));
    CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "%s",
          shunt_last_error(self->comm));
    CHECK_OK(NULL, shunt_comm_lost(self->comm, &lost, &nlost));
    CHECK(nlost == 1 && lost[0] == 1, "%zu lost", nlost);
    CHECK_STATUS(self->comm,
                 shunt_moe_combine(run.plan, run.buffer[0], NULL, run.y),
                 SHUNT_ERR_PEER);
    CHECK_RUN(run_end(&run));
    shunt_moe_destroy(moe);
    world_finish(&w);
    return 0;
}

/* Only rank 0's plan is stale: the errors of the others must name it. */
static int s11_stale_on_one_rank(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct world w;
    float x[64] = {0}, rows[1024];
    enum shunt_status st;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, plan_of(self, moe, &w, &plan));
    if (self->rank == 0)
        shunt_moe_plan_destroy(plan);
    st = shunt_moe_dispatch(plan, x, rows, 170);
    CHECK(st == (self->rank ? SHUNT_ERR_REMOTE : SHUNT_ERR_INVALID), "%s",
          rank_why(self->comm, st));
    CHECK(!self->rank || strstr(shunt_last_error(self->comm), "rank 0"), "%s",
          shunt_last_error(self->comm));
    if (self->rank)
        shunt_moe_plan_destroy(plan);
    CHECK_RUN(run_everything(self, moe, &w, WINDOW));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* One rank does not call: the errors of the others must name it. */
static int s15_timeout_names(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct world w;
    float x[64] = {0}, rows[1024];
    int last = self->size - 1;
    enum shunt_status st;
    char want[32];

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, plan_of(self, moe, &w, &plan));
    if (self->rank == last) {
        /* Wait until the others have given up. This rank may not notice that,
         * because it is outside of the library. */
        for (int i = 0; i < 250 && !shunt_comm_async_status(self->comm); i++) {
            struct timespec nap = {0, 20000000};

            nanosleep(&nap, NULL);
        }
    } else {
        st = shunt_moe_dispatch(plan, x, rows, 170);
        /* The status is the same if another rank timed out first and reported
         * it. */
        CHECK(st == SHUNT_ERR_TIMEOUT, "%s", rank_why(self->comm, st));
        snprintf(want, sizeof(want), "rank %d", last);
        CHECK(strstr(shunt_last_error(self->comm), want), "%s",
              shunt_last_error(self->comm));
    }
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    world_finish(&w);
    return 0;
}

static int s18_config_differs(const struct rank *self)
{
    static const char *const field[] = {"hidden",
                                        "dtype",
                                        "experts",
                                        "topk",
                                        "max_tokens",
                                        "weights",
                                        "wire",
                                        "placement",
                                        "replicas",
                                        "row_align",
                                        "plans_in_flight",
                                        "capacity_factor",
                                        "drop",
                                        "pad_to_capacity",
                                        "tree_ranks",
                                        "mode",
                                        "partials",
                                        "tree_nodes",
                                        "combine_mode",
                                        "order"};
    int odd = self->size - 1;
    int32_t home[8] = {0};
    struct shunt_moe_replica copy = {7, self->size - 1};

    for (int f = 0; f < 20; f++) {
        struct shunt_moe_config c = config_of(30, SHUNT_F32, 8, 2);
        struct shunt_moe *moe;
        const char *why;
        char want[32];

        c.capacity_factor = 1;
        c.tree_ranks = f == 17 ? self->size : 0;
        if (f == 8)
            c.placement = home;
        if (self->rank == odd) {
            c.hidden += f == 0;
            c.dtype = f == 1 ? SHUNT_BF16 : SHUNT_F32;
            c.experts += f == 2;
            c.topk += f == 3;
            c.max_tokens += f == 4;
            c.weights = f == 5 ? SHUNT_MOE_PLAIN_SUM : c.weights;
            c.wire = f == 6 ? SHUNT_MOE_WIRE_FP8 : c.wire;
            c.placement = f == 7 ? home : c.placement;
            if (f == 8) {
                c.replicas = &copy;
                c.nreplicas = 1;
            }
            c.row_align = f == 9 ? 8 : 0;
            c.plans_in_flight = f == 10 ? 7 : 0;
            c.capacity_factor += f == 11;
            c.drop = f == 12 ? SHUNT_MOE_DROP_WEIGHT : c.drop;
            c.pad_to_capacity = f == 13;
            c.tree_ranks = f == 14 || f == 17 ? self->size : 0;
            c.tree_nodes = f == 17;
            c.mode = f == 15 ? SHUNT_MOE_FLAT : SHUNT_MOE_AUTO;
            c.combine_mode = f == 18 ? SHUNT_MOE_FLAT : SHUNT_MOE_AUTO;
            c.order = f == 19 ? SHUNT_MOE_ORDER_HOMES : c.order;
            c.partials =
                f == 16 ? SHUNT_MOE_PARTIALS_DTYPE : SHUNT_MOE_PARTIALS_F32;
        }
        CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c, &moe),
                     SHUNT_ERR_MISMATCH);
        why = shunt_last_error(self->comm);
        snprintf(want, sizeof(want), "rank %d", self->rank == odd ? 0 : odd);
        CHECK(strstr(why, field[f]) && strstr(why, want),
              "\"%s\" does not name %s and %s", why, field[f], want);
    }
    return 0;
}

/* Rank 0 makes one call, the others another one; then all make the same
 * call. */
static int two_calls(struct run *run, int first, int others)
{
    struct shunt_comm *comm = run->self->comm;
    enum shunt_status st = run_call(run, run->self->rank ? others : first);
    const char *theirs = run_call_names[run->self->rank ? first : others];

    CHECK(st == SHUNT_ERR_MISMATCH, "%s", rank_why(comm, st));
    CHECK(strstr(shunt_last_error(comm), theirs), "\"%s\" does not say %s",
          shunt_last_error(comm), theirs);
    CHECK_RUN(run_dispatch(run));
    return run_combine(run, false);
}

static int any_two_calls(const struct rank *self, const struct world *w,
                         struct shunt_moe *moe)
{
    struct run run;

    CHECK_RUN(run_begin(&run, self, moe, w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_X);
    run_fill_rows(&run, run.buffer[1], KIND_OUT);
    run_fill_rows(&run, run.buffer[3], KIND_DROWS);
    for (int first = 0; first < RUN_CALLS; first++)
        for (int others = 0; others < RUN_CALLS; others++)
            if (first != others)
                CHECK_RUN(two_calls(&run, first, others));
    return run_end(&run);
}

/* As s18_call_order, with directions of different modes. One of the two calls
 * then has more operations than the other. */
static int s18_call_order_of_pairs(const struct rank *self)
{
    static const enum shunt_moe_mode pairs[][2] = {
        {SHUNT_MOE_FLAT, SHUNT_MOE_DIRECT},
        {SHUNT_MOE_DIRECT, SHUNT_MOE_FLAT},
        {SHUNT_MOE_FLAT, SHUNT_MOE_TWO_LEVEL},
        {SHUNT_MOE_TWO_LEVEL, SHUNT_MOE_FLAT},
    };

    for (int i = 0; i < (shunt_comm_nodes(self->comm) > 1 ? 4 : 2); i++) {
        struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
        enum shunt_status st;
        struct shunt_moe *moe;
        struct world w;

        c.mode = pairs[i][0];
        c.combine_mode = pairs[i][1];
        st = shunt_moe_create(self->comm, &c, &moe);
        if (st == SHUNT_ERR_UNSUPPORTED)
            continue;
        CHECK(st == SHUNT_OK, "%s", rank_why(self->comm, st));
        world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
        CHECK_RUN(any_two_calls(self, &w, moe));
        shunt_moe_destroy(moe);
        world_finish(&w);
    }
    return 0;
}

/* A call in one direction may have fewer operations than one in the other. A
 * rank that makes another collective instead must not wait for the missing
 * ones. */
static int s18_other_collective(const struct rank *self)
{
    for (int call = 0; call < 2; call++) {
        struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
        struct rank other = *self;
        enum shunt_status st;
        struct shunt_moe *moe;
        struct world w;
        struct run run;
        int operations;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other.comm));
        world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
        CHECK_OK(other.comm, shunt_moe_create(other.comm, &c, &moe));
        CHECK_RUN(run_begin(&run, &other, moe, &w, WINDOW));
        run_fill_tokens(&run, run.x, KIND_X);
        run_fill_rows(&run, run.buffer[1], KIND_OUT);
        /* As many operations as a call of this exchange has. */
        operations =
            self->rank == 0 && (run.rows.mode == SHUNT_MOE_FLAT ||
                                run.rows.combine_mode == SHUNT_MOE_FLAT)
                ? 2
                : 1;
        for (int i = 0; i < operations; i++) {
            st = self->rank ? run_call(&run, call) : shunt_barrier(other.comm);
            CHECK(st == SHUNT_ERR_MISMATCH, "call %d: %s", call,
                  rank_why(other.comm, st));
        }
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK_RUN(run_end(&run));
        shunt_moe_destroy(moe);
        shunt_comm_destroy(other.comm);
        world_finish(&w);
    }
    return 0;
}

/* The other ranks start two requests, for other calls than rank 0 does. After
 * the errors all ranks must be in step again. */
static int s18_in_flight(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_request *q[2];
    struct shunt_moe *moe;
    struct run run[2];
    struct world w;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < 2; i++) {
        CHECK_RUN(run_begin(&run[i], self, moe, &w, WINDOW));
        run_fill_tokens(&run[i], run[i].x, KIND_X);
        run_fill_rows(&run[i], run[i].buffer[1], KIND_OUT);
    }
    CHECK_RUN(run_dispatch(&run[0]));
    CHECK_RUN(run_dispatch(&run[1]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm,
                 self->rank == 0
                     ? shunt_moe_combine_start(run[i].plan, run[i].buffer[1],
                                               NULL, run[i].y, &q[i])
                     : shunt_moe_dispatch_start(run[i].plan, run[i].x,
                                                run[i].buffer[0],
                                                run[i].rows.total, &q[i]));
    for (int i = 0; i < 2; i++) {
        enum shunt_status st = shunt_wait(&q[i]);

        CHECK(st == SHUNT_ERR_MISMATCH, "%d: %s", i, rank_why(self->comm, st));
    }
    CHECK_RUN(run_dispatch(&run[0]));
    CHECK_RUN(run_combine(&run[1], false));
    CHECK_RUN(run_end(&run[0]));
    CHECK_RUN(run_end(&run[1]));
    shunt_moe_destroy(moe);
    world_finish(&w);
    return 0;
}

static int s18_call_order(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan[2];
    struct shunt_moe *moe[2];
    struct world w;
    enum shunt_status st;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[0]));
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[1]));
    /* Rank 0 makes a plan of the second exchange, the others of the first. */
    CHECK_STATUS(self->comm, plan_of(self, moe[self->rank == 0], &w, &plan[0]),
                 SHUNT_ERR_MISMATCH);
    CHECK(strstr(shunt_last_error(self->comm), "exchange"), "%s",
          shunt_last_error(self->comm));
    /* Now rank 1 makes a plan of the second exchange, without weights. */
    st = shunt_moe_plan_create(moe[self->rank == 1], w.expert[self->rank], NULL,
                               w.tokens[self->rank], &plan[0]);
    CHECK(st == SHUNT_ERR_MISMATCH, "%s", rank_why(self->comm, st));
    shunt_moe_destroy(moe[0]);
    shunt_moe_destroy(moe[1]);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[0]));
    CHECK_RUN(any_two_calls(self, &w, moe[0]));
    shunt_moe_destroy(moe[0]);
    world_finish(&w);
    return 0;
}

static int s18_dweight_differs(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe *moe;
    struct world w;
    struct run run;
    enum shunt_status st;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 0);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_DY);
    run_fill_rows(&run, run.buffer[1], KIND_OUT);
    st = shunt_moe_combine_backward(run.plan, run.x, run.buffer[1],
                                    run.buffer[2], run.rows.total,
                                    self->rank ? run.dweight : NULL);
    if (self->rank == 0)
        CHECK(st == SHUNT_ERR_MISMATCH, "%s", rank_why(self->comm, st));
    CHECK_RUN(run_backward(&run, true));
    CHECK_RUN(run_end(&run));
    shunt_moe_destroy(moe);
    world_finish(&w);
    return 0;
}

/* Rank 0 passes ids of 64 bits, as PyTorch has them; the others pass 32
 * bits. */
static int wide_ids(const struct rank *self)
{
    enum { TOKENS = 16, TOPK = 2 };

    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, TOPK);
    const bool wide = self->rank == 0;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    int64_t ids[TOKENS * TOPK];
    int32_t narrow[TOKENS * TOPK];

    for (int i = 0; i < TOKENS * TOPK; i++) {
        ids[i] = i % 7 == 6 ? -1 : i % 4;
        narrow[i] = (int32_t)ids[i];
    }
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm,
             shunt_moe_plan_create(moe, wide ? (const void *)ids : narrow, NULL,
                                   TOKENS, &plan));
    shunt_moe_destroy(moe);
    return 0;
}

/* A rank without tokens has no dweight to ask for. If it has rows, it must
 * still pass `out` when other ranks ask for dweight. */
static int s18_out_is_missing(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 4);
    struct shunt_moe *moe;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int idle = 0; idle < self->size; idle++) {
        struct world w;
        struct run run;
        enum shunt_status st;

        /* Each token goes to all experts. */
        world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 0);
        for (int r = 0; r < self->size; r++)
            for (size_t i = 0; i < w.tokens[r] * 4; i++)
                w.expert[r][i] = (int32_t)(i % 4);
        w.tokens[idle] = 0;
        world_lay_out(&w);
        CHECK_RUN(run_begin(&run, self, moe, &w, HEAP));
        run_fill_tokens(&run, run.x, KIND_DY);
        run_fill_rows(&run, run.buffer[1], KIND_OUT);
        st = shunt_moe_combine_backward(
            run.plan, run.x, self->rank == idle ? NULL : run.buffer[1],
            run.buffer[2], run.rows.total, run.dweight);
        if (self->rank == idle ? !run.rows.total : !w.rows[idle].total)
            CHECK_OK(self->comm, st);
        else if (self->rank != idle)
            CHECK(st == SHUNT_ERR_MISMATCH || st == SHUNT_ERR_REMOTE, "%s",
                  rank_why(self->comm, st));
        /* Between nodes, a rank may get this error from the relay's answer. */
        if (st == SHUNT_ERR_MISMATCH)
            CHECK(strstr(shunt_last_error(self->comm), "no `out`") ||
                      strstr(shunt_last_error(self->comm), "refused what"),
                  "%s", shunt_last_error(self->comm));
        CHECK_RUN(run_backward(&run, true));
        CHECK_RUN(run_end(&run));
        world_finish(&w);
    }
    shunt_moe_destroy(moe);
    return 0;
}

const struct rank_case agreement_cases[] = {
    {"loss", loss, .min_ranks = 2, .breaks_comm = true, .no_threads = true},
    {"s11_stale_on_one_rank", s11_stale_on_one_rank, .min_ranks = 2},
    {"s15_timeout_names", s15_timeout_names, .min_ranks = 2,
     .breaks_comm = true, .no_threads = true},
    {"s18_config_differs", s18_config_differs, .min_ranks = 2},
    {"s18_call_order", s18_call_order, .min_ranks = 2},
    {"s18_call_order_of_pairs", s18_call_order_of_pairs, .min_ranks = 2},
    {"s18_other_collective", s18_other_collective, .min_ranks = 2},
    {"s18_in_flight", s18_in_flight, .min_ranks = 2},
    {"s18_dweight_differs", s18_dweight_differs, .min_ranks = 2},
    {"wide_ids", wide_ids, .min_ranks = 2},
    {"s18_out_is_missing", s18_out_is_missing, .min_ranks = 2},
    {.name = NULL},
};
