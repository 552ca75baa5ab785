// SPDX-License-Identifier: Apache-2.0
/*
 * Error texts, and where they are found. A text must lead to the call that was
 * wrong, on the rank that made it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* The error text of `comm` must contain `want`, and must not contain
 * `never`. */
static int check_text(const struct shunt_comm *comm, const char *want,
                      const char *never)
{
    const char *text = shunt_last_error(comm);

    CHECK(strstr(text, want), "\"%s\" does not say \"%s\"", text, want);
    CHECK(!never || !strstr(text, never), "\"%s\" says \"%s\"", text, never);
    return 0;
}

/* --- other calls ---------------------------------------------------------- */

/* Rank 0 makes one call of an exchange, the others another one. */
static int texts_name_calls(const struct rank *self)
{
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 4, 2);
    const bool odd = self->rank == 0;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe, *none;
    int32_t expert[2] = {0, 1};
    float x[64] = {0}, rows[4096] = {0};

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_STATUS(self->comm,
                 odd ? shunt_moe_plan_create(moe, expert, NULL, 1, &plan)
                     : shunt_barrier(self->comm),
                 SHUNT_ERR_MISMATCH);
    CHECK_RUN(check_text(self->comm, "moe_plan_create", "allgather u8"));
    CHECK_RUN(check_text(self->comm, "barrier", "root"));
    CHECK_STATUS(self->comm,
                 odd ? shunt_moe_create(self->comm, &c, &none)
                     : shunt_moe_set_placement(moe, NULL, NULL, 0),
                 SHUNT_ERR_MISMATCH);
    CHECK_RUN(check_text(self->comm, "moe_create", "allgather u8"));
    CHECK_RUN(check_text(self->comm, "moe_set_placement", "root"));
    shunt_moe_destroy(moe);

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
    CHECK_STATUS(self->comm,
                 odd ? shunt_moe_dispatch(plan, x, rows, 128)
                     : shunt_moe_combine(plan, rows, NULL, x),
                 SHUNT_ERR_MISMATCH);
    CHECK_RUN(check_text(self->comm, "moe_dispatch", "alltoallv u8"));
    CHECK_RUN(check_text(self->comm, "moe_combine", "root"));
    shunt_moe_destroy(moe);
    return 0;
}

/* Rank 0 calls with another plan than the others. */
static int texts_name_plans(const struct rank *self)
{
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan[2];
    struct shunt_moe *moe;
    int32_t expert[2] = {0, 1};
    float x[64] = {0}, rows[4096] = {0};

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm,
                 shunt_moe_plan_create(moe, expert, NULL, 1, &plan[i]));
    CHECK_STATUS(self->comm,
                 shunt_moe_dispatch(plan[self->rank == 0], x, rows, 128),
                 SHUNT_ERR_MISMATCH);
    CHECK_RUN(check_text(self->comm, "plan", "parameter"));
    CHECK_RUN(check_text(self->comm, "rank 0", "root"));
    CHECK_OK(self->comm, shunt_moe_dispatch(plan[0], x, rows, 128));
    shunt_moe_destroy(moe);
    return 0;
}

/* --- configurations ------------------------------------------------------- */

static int texts_of_configurations(const struct rank *self)
{
    static const enum shunt_moe_mode modes[] = {SHUNT_MOE_TWO_LEVEL,
                                                SHUNT_MOE_ALLGATHER};
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 8, 2);
    struct shunt_moe *moe;

    c.hidden = PTRDIFF_MAX;
    CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c, &moe),
                 SHUNT_ERR_INVALID);
    CHECK_RUN(check_text(self->comm, "hidden is 9223372036854775807", NULL));
    CHECK_RUN(check_text(self->comm, "1 to 288230376151711743", "at least"));
    /* On one node these plans are DIRECT, even with the tree of several
     * nodes. */
    for (int i = 0; i < 2; i++) {
        struct world w;

        c = config_of(16, SHUNT_F32, 8, 2);
        c.mode = modes[i];
        c.tree_ranks = 4 * self->size;
        c.tree_nodes = 2;
        if (shunt_comm_nodes(self->comm) > 1 ||
            (self->size > 1 &&
             !strstr(shunt_comm_transport(self->comm,
                                          (self->rank + 1) % self->size),
                     "map")))
            continue;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        world_init(&w, &c, self->size, world_nodes(self), REALS, 1, 4, 12, 0);
        CHECK_RUN(run_everything(self, moe, &w, WINDOW));
        world_finish(&w);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* --- a buffer that was too small ------------------------------------------ */

enum ender {
    END_BARRIER,
    END_COMBINE,
    END_PLAN,
    END_PLAN_CREATE,
    END_MOE_CREATE,
    END_OVERFLOW,
    END_EXCHANGE,
    ENDERS
};

/* Makes a call after which the lists of the plan have been sent. */
static int use_once(const struct run *run, struct shunt_moe_plan *plan)
{
    struct shunt_moe_rows rows;
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));

    CHECK_OK(run->self->comm,
             shunt_moe_dispatch(plan, run->x,
                                shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
                                rows.total));
    return 0;
}

/* The calls that all ranks make after a failed dispatch, which rank 0 does not
 * repeat. */
static int end_with(struct run *run, enum ender ender)
{
    const struct rank *self = run->self;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    int32_t expert[4] = {0, 1, 2, 3};

    switch (ender) {
    case END_BARRIER:
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        return run_dispatch(run);
    case END_COMBINE:
        return run_combine(run, true);
    case END_PLAN_CREATE:
        CHECK_OK(self->comm,
                 shunt_moe_plan_create(run->moe, expert, NULL, 1, &plan));
        CHECK_RUN(use_once(run, plan));
        shunt_moe_plan_destroy(plan);
        return run_combine(run, false);
    case END_MOE_CREATE:
        CHECK_OK(self->comm,
                 shunt_moe_create(self->comm, &run->world->config, &moe));
        CHECK_OK(self->comm,
                 shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
        CHECK_RUN(use_once(run, plan));
        shunt_moe_destroy(moe);
        return run_combine(run, false);
    case END_OVERFLOW:
        if (self->rank == 0)
            CHECK_STATUS(self->comm,
                         shunt_moe_combine_backward(run->plan, run->x, NULL,
                                                    run->buffer[2], 0, NULL),
                         SHUNT_ERR_OVERFLOW);
        return run_backward(run, true); /* the call is repeated */
    case END_PLAN:
        shunt_moe_plan_destroy(run->plan);
        break;
    default:
        shunt_moe_destroy(run->moe);
        break;
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

static int overflow_not_retried(const struct rank *self)
{
    struct shunt_moe_config c = config_of(24, SHUNT_BF16, 8, 4);

    c.replicas = NULL;
    for (int ender = 0; ender < ENDERS; ender++) {
        struct shunt_moe *moe;
        struct world w;
        struct run run;

        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        world_init(&w, &c, self->size, world_nodes(self), REALS,
                   (uint64_t)ender, 9, 20, 0);
        CHECK_RUN(run_begin(&run, self, moe, &w, ender % 2 ? HEAP : WINDOW));
        run_fill_tokens(&run, run.x, KIND_X);
        if (self->rank == 0) {
            CHECK_STATUS(self->comm,
                         shunt_moe_dispatch(run.plan, run.x, run.buffer[0],
                                            run.rows.total - 1),
                         SHUNT_ERR_OVERFLOW);
            CHECK_RUN(check_text(self->comm, "again", NULL));
            CHECK_RUN(check_text(self->comm, "the other ranks wait", NULL));
        } else {
            CHECK_STATUS(self->comm,
                         shunt_moe_dispatch(run.plan, run.x, run.buffer[0],
                                            run.rows.total),
                         SHUNT_ERR_REMOTE);
            CHECK_RUN(check_text(self->comm, "rank 0", NULL));
            CHECK_RUN(check_text(self->comm, "too small", NULL));
        }
        CHECK_RUN(end_with(&run, (enum ender)ender));
        CHECK_RUN(run_end(&run));
        world_finish(&w);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* --- where texts are found ------------------------------------------------ */

/* Two communicators, with an exchange and a plan each. */
static int texts_of_two_comms(const struct rank *self)
{
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 4, 2);
    struct shunt_comm *comm[2] = {self->comm, NULL};
    struct shunt_moe *moe[2];
    struct shunt_moe_plan *plan[2];
    int32_t expert[2] = {0, 9};
    float rows[4096] = {0};
    char first[512];

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm[1]));
    for (int i = 0; i < 2; i++) {
        expert[1] = 1;
        CHECK_OK(comm[i], shunt_moe_create(comm[i], &c, &moe[i]));
        CHECK_OK(comm[i],
                 shunt_moe_plan_create(moe[i], expert, NULL, 1, &plan[i]));
    }
    CHECK_STATUS(comm[0], shunt_moe_dispatch(plan[0], NULL, rows, 128),
                 SHUNT_ERR_INVALID);
    CHECK_RUN(check_text(comm[0], "x is NULL", NULL));
    CHECK_RUN(check_text(NULL, "x is NULL", NULL));
    snprintf(first, sizeof(first), "%s", shunt_last_error(comm[0]));
    expert[1] = 9;
    CHECK_STATUS(comm[1],
                 shunt_moe_plan_create(moe[1], expert, NULL, 1, &plan[1]),
                 SHUNT_ERR_INVALID);
    CHECK_RUN(check_text(comm[1], "slot 1 is 9", NULL));
    CHECK_RUN(check_text(NULL, "slot 1 is 9", NULL));
    CHECK(!strcmp(first, shunt_last_error(comm[0])), "it changed to \"%s\"",
          shunt_last_error(comm[0]));
    /* The text must name the call that the program made, not the operation
     * inside of it. */
    CHECK_OK(comm[1], shunt_comm_finish(comm[1]));
    expert[1] = 1;
    CHECK_STATUS(comm[1],
                 shunt_moe_plan_create(moe[1], expert, NULL, 1, &plan[1]),
                 SHUNT_ERR_INVALID);
    CHECK_RUN(check_text(comm[1], "moe_plan_create after", "allgather"));
    for (int i = 0; i < 2; i++)
        shunt_moe_destroy(moe[i]);
    shunt_comm_destroy(comm[1]);
    return 0;
}

/* Rank 0's calls are bad. The errors of the other ranks' requests must name the
 * call of each. */
static int texts_of_requests(const struct rank *self)
{
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 4, 2);
    const bool bad = self->rank == 0;

    for (int turn = 0; turn < 2; turn++) {
        struct shunt_request *q[2] = {NULL, NULL};
        struct shunt_moe_plan *plan;
        struct shunt_moe *moe;
        int32_t expert[2] = {0, 1};
        float x[64] = {0}, y[64], rows[4096] = {0}, out[4096] = {0};
        enum shunt_status st[2];

        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        CHECK_OK(self->comm,
                 shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
        st[0] =
            shunt_moe_dispatch_start(plan, bad ? NULL : x, rows, 128, &q[0]);
        st[1] = shunt_moe_combine_start(plan, out, NULL, bad ? NULL : y, &q[1]);
        for (int i = 0; i < 2; i++)
            CHECK(st[i] == (bad ? SHUNT_ERR_INVALID : SHUNT_OK), "call %d: %s",
                  i, rank_why(self->comm, st[i]));
        if (!bad && turn == 0) {
            CHECK_STATUS(self->comm, shunt_wait(&q[1]), SHUNT_ERR_REMOTE);
            CHECK_RUN(check_text(self->comm, "moe_combine", "moe_dispatch"));
            CHECK_STATUS(self->comm, shunt_wait(&q[0]), SHUNT_ERR_REMOTE);
            CHECK_RUN(check_text(self->comm, "moe_dispatch", "moe_combine"));
        } else if (!bad) {
            CHECK_STATUS(self->comm, shunt_wait_all(q, 2), SHUNT_ERR_REMOTE);
            CHECK_RUN(check_text(self->comm, "moe_dispatch", "moe_combine"));
        }
        if (!bad)
            CHECK_RUN(check_text(NULL, "moe_dispatch", "moe_combine"));
        shunt_moe_destroy(moe);
    }
    return 0;
}

const struct rank_case texts_cases[] = {
    {"texts_name_calls", texts_name_calls, .min_ranks = 2},
    {"texts_name_plans", texts_name_plans, .min_ranks = 2},
    {.name = "texts_of_configurations", .run = texts_of_configurations},
    {"overflow_not_retried", overflow_not_retried, .min_ranks = 2},
    {.name = "texts_of_two_comms", .run = texts_of_two_comms},
    {"texts_of_requests", texts_of_requests, .min_ranks = 2},
    {.name = NULL},
};
