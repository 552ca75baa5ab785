// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that is used twice: which arguments of a call may share memory, and
 * which calls are refused. A call must access nothing but its arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* An exchange, its routing and one run of it. */
struct stage {
    struct shunt_moe *moe;
    struct world world;
    struct run run;
};

static int stage_begin(struct stage *s, const struct rank *self,
                       const struct shunt_moe_config *c, uint64_t seed,
                       enum memory memory)
{
    CHECK_OK(self->comm, shunt_moe_create(self->comm, c, &s->moe));
    world_init(&s->world, c, self->size, world_nodes(self), REALS, seed, 8, 40,
               10);
    return run_begin(&s->run, self, s->moe, &s->world, memory);
}

static int stage_end(struct stage *s)
{
    CHECK_RUN(run_end(&s->run));
    world_finish(&s->world);
    shunt_moe_destroy(s->moe);
    return 0;
}

/* --- the gradient of combine in the place of its results ------------------ */

static int dout_is_out(const struct rank *self)
{
    struct shunt_moe_config c = config_of(48, SHUNT_F32, 8, 4);

    for (uint64_t seed = 0; seed < 6; seed++) {
        struct stage s;
        unsigned char *dout;

        c.dtype = seed % 2 ? SHUNT_F32 : SHUNT_BF16;
        c.weights = seed % 3 ? SHUNT_MOE_APPLY_WEIGHTS : SHUNT_MOE_PLAIN_SUM;
        CHECK_RUN(
            stage_begin(&s, self, &c, seed, seed / 2 % 2 ? HEAP : WINDOW));
        dout = s.run.buffer[2];
        s.run.buffer[2] = s.run.buffer[1];
        for (int round = 0; round < 5; round++)
            CHECK_RUN(run_backward(&s.run, true));
        s.run.buffer[2] = dout;
        CHECK_RUN(stage_end(&s));
    }
    return 0;
}

/* --- rows that the caller keeps ------------------------------------------- */

#define KEPT 0x5a

static void keep(const struct run *run, int which)
{
    if (run->rows.total)
        memset(shunt_moe_buffer(run->plan, (enum shunt_moe_buffer)which), KEPT,
               run->rows.total * run->bytes);
}

static int check_kept(const struct run *run, int which)
{
    const unsigned char *buffer =
        shunt_moe_buffer(run->plan, (enum shunt_moe_buffer)which);

    for (size_t i = 0; i < run->rows.total * run->bytes; i++)
        CHECK(buffer[i] == KEPT, "buffer %d, byte %zu is %#x: not ours", which,
              i, buffer[i]);
    return 0;
}

/* Calls with the caller's memory must not touch the plan's buffers. */
static int buffers_are_the_callers(const struct rank *self)
{
    struct shunt_moe_config c = config_of(40, SHUNT_BF16, 8, 3);

    for (uint64_t seed = 0; seed < 2; seed++) {
        struct stage s;

        c.row_align = seed ? 4 : 0;
        CHECK_RUN(stage_begin(&s, self, &c, seed, HEAP));
        for (int which = 0; which < 4; which++)
            keep(&s.run, which);
        CHECK_RUN(run_dispatch(&s.run));
        CHECK_RUN(run_combine(&s.run, true));
        CHECK_RUN(run_backward(&s.run, true));
        for (int which = 0; which < 4; which++)
            CHECK_RUN(check_kept(&s.run, which));
        CHECK_RUN(stage_end(&s));
    }
    return 0;
}

/* The tokens are in a buffer of the plan if it has room for them. */
static unsigned char *tokens_in(const struct stage *s, int which)
{
    return s->run.rows.tokens <= s->run.rows.total
               ? shunt_moe_buffer(s->run.plan, (enum shunt_moe_buffer)which)
               : NULL;
}

/* Input and results are in the plan's buffers, rows elsewhere. */
static int tokens_in_buffers(const struct rank *self)
{
    struct shunt_moe_config c = config_of(40, SHUNT_F32, 8, 4);

    for (uint64_t seed = 0; seed < 3; seed++) {
        struct stage s;
        unsigned char *x, *y, *bias, *at, *before;
        size_t bytes;

        CHECK_RUN(stage_begin(&s, self, &c, seed, HEAP));
        x = s.run.x, y = s.run.y, bias = s.run.bias;
        bytes = s.run.rows.tokens * s.run.bytes;
        before = filled(bytes);

        if ((at = tokens_in(&s, SHUNT_MOE_ROWS)))
            s.run.x = at;
        CHECK_RUN(run_dispatch(&s.run));
        run_fill_tokens(&s.run, before, KIND_X);
        CHECK(!memcmp(before, s.run.x, bytes), "dispatch changed x");

        if ((at = tokens_in(&s, SHUNT_MOE_OUT)))
            s.run.bias = at;
        CHECK_RUN(run_combine(&s.run, true));
        run_fill_tokens(&s.run, before, KIND_BIAS);
        CHECK(!memcmp(before, s.run.bias, bytes), "combine changed bias");
        s.run.bias = bias;

        if ((at = tokens_in(&s, SHUNT_MOE_OUT)))
            s.run.y = at;
        CHECK_RUN(run_combine(&s.run, true));

        if ((at = tokens_in(&s, SHUNT_MOE_DROWS)))
            s.run.y = at;
        if ((at = tokens_in(&s, SHUNT_MOE_DOUT)))
            s.run.x = at;
        CHECK_RUN(run_backward(&s.run, true));

        s.run.x = x, s.run.y = y;
        free(before);
        CHECK_RUN(stage_end(&s));
    }
    return 0;
}

/* One request reads the plan's buffer while another one reads memory of its
 * own. */
static int buffers_under_way(const struct rank *self)
{
    struct shunt_moe_config c = config_of(64, SHUNT_F32, 8, 2);

    for (uint64_t seed = 0; seed < 8; seed++) {
        struct shunt_request *q[4];
        unsigned char *rows, *out, *y, *zeros;
        struct stage s;
        struct run *run = &s.run;
        size_t bytes;

        CHECK_RUN(stage_begin(&s, self, &c, seed, WINDOW));
        bytes = run->rows.total * run->bytes;
        rows = filled(bytes);
        out = filled(bytes);
        zeros = calloc(run->rows.tokens + 1, run->bytes);
        y = filled(run->rows.tokens * run->bytes);
        memset(out, 0, bytes);
        run_fill_tokens(run, run->x, KIND_X);
        run_fill_rows(run, run->buffer[1], KIND_OUT);
        CHECK_OK(self->comm,
                 shunt_moe_dispatch_start(run->plan, run->x, run->buffer[0],
                                          run->rows.total, &q[0]));
        CHECK_OK(self->comm, shunt_moe_combine_start(run->plan, run->buffer[1],
                                                     NULL, run->y, &q[1]));
        /* Other calls of the same kinds, with zeros. */
        CHECK_OK(self->comm, shunt_moe_dispatch_start(run->plan, zeros, rows,
                                                      run->rows.total, &q[2]));
        CHECK_OK(self->comm,
                 shunt_moe_combine_start(run->plan, out, NULL, y, &q[3]));
        CHECK_OK(self->comm, shunt_wait_all(q, 4));
        CHECK_RUN(run_check_rows(run));
        CHECK_RUN(run_check_tokens(run, KIND_OUT, true, false));
        for (size_t i = 0; i < bytes; i++)
            CHECK(rows[i] == 0, "byte %zu of rows of zeros is %#x", i, rows[i]);
        for (size_t i = 0; i < run->rows.tokens * run->bytes; i++)
            CHECK(y[i] == 0, "byte %zu of a sum of zeros is %#x", i, y[i]);
        free(rows);
        free(out);
        free(y);
        free(zeros);
        CHECK_RUN(stage_end(&s));
    }
    return 0;
}

/* --- arguments that overlap ----------------------------------------------- */

/* Every rank must refuse its call, and name the two arguments. */
#define OVERLAPS(call, a, b)                                           \
    do {                                                               \
        CHECK_STATUS(self->comm, (call), SHUNT_ERR_INVALID);           \
        CHECK(strstr(shunt_last_error(self->comm), a " and " b), "%s", \
              shunt_last_error(self->comm));                           \
    } while (0)

static int overlapping_arguments(const struct rank *self)
{
    struct shunt_moe_config c = config_of(16, SHUNT_F32, 4, 2);
    struct shunt_moe *moe;
    struct world w;
    struct run run;
    unsigned char *arena, *far;
    struct shunt_moe_plan *p;
    size_t row = 64, n;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 1, 8, 8, 0);
    /* Each rank gets as many rows as it has tokens, some from each rank. */
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < 16; i++)
            w.expert[r][i] = (int32_t)(i % 4);
    c.placement = (const int32_t[]){0, self->size - 1, self->size / 2, 0};
    w.config.placement = c.placement;
    world_lay_out(&w);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(run_begin(&run, self, moe, &w, HEAP));
    n = run.rows.total;
    p = run.plan;
    arena = calloc(2 * n + 64, row);
    far = arena + (n + 32) * row;
    if (n) {
        OVERLAPS(shunt_moe_dispatch(p, arena + row * (n - 1), arena, n), "rows",
                 "x");
        OVERLAPS(shunt_moe_combine(p, arena, NULL, arena + row * (n - 1)),
                 "out", "y");
        OVERLAPS(
            shunt_moe_combine_backward(p, arena, far, arena + row, n, NULL),
            "dout", "dy");
        OVERLAPS(shunt_moe_combine_backward(p, run.x, arena, arena + row, n,
                                            run.dweight),
                 "out", "dout");
        OVERLAPS(shunt_moe_combine_backward(p, run.x, arena, far, n,
                                            (float *)(void *)far),
                 "dout", "dweight");
        OVERLAPS(shunt_moe_combine_backward(p, run.x, arena, far, n,
                                            (float *)(void *)arena),
                 "out", "dweight");
        OVERLAPS(shunt_moe_dispatch_backward(p, arena, arena), "drows", "dx");
    } else {
        /* Ranks without rows take part, and must get an error for the others'
         * bad calls. */
        for (int i = 0; i < 7; i++) {
            enum shunt_status st =
                i == 0   ? shunt_moe_dispatch(p, run.x, NULL, 0)
                : i == 1 ? shunt_moe_combine(p, NULL, NULL, run.y)
                : i == 6
                    ? shunt_moe_dispatch_backward(p, NULL, run.y)
                    : shunt_moe_combine_backward(p, run.x, NULL, NULL, 0,
                                                 i == 2 ? NULL : run.dweight);

            CHECK(st == SHUNT_ERR_REMOTE, "call %d: %s", i,
                  rank_why(self->comm, st));
        }
    }
    OVERLAPS(shunt_moe_combine(p, run.buffer[1], arena, arena + row), "bias",
             "y");
    OVERLAPS(shunt_moe_combine(p, run.buffer[1], arena + 4, arena), "bias",
             "y");
    OVERLAPS(shunt_moe_combine_backward(p, arena, run.buffer[1], run.buffer[2],
                                        n, (float *)(void *)(arena + row)),
             "dy", "dweight");
    free(arena);
    /* Afterwards all calls must work; y may be the same memory as bias. */
    free(run.bias);
    run.bias = NULL;
    CHECK_RUN(run_dispatch(&run));
    CHECK_RUN(run_end(&run));
    CHECK_RUN(run_everything(self, moe, &w, HEAP));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* y is the same memory as bias, and inputs share memory. */
static int shared_arguments(const struct rank *self)
{
    struct shunt_moe_config c = config_of(32, SHUNT_BF16, 8, 3);

    for (uint64_t seed = 0; seed < 2; seed++) {
        struct stage s;
        struct run *run = &s.run;

        CHECK_RUN(stage_begin(&s, self, &c, seed, seed ? HEAP : WINDOW));
        run_fill_rows(run, run->buffer[1], KIND_OUT);
        run_fill_tokens(run, run->y, KIND_BIAS);
        CHECK_OK(self->comm,
                 shunt_moe_combine(run->plan, run->buffer[1], run->y, run->y));
        CHECK_RUN(run_check_tokens(run, KIND_OUT, true, true));
        CHECK_RUN(stage_end(&s));
    }
    return 0;
}

/* Each plan has more rows than the buffers of the plan before had room for. */
static int s04_buffers_grow(const struct rank *self)
{
    struct shunt_moe_config c = config_of(12, SHUNT_BF16, 8, 2);
    struct shunt_moe *moe;
    struct world w;

    c.max_tokens = 48;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (size_t n = 3; n <= 48; n *= 2)
        for (int hot = 0; hot < 2; hot++) {
            world_init(&w, &c, self->size, world_nodes(self), REALS, n, n, n,
                       0);
            for (int r = 0; r < self->size && hot; r++)
                for (size_t i = 0; i < w.tokens[r] * 2; i++)
                    w.expert[r][i] = (int32_t)(n % 8);
            world_lay_out(&w);
            CHECK_RUN(run_everything(self, moe, &w, WINDOW));
            world_finish(&w);
        }
    shunt_moe_destroy(moe);
    return 0;
}

static int s05_fewer_after_more(const struct rank *self)
{
    struct shunt_moe_config c = config_of(24, SHUNT_F32, 4, 2);
    struct shunt_moe *moe;

    c.row_align = 4;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (size_t n = 40; n > 0; n /= 3) {
        struct world w;

        world_init(&w, &c, self->size, world_nodes(self), REALS, n, 0, n, 20);
        /* The second run uses the memory of the first one. */
        CHECK_RUN(run_everything(self, moe, &w, WINDOW));
        CHECK_RUN(run_everything(self, moe, &w, HEAP));
        world_finish(&w);
    }
    shunt_moe_destroy(moe);
    return 0;
}

/* Rank 0's buffer is too small. The error must say the size, and the call must
 * be repeatable. */
static int s12_overflow(const struct rank *self)
{
    struct shunt_moe_config c = config_of(30, SHUNT_F32, 4, 2);
    struct shunt_moe *moe;
    struct world w;
    struct run run;
    char want[32];

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 5, 9, 20, 0);
    CHECK_RUN(run_begin(&run, self, moe, &w, HEAP));
    if (self->rank == 0) {
        run_fill_tokens(&run, run.x, KIND_X);
        snprintf(want, sizeof(want), " %zu ", run.rows.total);
        CHECK_STATUS(self->comm,
                     shunt_moe_dispatch(run.plan, run.x, run.buffer[0],
                                        run.rows.total - 1),
                     SHUNT_ERR_OVERFLOW);
        CHECK(strstr(shunt_last_error(self->comm), want), "\"%s\" lacks%s",
              shunt_last_error(self->comm), want);
        for (size_t i = 0; i < run.rows.total * run.bytes; i++)
            CHECK(run.buffer[0][i] == POISON, "written all the same");
        CHECK_STATUS(self->comm,
                     shunt_moe_combine_backward(run.plan, run.x, NULL,
                                                run.buffer[2], 0, NULL),
                     SHUNT_ERR_OVERFLOW);
    }
    CHECK_RUN(run_dispatch(&run));
    CHECK_RUN(run_backward(&run, true));
    CHECK_RUN(run_end(&run));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* Many steps without a barrier use the same buffers, at different speeds. */
static int s13_buffers_again(const struct rank *self)
{
    struct shunt_moe_config c = config_of(64, SHUNT_F32, 4, 2);
    struct shunt_moe *moe;

    c.plans_in_flight = 2;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (uint64_t step = 0; step < 40; step++) {
        struct world w;
        struct run run;

        world_init(&w, &c, self->size, world_nodes(self), REALS, step, 0, 12,
                   10);
        CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
        /* In each step another rank is slow. */
        if ((int)(step % (uint64_t)self->size) == self->rank)
            for (volatile int spin = 0; spin < 300000;)
                spin = spin + 1;
        CHECK_RUN(run_dispatch(&run));
        CHECK_RUN(run_combine(&run, true));
        CHECK_RUN(run_dispatch(&run));
        CHECK_RUN(run_backward(&run, true));
        CHECK_RUN(run_end(&run));
        world_finish(&w);
    }
    shunt_moe_destroy(moe);
    return 0;
}

const struct rank_case memory_cases[] = {
    {.name = "dout_is_out", .run = dout_is_out},
    {.name = "buffers_are_the_callers", .run = buffers_are_the_callers},
    {.name = "tokens_in_buffers", .run = tokens_in_buffers},
    {.name = "buffers_under_way", .run = buffers_under_way},
    {.name = "overlapping_arguments", .run = overlapping_arguments},
    {.name = "shared_arguments", .run = shared_arguments},
    {.name = "s04_buffers_grow", .run = s04_buffers_grow},
    {.name = "s05_fewer_after_more", .run = s05_fewer_after_more},
    {.name = "s12_overflow", .run = s12_overflow},
    {.name = "s13_buffers_again", .run = s13_buffers_again},
    {.name = NULL},
};
