// SPDX-License-Identifier: Apache-2.0
/*
 * Ending communicators, exchanges, plans and requests: in any order, more than
 * once, and ten thousand times.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* --- resources that remain after an exchange ------------------------------ */

/* The number of descriptors of this process. */
static size_t descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* The number of mapped windows. (Other mappings change with the heap.) */
static size_t windows(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    size_t n = 0;

    while (maps && fgets(line, sizeof(line), maps))
        n += strstr(line, "shunt-window") != NULL;
    if (maps)
        fclose(maps);
    return n;
}

/* Configurations of several kinds, by number. */
static struct shunt_moe_config kind_of_exchange(uint64_t number)
{
    struct shunt_moe_config c =
        config_of(8 + 8 * (number % 3), number % 2 ? SHUNT_F32 : SHUNT_BF16,
                  3 + (int)(number % 4), 2);

    c.max_tokens = 16;
    c.plans_in_flight = 2 + (int)(number % 5);
    return c;
}

/* Uses an exchange with `plans` plans, and checks all results. */
static int use_exchange(const struct rank *self, struct shunt_moe *moe,
                        const struct shunt_moe_config *c, uint64_t number,
                        int plans)
{
    struct world w;

    world_init(&w, c, self->size, world_nodes(self), REALS, number, 0, 16, 10);
    for (int i = 0; i < plans; i++) {
        struct run run;

        CHECK_RUN(run_begin(&run, self, moe, &w, i ? HEAP : WINDOW));
        CHECK_RUN(run_dispatch(&run));
        CHECK_RUN(run_combine(&run, false));
        CHECK_RUN(run_end(&run));
    }
    world_finish(&w);
    return 0;
}

/* argv[0]: the number of exchanges. The limit of descriptors is low, so that a
 * leak is noticed. */
static int exchanges_come_and_go(const struct rank *self)
{
    const uint64_t cycles =
        self->argc > 0 ? strtoull(self->argv[0], NULL, 10) : 300;
    struct rlimit limit;
    size_t before = 0, mapped = 0;

    if (!self->threads) {
        CHECK(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
        limit.rlim_cur = 256;
        CHECK(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    }
    for (uint64_t i = 0; i < cycles; i++) {
        struct shunt_moe_config c = kind_of_exchange(i % 60);
        struct shunt_moe_plan *plan;
        struct shunt_moe *moe;

        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        if (i % 20 == 0) {
            CHECK_RUN(use_exchange(self, moe, &c, i, 2));
        } else {
            int32_t expert[2] = {0, (int32_t)i % 3};

            CHECK_OK(self->comm,
                     shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
            if (i % 2) /* otherwise its exchange destroys it */
                shunt_moe_plan_destroy(plan);
        }
        shunt_moe_destroy(moe);
        if (i == 60) {
            before = descriptors();
            mapped = windows();
        }
    }
    if (self->threads)
        return 0; /* the other ranks are in another case */
    /* A helper thread may have been created since, which has a descriptor. */
    CHECK(descriptors() <= before + 1, "%zu descriptors, %zu before",
          descriptors(), before);
    CHECK(windows() <= mapped, "%zu windows, %zu before", windows(), mapped);
    return 0;
}

/* Several exchanges at a time, which each rank destroys at another time. The
 * windows of an exchange that some rank still has must not be used for another
 * one. */
static int exchanges_overlap(const struct rank *self)
{
    enum { ALIVE = 4, CYCLES = 40 };
    struct shunt_moe *moe[CYCLES + ALIVE] = {NULL};

    for (uint64_t i = 0; i < CYCLES; i++) {
        struct shunt_moe_config c = kind_of_exchange(i);
        uint64_t late = mix(5, i, (uint64_t)self->rank, 0) % ALIVE,
                 first = i - i % ALIVE;

        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[i]));
        CHECK_RUN(use_exchange(self, moe[i], &c, i, 1));
        /* One of the last exchanges, another one on each rank. It may have been
         * destroyed already. */
        shunt_moe_destroy(moe[first + late]);
        if (i >= ALIVE)
            shunt_moe_destroy(moe[i - ALIVE]);
    }
    for (uint64_t i = 0; i < CYCLES; i++)
        shunt_moe_destroy(moe[i]);
    return 0;
}

/* --- handles of destroyed objects ----------------------------------------- */

/* Makes every call that takes these handles. */
static int check_dead(struct shunt_moe *moe, struct shunt_moe_plan *plan)
{
    struct shunt_moe_plan *none;
    struct shunt_request *q;
    int32_t expert[2] = {0, 1};
    float x[16] = {0}, rows[256] = {0};
    struct shunt_moe_rows sizes;

    CHECK_STATUS(NULL, shunt_moe_plan_create(moe, expert, NULL, 1, &none),
                 SHUNT_ERR_INVALID);
    CHECK(!none, "a plan all the same");
    CHECK(strstr(shunt_last_error(NULL), "destroyed"), "%s",
          shunt_last_error(NULL));
    CHECK_STATUS(NULL, shunt_moe_set_placement(moe, NULL, NULL, 0),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL, shunt_moe_dispatch(plan, x, rows, 32),
                 SHUNT_ERR_INVALID);
    CHECK(strstr(shunt_last_error(NULL), "destroyed"), "%s",
          shunt_last_error(NULL));
    CHECK_STATUS(NULL, shunt_moe_combine_start(plan, rows, NULL, x, &q),
                 SHUNT_ERR_INVALID);
    CHECK(!q, "a request all the same");
    CHECK_STATUS(NULL,
                 shunt_moe_combine_backward(plan, x, NULL, rows, 32, NULL),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL, shunt_moe_dispatch_backward(plan, rows, x),
                 SHUNT_ERR_INVALID);
    shunt_moe_plan_rows(plan, &sizes, sizeof(sizes));
    CHECK(sizes.total == 0, "sizes");
    CHECK(shunt_moe_buffer(plan, SHUNT_MOE_ROWS) == NULL, "a buffer");
    return 0;
}

/* Communicator, exchange and plan are destroyed in every order, each twice. */
static int handles_in_any_order(const struct rank *self)
{
    static const char orders[6][4] = {"cmp", "cpm", "mcp", "mpc", "pcm", "pmc"};

    for (int i = 0; i < 6; i++) {
        struct shunt_moe_config c = kind_of_exchange((uint64_t)i);
        int32_t expert[2] = {0, 1};
        struct shunt_moe_plan *plan;
        struct shunt_moe *moe;
        struct shunt_comm *comm;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
        CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
        CHECK_OK(comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
        CHECK_OK(comm, shunt_barrier(comm));
        for (const char *order = orders[i]; *order; order++)
            for (int twice = 0; twice < 2; twice++) {
                if (*order == 'c')
                    shunt_comm_destroy(comm);
                else if (*order == 'm')
                    shunt_moe_destroy(moe);
                else
                    shunt_moe_plan_destroy(plan);
            }
        CHECK_RUN(check_dead(moe, plan));
        shunt_comm_destroy(comm);
        shunt_moe_destroy(moe);
        shunt_moe_plan_destroy(plan);
    }
    return 0;
}

/* Every call on a destroyed communicator must fail. */
static int calls_on_a_dead_comm(const struct rank *self)
{
    struct shunt_comm *comm, *other;
    struct shunt_moe_config c = kind_of_exchange(1);
    struct shunt_moe *moe;
    struct shunt_comm_stats stats;
    const int *lost;
    size_t nlost;
    int64_t one = 1, sum[64];
    void *memory;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
    shunt_comm_destroy(comm);
    CHECK_STATUS(comm, shunt_barrier(comm), SHUNT_ERR_INVALID);
    CHECK(strstr(shunt_last_error(comm), "destroyed"), "%s",
          shunt_last_error(comm));
    CHECK_STATUS(comm, shunt_allgather(comm, &one, sum, 1, SHUNT_I64),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(comm,
                 shunt_allreduce(comm, &one, sum, 1, SHUNT_I64, SHUNT_SUM),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_broadcast(comm, &one, 1, SHUNT_I64, 0),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_mem_alloc(comm, 4096, &memory), SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_mem_free(comm, NULL), SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_moe_create(comm, &c, &moe), SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_comm_dup(comm, &other), SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_comm_shrink(comm, &other), SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_comm_finish(comm), SHUNT_ERR_INVALID);
    CHECK(shunt_comm_async_status(comm) == SHUNT_ERR_INVALID, "it lives");
    CHECK_OK(comm, shunt_comm_lost(comm, &lost, &nlost));
    CHECK(nlost == 0, "%zu lost", nlost);
    CHECK_OK(comm, shunt_comm_get_stats(comm, &stats, sizeof(stats)));
    shunt_comm_abort(comm);
    shunt_comm_destroy(comm);
    CHECK(strstr(shunt_last_error(NULL), "already"), "%s",
          shunt_last_error(NULL));
    return 0;
}

/* Requests that outlive their communicator: one that is done, an unfinished
 * one, and one of dispatch. */
static int requests_of_a_dead_comm(const struct rank *self)
{
    struct shunt_moe_config c = kind_of_exchange(1);
    struct shunt_request *q[3];
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct shunt_comm *comm;
    int32_t expert[2] = {0, 1};
    float x[64] = {0}, rows[4096] = {0};
    int64_t one = 1, sum = 0;
    enum shunt_status st;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
    CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
    CHECK_OK(comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
    /* The first dispatch waits for the lists of rows that are sent after the
     * plan was made. */
    CHECK_OK(comm, shunt_moe_dispatch(plan, x, rows, 128));
    CHECK_OK(comm, shunt_moe_dispatch_start(plan, x, rows, 128, &q[0]));
    CHECK_OK(comm, shunt_allreduce_start(comm, &one, &sum, 1, SHUNT_I64,
                                         SHUNT_SUM, &q[1]));
    /* A rank that is ahead may have destroyed its communicator while the
     * dispatch here still needs it. Then these calls fail. No other rank makes
     * the last call. */
    st = shunt_barrier(comm);
    CHECK(!st || st == SHUNT_ERR_PEER, "%s", rank_why(comm, st));
    q[2] = NULL;
    st = shunt_barrier_start(comm, &q[2]);
    CHECK(!st || st == SHUNT_ERR_PEER, "%s", rank_why(comm, st));
    shunt_comm_destroy(comm);
    for (int i = 0; i < 3; i++) {
        if (!q[i])
            continue; /* it was not started */
        st = i == 1 ? shunt_test(&q[i]) : shunt_wait(&q[i]);
        /* Done, failed, or refused: but never still under way. */
        CHECK(st == SHUNT_ERR_INVALID || st == SHUNT_ERR_PEER || st == SHUNT_OK,
              "request %d: %s", i, rank_why(comm, st));
        CHECK(!q[i], "request %d is still there", i);
    }
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    return 0;
}

/*
 * Lists of rows are sent after a plan was made, and no call waits for them
 * here. The communicator is destroyed when all ranks have entered a barrier. A
 * rank that is still in the barrier must not count a rank that has left as
 * lost.
 */
static int plan_without_use(const struct rank *self)
{
    enum { TOKENS = 40000, TOPK = 2 };
    struct shunt_moe_config c = kind_of_exchange(1);
    int32_t *expert = malloc(TOKENS * TOPK * sizeof(*expert));

    c.max_tokens = TOKENS;
    c.topk = TOPK;
    for (int i = 0; i < TOKENS * TOPK; i++)
        expert[i] = (self->rank + i * 7) % (int)c.experts;
    for (int round = 0; round < 10; round++) {
        struct shunt_moe_plan *plan;
        struct shunt_moe *moe;
        struct shunt_comm *comm;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
        CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
        CHECK_OK(comm, shunt_moe_plan_create(moe, expert, NULL, TOKENS, &plan));
        if (round % 2) {
            shunt_moe_plan_destroy(plan);
            shunt_moe_destroy(moe);
        }
        CHECK_OK(comm, shunt_barrier(comm));
        shunt_comm_destroy(comm);
        if (!(round % 2)) {
            shunt_moe_plan_destroy(plan);
            shunt_moe_destroy(moe);
        }
    }
    free(expert);
    return 0;
}

/* Pointers that were never handles, or are handles of another kind. */
static int foreign_handles(const struct rank *self)
{
    struct shunt_moe_config c = kind_of_exchange(2);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    int32_t expert[2] = {0, 1};
    float x[64] = {0}, rows[4096] = {0};

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
    CHECK_STATUS(NULL,
                 shunt_moe_dispatch((struct shunt_moe_plan *)moe, x, rows, 128),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL,
                 shunt_moe_dispatch((struct shunt_moe_plan *)x, x, rows, 128),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(
        NULL, shunt_moe_set_placement((struct shunt_moe *)plan, NULL, NULL, 0),
        SHUNT_ERR_INVALID);
    shunt_moe_destroy((struct shunt_moe *)plan);
    shunt_moe_plan_destroy((struct shunt_moe_plan *)moe);
    shunt_moe_plan_destroy((struct shunt_moe_plan *)UINTPTR_MAX);
    shunt_moe_destroy((struct shunt_moe *)(UINTPTR_MAX - 2));
    CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, 128));
    shunt_moe_destroy(moe);
    return 0;
}

/* A new exchange with more plans than the one whose slot it gets. */
static int handles_of_a_larger_exchange(const struct rank *self)
{
    struct shunt_moe_config c = kind_of_exchange(0);
    struct shunt_moe_plan *plan[4];
    struct shunt_moe *moe;
    struct shunt_comm *comm;
    int32_t expert[2] = {0, 1};
    float x[64] = {0}, rows[4096] = {0};

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
    c.plans_in_flight = 2;
    CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
    shunt_moe_destroy(moe);
    c.plans_in_flight = 4;
    CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
    for (int i = 0; i < 4; i++)
        CHECK_OK(comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan[i]));
    for (int i = 3; i >= 0; i--) {
        shunt_moe_plan_destroy(plan[i]);
        CHECK_STATUS(comm, shunt_moe_dispatch(plan[i], x, rows, 128),
                     SHUNT_ERR_INVALID);
        CHECK(strstr(shunt_last_error(comm), "destroyed"), "plan %d: %s", i,
              shunt_last_error(comm));
    }
    CHECK_OK(comm, shunt_barrier(comm));
    shunt_comm_destroy(comm);
    return 0;
}

/* There was no memory for the buffers of an exchange. The next exchange in that
 * slot must know that it has none. */
static int buffers_after_a_failure(const struct rank *self)
{
    struct shunt_moe_config c = kind_of_exchange(0), large = c;
    int32_t expert[2] = {0, 1};
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct shunt_comm *comm;
    struct rank on = *self;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
    on.comm = comm;
    CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
    CHECK_RUN(use_exchange(&on, moe, &c, 0, 1));
    shunt_moe_destroy(moe);
    large.hidden = 1 << 20;
    large.dtype = SHUNT_F32;
    for (int more = 0; more < 2; more++) {
        /* More than the address space; or the largest allowed configuration,
         * and a quarter more. */
        large.max_tokens =
            more ? SIZE_MAX / 16 / (2 * 4 * large.hidden) : (size_t)1 << 30;
        CHECK_OK(comm, shunt_moe_create(comm, &large, &moe));
        CHECK_STATUS(comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan),
                     SHUNT_ERR_MEMORY);
        CHECK(strncmp(shunt_last_error(comm), "moe_plan_create: ", 17) == 0,
              "%s", shunt_last_error(comm));
        shunt_moe_destroy(moe);
    }
    CHECK_OK(comm, shunt_moe_create(comm, &c, &moe));
    CHECK_RUN(use_exchange(&on, moe, &c, 1, 1));
    CHECK_OK(comm, shunt_barrier(comm));
    shunt_comm_destroy(comm);
    return 0;
}

/* Only rank 0 has destroyed the exchange: the errors of the others must name
 * it. */
static int destroyed_on_one_rank(const struct rank *self)
{
    struct shunt_moe_config c = kind_of_exchange(3);
    struct shunt_moe_plan *plan, *none;
    struct shunt_moe *moe;
    int32_t expert[2] = {0, 1};
    float x[64] = {0}, rows[4096] = {0};

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, expert, NULL, 1, &plan));
    if (self->rank == 0)
        shunt_moe_destroy(moe);
    for (int i = 0; i < 4; i++) {
        enum shunt_status st =
            i == 0 ? shunt_moe_dispatch(plan, x, rows, 128)
            : i == 1
                ? shunt_moe_combine_backward(plan, x, NULL, rows, 128, NULL)
            : i == 2 ? shunt_moe_plan_create(moe, expert, NULL, 1, &none)
                     : shunt_moe_set_placement(moe, NULL, NULL, 0);
        const char *why = shunt_last_error(self->comm);

        CHECK(st == (self->rank ? SHUNT_ERR_REMOTE : SHUNT_ERR_INVALID),
              "call %d: %s", i, rank_why(self->comm, st));
        CHECK(strstr(why, self->rank ? "rank 0" : "destroyed"), "call %d: %s",
              i, why);
    }
    shunt_moe_destroy(moe);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(use_exchange(self, moe, &c, 3, 2));
    /* The old handle has the same slot, but must not stand for this
     * exchange. */
    CHECK_STATUS(self->comm, shunt_moe_dispatch(plan, x, rows, 128),
                 SHUNT_ERR_INVALID);
    shunt_moe_plan_destroy(plan);
    CHECK_RUN(use_exchange(self, moe, &c, 4, 1));
    shunt_moe_destroy(moe);
    return 0;
}

/* Rank 0 plans for another exchange, which it has destroyed or not. These calls
 * must fail, and later ones must not. */
static int wrong_exchange_on_one_rank(const struct rank *self)
{
    const bool odd = self->rank == 0;
    struct shunt_moe_config c = kind_of_exchange(4);
    struct shunt_moe_plan *none;
    struct shunt_moe *moe[2];
    int32_t expert[2] = {0, 1};

    for (int gone = 0; gone < 2; gone++) {
        const enum shunt_status want = !gone ? SHUNT_ERR_MISMATCH
                                       : odd ? SHUNT_ERR_INVALID
                                             : SHUNT_ERR_REMOTE;

        for (int i = 0; i < 2; i++)
            CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[i]));
        if (odd && gone)
            shunt_moe_destroy(moe[1]);
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(
                self->comm,
                shunt_moe_plan_create(moe[odd], expert, NULL, 1, &none), want);
            CHECK_STATUS(self->comm,
                         shunt_moe_set_placement(moe[odd], NULL, NULL, 0),
                         want);
            for (int k = 0; k <= !gone; k++) {
                CHECK_RUN(use_exchange(self, moe[k], &c, 5, 2));
                CHECK_OK(self->comm,
                         shunt_moe_set_placement(moe[k], NULL, NULL, 0));
            }
        }
        for (int i = 0; i < 2; i++)
            shunt_moe_destroy(moe[i]);
    }
    return 0;
}

/* dispatch, dispatch, combine, combine, all under way at once. */
static int s11_two_plans(const struct rank *self)
{
    struct shunt_moe_config c = config_of(60, SHUNT_BF16, 8, 2);
    struct shunt_moe *moe;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int turn = 0; turn < 3; turn++) {
        struct shunt_request *q[4];
        struct world w[2];
        struct run run[2];

        for (int i = 0; i < 2; i++) {
            world_init(&w[i], &c, self->size, world_nodes(self), REALS,
                       (uint64_t)(10 * turn + i), 0, 20, 10);
            CHECK_RUN(run_begin(&run[i], self, moe, &w[i],
                                turn == 1 ? HEAP : WINDOW));
            run_fill_tokens(&run[i], run[i].x, KIND_X);
            run_fill_rows(&run[i], run[i].buffer[1], KIND_OUT);
        }
        for (int i = 0; i < 2; i++)
            CHECK_OK(self->comm, shunt_moe_dispatch_start(
                                     run[i].plan, run[i].x, run[i].buffer[0],
                                     run[i].rows.total, &q[i]));
        for (int i = 0; i < 2; i++)
            CHECK_OK(self->comm,
                     shunt_moe_combine_start(run[i].plan, run[i].buffer[1],
                                             NULL, run[i].y, &q[2 + i]));
        CHECK_OK(self->comm, shunt_wait_all(q, 4));
        for (int i = 0; i < 2; i++) {
            CHECK_RUN(run_check_rows(&run[i]));
            CHECK_RUN(run_check_tokens(&run[i], KIND_OUT, true, false));
            CHECK_RUN(run_end(&run[i]));
            world_finish(&w[i]);
        }
    }
    shunt_moe_destroy(moe);
    return 0;
}

static int s11_too_many_plans(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan[4];
    struct shunt_moe *moe;
    struct world w;

    c.plans_in_flight = 3;
    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < 4; i++)
        CHECK_STATUS(self->comm, plan_of(self, moe, &w, &plan[i]),
                     i < 3 ? SHUNT_OK : SHUNT_ERR_BUSY);
    CHECK(strstr(shunt_last_error(self->comm), "plans_in_flight"), "%s",
          shunt_last_error(self->comm));
    shunt_moe_plan_destroy(plan[1]);
    CHECK_OK(self->comm, plan_of(self, moe, &w, &plan[1]));
    for (int i = 0; i < 3; i++)
        shunt_moe_plan_destroy(plan[i]);
    CHECK_RUN(run_everything(self, moe, &w, WINDOW));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

static int s11_use_after_destroy(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *stale[64];
    struct shunt_moe *moe;
    struct shunt_moe_rows sizes;
    struct world w;
    float x[128], rows[1024];

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < 64; i++) {
        CHECK_OK(self->comm, plan_of(self, moe, &w, &stale[i]));
        shunt_moe_plan_destroy(stale[i]);
        shunt_moe_plan_destroy(stale[i]); /* must have no effect */
    }
    memset(x, 0, sizeof(x));
    for (int i = 0; i < 64; i += 9) {
        CHECK_STATUS(self->comm, shunt_moe_dispatch(stale[i], x, rows, 170),
                     SHUNT_ERR_INVALID);
        CHECK(strstr(shunt_last_error(self->comm), "destroyed"), "%s",
              shunt_last_error(self->comm));
        CHECK_STATUS(self->comm, shunt_moe_combine(stale[i], rows, NULL, x),
                     SHUNT_ERR_INVALID);
        memset(&sizes, 0xff, sizeof(sizes));
        shunt_moe_plan_rows(stale[i], &sizes, sizeof(sizes));
        CHECK(sizes.total == 0, "sizes");
        CHECK(sizes.offset == NULL, "offsets");
        CHECK(shunt_moe_buffer(stale[i], SHUNT_MOE_ROWS) == NULL, "buffer");
    }
    CHECK_RUN(run_everything(self, moe, &w, WINDOW));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* A plan is destroyed while its requests are under way. They must complete. */
static int s11_plan_outlives_calls(const struct rank *self)
{
    struct shunt_moe_config c = config_of(60, SHUNT_BF16, 8, 2);
    struct shunt_moe *moe;
    struct shunt_request *q;
    struct world w;
    struct run run;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 5, 0, 20, 10);
    CHECK_RUN(run_begin(&run, self, moe, &w, HEAP));
    run_fill_tokens(&run, run.x, KIND_X);
    CHECK_OK(self->comm,
             shunt_moe_dispatch_start(run.plan, run.x, run.buffer[0],
                                      run.rows.total, &q));
    shunt_moe_plan_destroy(run.plan);
    shunt_moe_destroy(moe);
    CHECK_OK(self->comm, shunt_wait(&q));
    CHECK_RUN(run_check_rows(&run));
    run.plan = NULL;
    CHECK_RUN(run_end(&run));
    world_finish(&w);
    return 0;
}

/* Destroying must be local: no rank waits for another. */
static int s16_destroy_is_local(const struct rank *self)
{
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct world w;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        CHECK_OK(self->comm, plan_of(self, moe, &w, &plan));
        if (i % self->size == self->rank) { /* one rank only */
            shunt_moe_destroy(moe);
            continue;
        }
        shunt_moe_plan_destroy(plan);
        shunt_moe_destroy(moe);
    }
    shunt_moe_destroy(NULL);
    shunt_moe_plan_destroy(NULL);
    world_finish(&w);
    return 0;
}

const struct rank_case lifetime_cases[] = {
    {.name = "exchanges_come_and_go", .run = exchanges_come_and_go},
    {.name = "exchanges_overlap", .run = exchanges_overlap},
    {.name = "handles_in_any_order", .run = handles_in_any_order},
    {.name = "calls_on_a_dead_comm", .run = calls_on_a_dead_comm},
    {.name = "requests_of_a_dead_comm", .run = requests_of_a_dead_comm},
    {.name = "plan_without_use", .run = plan_without_use},
    {.name = "foreign_handles", .run = foreign_handles},
    {.name = "handles_of_a_larger_exchange",
     .run = handles_of_a_larger_exchange},
    {.name = "buffers_after_a_failure", .run = buffers_after_a_failure},
    {"destroyed_on_one_rank", destroyed_on_one_rank, .min_ranks = 2},
    {"wrong_exchange_on_one_rank", wrong_exchange_on_one_rank, .min_ranks = 2},
    {.name = "s11_two_plans", .run = s11_two_plans},
    {.name = "s11_too_many_plans", .run = s11_too_many_plans},
    {.name = "s11_use_after_destroy", .run = s11_use_after_destroy},
    {.name = "s11_plan_outlives_calls", .run = s11_plan_outlives_calls},
    {.name = "s16_destroy_is_local", .run = s16_destroy_is_local},
    {.name = NULL},
};
