// SPDX-License-Identifier: Apache-2.0
/* Whole exchanges, compared with the reference bit by bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* Arguments of run_seeds(). All rows with the name of a case belong to that
 * case. */
static const struct seeded {
    const char *name;
    size_t hidden;
    enum shunt_dtype dtype;
    int experts, topk;
    enum values values;
    size_t min_tokens, max_tokens;
    int none;
    enum shunt_moe_weights weights; /* 0: SHUNT_MOE_APPLY_WEIGHTS */
    enum shunt_moe_wire wire;
    double capacity_factor;
    enum shunt_moe_drop drop;
    int pad_to_capacity;
    size_t row_align;
    int tree_ranks_each; /* tree_ranks / ranks */
    int tree_nodes;
} seeded[] = {
    {"integers_f32", 33, SHUNT_F32, 8, 3, INTEGERS, 0, 20, .none = 10},
    {"integers_bf16", 64, SHUNT_BF16, 16, 4, INTEGERS, 1, 20, .none = 0},
    {"reals_f32", 70, SHUNT_F32, 8, 6, REALS, 5, 20, .none = 10},
    {"reals_bf16", 200, SHUNT_BF16, 16, 8, REALS, 5, 20, .none = 10},
    {"plain_sum", 40, SHUNT_BF16, 8, 4, REALS, 5, 20, .none = 10,
     .weights = SHUNT_MOE_PLAIN_SUM},
    {"fp8_wire", 300, SHUNT_BF16, 8, 2, REALS, 3, 9, .none = 10,
     .wire = SHUNT_MOE_WIRE_FP8},
    {"fp8_wire", 300, SHUNT_F32, 8, 2, REALS, 3, 9, .none = 10,
     .wire = SHUNT_MOE_WIRE_FP8},
    {"capacity_by_position", 20, SHUNT_F32, 4, 2, REALS, 0, 30, .none = 10,
     .capacity_factor = 0.8},
    {"capacity_by_weight", 20, SHUNT_F32, 4, 2, REALS, 0, 30, .none = 10,
     .capacity_factor = 0.6, .drop = SHUNT_MOE_DROP_WEIGHT},
    /* Many equal weights. */
    {"capacity_by_weight", 20, SHUNT_F32, 4, 2, INTEGERS, 0, 30, .none = 10,
     .capacity_factor = 0.6, .drop = SHUNT_MOE_DROP_WEIGHT},
    {"capacity_padded", 20, SHUNT_BF16, 5, 2, REALS, 0, 30, .none = 10,
     .capacity_factor = 1.25, .pad_to_capacity = 1},
    {"capacity_padded", 20, SHUNT_BF16, 5, 2, REALS, 0, 30, .none = 10,
     .capacity_factor = 1.25, .pad_to_capacity = 1, .row_align = 16},
    {"row_align", 20, SHUNT_BF16, 6, 2, REALS, 0, 30, .none = 10,
     .row_align = 8},
    /* Groups on 1, 2 and 4 nodes of the tree, independent of the real nodes. */
    {"tree_nodes", 20, SHUNT_F32, 16, 8, REALS, 4, 12, .none = 5,
     .tree_ranks_each = 4, .tree_nodes = 1},
    {"tree_nodes", 20, SHUNT_F32, 16, 8, REALS, 4, 12, .none = 5,
     .tree_ranks_each = 4, .tree_nodes = 2},
    {"tree_nodes", 20, SHUNT_F32, 16, 8, REALS, 4, 12, .none = 5,
     .tree_ranks_each = 4, .tree_nodes = 4},
    {"s01_none", 9, SHUNT_F32, 4, 3, REALS, 1, 12, .none = 60},
    /* Here no token has any expert. */
    {"s01_none", 9, SHUNT_F32, 4, 3, REALS, 1, 12, .none = 100},
    /* Six slots and three experts: every token has experts twice. */
    {"s02_same_expert_twice", 50, SHUNT_F32, 3, 6, REALS, 1, 12, .none = 0},
};

/* Runs the rows of the table that have the name of the case. */
static int run_rows(const struct rank *self)
{
    int rows = 0;

    for (size_t i = 0; i < sizeof(seeded) / sizeof(*seeded); i++) {
        const struct seeded *s = &seeded[i];
        struct shunt_moe_config c =
            config_of(s->hidden, s->dtype, s->experts, s->topk);

        if (strcmp(s->name, self->name) != 0)
            continue;
        c.weights = s->weights ? s->weights : c.weights;
        c.wire = s->wire;
        c.capacity_factor = s->capacity_factor;
        c.drop = s->drop;
        c.pad_to_capacity = s->pad_to_capacity;
        c.row_align = s->row_align;
        c.tree_ranks = s->tree_ranks_each * self->size;
        c.tree_nodes = s->tree_nodes;
        CHECK_RUN(run_seeds(self, &c, s->values, s->min_tokens, s->max_tokens,
                            s->none));
        rows++;
    }
    CHECK(rows, "the table has no row");
    return 0;
}

static int tree_ranks(const struct rank *self)
{
    struct shunt_moe_config c = config_of(20, SHUNT_F32, 16, 8);

    c.tree_ranks = 8;
    if (8 % self->size)
        c.tree_ranks = 2 * self->size;
    return run_seeds(self, &c, REALS, 4, 20, 5);
}

static int replicas(const struct rank *self)
{
    struct shunt_moe_config c = config_of(20, SHUNT_F32, 6, 3);
    struct shunt_moe_replica copies[64];
    size_t n = 0;

    for (int e = 0; e < 6; e += 2)
        for (int r = 0; r < self->size; r++)
            if (r != e * self->size / 6 && (r + e) % 3 != 1)
                copies[n++] = (struct shunt_moe_replica){e, r};
    c.replicas = copies;
    c.nreplicas = n;
    return run_seeds(self, &c, REALS, 0, 20, 5);
}

/* Computes the experts on a rank's rows; combines the result, and adds it
 * without weights. */
static int layer(const struct rank *self, struct shunt_moe *moe,
                 const struct world *w, float *y, float *dx)
{
    const size_t hidden = w->config.hidden;
    struct run run;

    CHECK_RUN(run_begin(&run, self, moe, w, WINDOW));
    run_fill_tokens(&run, run.x, KIND_X);
    CHECK_OK(self->comm, shunt_moe_dispatch(run.plan, run.x, run.buffer[0],
                                            run.rows.total));
    for (int i = 0; i < run.rows.local_experts; i++)
        for (size_t j = run.rows.offset[i] * hidden;
             j < run.rows.offset[i + 1] * hidden; j++) {
            const float in = ((float *)(void *)run.buffer[0])[j];

            ((float *)(void *)run.buffer[1])[j] =
                in / (float)(3 + run.rows.expert[i]);
        }
    CHECK_OK(self->comm, shunt_moe_combine(run.plan, run.buffer[1], NULL, y));
    CHECK_OK(self->comm,
             shunt_moe_dispatch_backward(run.plan, run.buffer[1], dx));
    return run_end(&run);
}

/* In the order of homes, copies must not change the bits of a sum. In the order
 * of copies they may. */
static int order_of_homes(const struct rank *self)
{
    enum { EXPERTS = 12, HIDDEN = 20, MOST = 20 * HIDDEN };

    uint64_t other = 0;

    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct shunt_moe_config c = config_of(HIDDEN, SHUNT_F32, EXPERTS, 5);
        struct shunt_moe_replica copies[EXPERTS * 16];
        static _Thread_local float y[3][MOST], dx[3][MOST];
        struct shunt_moe *moe;
        int32_t home[EXPERTS];
        bool rails[2];
        struct world w;
        size_t n = 0;

        for (uint64_t e = 0; e < EXPERTS; e++) {
            home[e] = (int32_t)(mix(seed, 81, e, 0) % (uint64_t)self->size);
            for (int r = 0; r < self->size; r++)
                if (r != home[e] && mix(seed, 82, e, (uint64_t)r) % 3 == 0)
                    copies[n++] = (struct shunt_moe_replica){(int32_t)e, r};
        }
        c.placement = home;
        c.replicas = copies;
        for (int i = 0; i < 3; i++) {
            c.nreplicas = i ? n : 0;
            c.order = i == 1 ? SHUNT_MOE_ORDER_HOMES : SHUNT_MOE_ORDER_COPIES;
            CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
            world_init(&w, &c, self->size, world_nodes(self), REALS, seed, 3,
                       20, 5);
            CHECK_RUN(layer(self, moe, &w, y[i], dx[i]));
            if (i == 1)
                CHECK_RUN(run_everything(self, moe, &w, HEAP));
            if (i < 2 && shunt_comm_nodes(self->comm) > 1 &&
                !getenv("SHUNT_MOE_MODE")) {
                struct run run;

                CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
                rails[i] = by_rails(run.rows.mode);
                CHECK((!i || rails[1] == rails[0]) &&
                          by_rails(run.rows.combine_mode) == rails[0],
                      "modes %d and %d", (int)run.rows.mode,
                      (int)run.rows.combine_mode);
                CHECK_RUN(run_end(&run));
            }
            for (size_t t = 0; t < w.tokens[self->rank] * HIDDEN && i; t++) {
                const bool same =
                    !memcmp(&y[0][t], &y[i][t], sizeof(y[0][t])) &&
                    !memcmp(&dx[0][t], &dx[i][t], sizeof(dx[0][t]));

                CHECK(same || i == 2, "seed %d, element %zu: %.9g, not %.9g",
                      (int)seed, t, (double)y[i][t], (double)y[0][t]);
                other += !same;
            }
            world_finish(&w);
            shunt_moe_destroy(moe);
        }
    }
    CHECK_OK(self->comm, shunt_allreduce(self->comm, &other, &other, 1,
                                         SHUNT_U64, SHUNT_SUM));
    CHECK(other || self->size < 3, "copies never change the order of copies");
    return 0;
}

static int set_placement(const struct rank *self)
{
    struct shunt_moe_config c = config_of(20, SHUNT_F32, 7, 3);
    struct shunt_moe *moe;
    int32_t home[7];
    struct world w;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int turn = 0; turn < 4; turn++) {
        for (int e = 0; e < 7; e++)
            home[e] = (int32_t)(mix(7, (uint64_t)turn, (uint64_t)e, 0) %
                                (uint64_t)self->size);
        CHECK_OK(self->comm, shunt_moe_set_placement(moe, home, NULL, 0));
        c.placement = home;
        world_init(&w, &c, self->size, world_nodes(self), REALS, 1, 0, 20, 5);
        CHECK_RUN(run_everything(self, moe, &w, WINDOW));
        world_finish(&w);
    }
    shunt_moe_destroy(moe);
    return 0;
}

/* The data are larger than any cache, and a push has many chunks. Under
 * sanitizers, which are ten times slower, the data are smaller, but there are
 * still many chunks. */
static int large(const struct rank *self)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const size_t most = 70;
#else
    const size_t most = 500;
#endif
    struct shunt_moe_config c = config_of(4096, SHUNT_BF16, 8, 4);
    struct shunt_moe *moe;
    struct world w;

    c.max_tokens = most;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), INTEGERS, 1, most * 3 / 4,
               most, 0);
    for (int memory = WINDOW; memory <= HEAP; memory++) {
        struct run run;

        CHECK_RUN(run_begin(&run, self, moe, &w, (enum memory)memory));
        CHECK_RUN(run_dispatch(&run));
        CHECK_RUN(run_combine(&run, false));
        CHECK_RUN(run_end(&run));
    }
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* Row sizes that are not a multiple of anything. */
static int odd_rows(const struct rank *self)
{
    static const size_t hidden[] = {1, 2, 3, 7, 15, 17, 31, 63, 65, 127, 129};

    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        struct shunt_moe_config c =
            config_of(hidden[i], i % 2 ? SHUNT_F32 : SHUNT_BF16, 5, 3);

        c.wire = i % 3 ? SHUNT_MOE_WIRE_PAYLOAD : SHUNT_MOE_WIRE_FP8;
        CHECK_RUN(run_seeds(self, &c, REALS, 1, 6, 10));
    }
    return 0;
}

static int s17_uneven(const struct rank *self)
{
    static const int experts[] = {1, 3, 7, 13};

    for (int i = 0; i < 4; i++) {
        struct shunt_moe_config c = config_of(11, SHUNT_F32, experts[i], 2);
        int32_t home[13];

        CHECK_RUN(run_seeds(self, &c, REALS, 0, 12, 5));
        for (int e = 0; e < experts[i]; e++)
            home[e] = (int32_t)(mix(3, (uint64_t)i, (uint64_t)e, 0) %
                                (uint64_t)self->size);
        c.placement = home;
        CHECK_RUN(run_seeds(self, &c, REALS, 0, 12, 5));
    }
    return 0;
}

/* Random configurations. */
static int any_config(const struct rank *self)
{
    for (uint64_t seed = 0; seed < 25; seed++) {
        struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;
        struct shunt_moe_replica copies[64];
        int32_t home[24];
        struct shunt_moe *moe;
        struct world w;
        uint64_t dice[16];

        for (uint64_t i = 0; i < 16; i++)
            dice[i] = mix(seed, 77, i, 0) >> 8;
        c.hidden = 1 + dice[0] % 150;
        c.dtype = dice[1] % 2 ? SHUNT_F32 : SHUNT_BF16;
        c.experts = 1 + (int)(dice[2] % 24);
        c.topk = 1 + (int)(dice[3] % 9);
        c.max_tokens = 30;
        c.weights = dice[4] % 3 ? SHUNT_MOE_APPLY_WEIGHTS : SHUNT_MOE_PLAIN_SUM;
        c.wire = dice[5] % 3 ? SHUNT_MOE_WIRE_PAYLOAD : SHUNT_MOE_WIRE_FP8;
        c.row_align = dice[6] % 2 ? dice[6] % 9 : 0;
        if (dice[7] % 2) {
            c.capacity_factor = (double)(1 + dice[7] % 20) / 10;
            c.drop =
                dice[8] % 2 ? SHUNT_MOE_DROP_WEIGHT : SHUNT_MOE_DROP_POSITION;
            c.pad_to_capacity = dice[9] % 2;
        }
        if (dice[10] % 2)
            c.tree_ranks = self->size * (1 + (int)(dice[10] % 4));
        for (int e = 0; e < c.experts; e++)
            home[e] =
                (int32_t)(mix(seed, 78, (uint64_t)e, 0) % (uint64_t)self->size);
        if (dice[11] % 2)
            c.placement = home;
        for (int e = 0; e < c.experts && dice[12] % 3 == 0; e++) {
            int at = c.placement ? home[e] : e * self->size / c.experts;
            int32_t rank =
                (int32_t)(mix(seed, 79, (uint64_t)e, 0) % (uint64_t)self->size);

            if (rank != at)
                copies[c.nreplicas++] = (struct shunt_moe_replica){e, rank};
        }
        c.replicas = copies;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        world_init(&w, &c, self->size, world_nodes(self),
                   dice[13] % 4 ? REALS : INTEGERS, seed, 0, 1 + dice[14] % 30,
                   (int)(dice[15] % 40));
        CHECK_RUN(run_everything(self, moe, &w, seed % 2 ? HEAP : WINDOW));
        world_finish(&w);
        shunt_moe_destroy(moe);
    }
    return 0;
}

static int s03_zero_tokens(const struct rank *self)
{
    struct shunt_moe_config c = config_of(12, SHUNT_F32, 4, 2);
    struct shunt_moe *moe;
    struct world w;

    CHECK_RUN(run_seeds(self, &c, REALS, 0, 0, 0));
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int idle = 0; idle < self->size; idle++) {
        world_init(&w, &c, self->size, world_nodes(self), REALS, 9, 3, 8, 0);
        w.tokens[idle] = 0;
        world_lay_out(&w);
        CHECK_RUN(run_everything(self, moe, &w, WINDOW));
        world_finish(&w);
    }
    /* All rows go to one expert; the other ranks receive nothing. */
    world_init(&w, &c, self->size, world_nodes(self), REALS, 9, 3, 8, 0);
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < w.tokens[r] * 2; i++)
            w.expert[r][i] = 3;
    world_lay_out(&w);
    CHECK_RUN(run_everything(self, moe, &w, HEAP));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

static int s07_no_weights_are_ones(const struct rank *self)
{
    struct shunt_moe_config c = config_of(24, SHUNT_F32, 4, 2);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct run run = {.self = self};
    struct world w;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 10);
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < w.tokens[r] * 2; i++)
            w.weight[r][i] = 1;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, w.expert[self->rank], NULL,
                                               w.tokens[self->rank], &plan));
    run.world = &w;
    run.plan = plan;
    shunt_moe_plan_rows(plan, &run.rows, sizeof(run.rows));
    run.bytes = 24 * 4;
    run.buffer[1] = filled(run.rows.total * run.bytes);
    run.y = filled(run.rows.tokens * run.bytes);
    run.bias = filled(run.rows.tokens * run.bytes);
    /* When this call ends, the lists of the plan have been sent. */
    CHECK_OK(self->comm, shunt_moe_combine(plan, run.buffer[1], NULL, run.y));
    CHECK_RUN(run_combine(&run, false));
    free(run.buffer[1]);
    free(run.y);
    free(run.bias);
    shunt_moe_plan_destroy(plan);
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* The same routing must give the same bits again, with the same plan and with a
 * new plan. */
static int s10_repeats(const struct rank *self)
{
    struct shunt_moe_config c = config_of(100, SHUNT_BF16, 8, 4);
    struct shunt_moe_plan *a, *b;
    struct shunt_moe *moe;
    struct shunt_moe_rows in;
    struct world w;
    unsigned char *x, *rows[3], *y[3];
    struct run run = {.self = self, .world = &w, .bytes = 200};

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 20, 10);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, plan_of(self, moe, &w, &a));
    CHECK_OK(self->comm, plan_of(self, moe, &w, &b));
    shunt_moe_plan_rows(a, &in, sizeof(in));
    run.rows = in;
    x = filled(in.tokens * 200);
    run_fill_tokens(&run, x, KIND_X);
    for (int i = 0; i < 3; i++) {
        rows[i] = filled(in.total * 200);
        y[i] = filled(in.tokens * 200);
        CHECK_OK(self->comm,
                 shunt_moe_dispatch(i == 2 ? b : a, x, rows[i], in.total));
        CHECK_OK(self->comm,
                 shunt_moe_combine(i == 2 ? b : a, rows[i], NULL, y[i]));
    }
    for (int i = 1; i < 3; i++) {
        CHECK(!memcmp(rows[0], rows[i], in.total * 200), "rows %d differ", i);
        CHECK(!memcmp(y[0], y[i], in.tokens * 200), "results %d differ", i);
    }
    for (int i = 0; i < 3; i++) {
        free(rows[i]);
        free(y[i]);
    }
    free(x);
    shunt_moe_plan_destroy(a);
    shunt_moe_plan_destroy(b);
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* The example of the definitions: 4 ranks, 2 nodes. */
static int worked_example(const struct rank *self)
{
    static const size_t tokens[4] = {2, 1, 0, 1};
    static const size_t first_token[4] = {0, 2, 3, 3};
    static const int32_t expert[4][3] = {
        {1, 4, 6}, {4, 5, 7}, {0, 2, 3}, {2, 5, 6}};
    static const float weight[4][3] = {
        {.5f, .3f, .2f}, {.4f, .4f, .2f}, {.6f, .3f, .1f}, {.2f, .3f, .5f}};
    /* The tokens in each rank's rows, and where its experts begin. */
    static const int rows_of[4][4] = {
        {2, 0}, {2, 3, 2}, {0, 1, 1, 3}, {0, 3, 1}};
    static const size_t offset[4][3] = {
        {0, 1, 2}, {0, 2, 3}, {0, 2, 4}, {0, 2, 3}};
    static const float result[4] = {3.9f, 12.0f, 5.7f, 23.6f};
    struct shunt_moe_config c = config_of(1, SHUNT_F32, 8, 3);
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;
    size_t mine = first_token[self->rank], n = tokens[self->rank];
    float x[2], y[2] = {-1, -1}, rows[8];
    int r = self->rank;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, expert[mine % 4],
                                               weight[mine % 4], n, &plan));
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    for (int e = 0; e < 3; e++)
        CHECK(in.offset[e] == offset[r][e], "offset[%d] is %zu", e,
              in.offset[e]);
    for (size_t t = 0; t < n; t++)
        x[t] = (float)(mine + t) + 1;
    CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, 8));
    for (size_t i = 0; i < in.total; i++)
        CHECK(rows[i] == (float)rows_of[r][i] + 1, "row %zu is token %g", i,
              (double)rows[i] - 1);
    for (int e = 0; e < 2; e++)
        for (size_t i = in.offset[e]; i < in.offset[e + 1]; i++)
            rows[i] *= (float)in.expert[e] + 1;
    CHECK_OK(self->comm, shunt_moe_combine(plan, rows, NULL, y));
    for (size_t t = 0; t < n; t++)
        CHECK(fabsf(y[t] - result[mine + t]) < 1e-5f, "token %zu: %g, not %g",
              mine + t, (double)y[t], (double)result[mine + t]);
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    return 0;
}

const struct rank_case reference_cases[] = {
    {.name = "integers_f32", .run = run_rows},
    {.name = "integers_bf16", .run = run_rows},
    {.name = "reals_f32", .run = run_rows},
    {.name = "reals_bf16", .run = run_rows},
    {.name = "plain_sum", .run = run_rows},
    {.name = "fp8_wire", .run = run_rows},
    {.name = "capacity_by_position", .run = run_rows},
    {.name = "capacity_by_weight", .run = run_rows},
    {.name = "capacity_padded", .run = run_rows},
    {.name = "row_align", .run = run_rows},
    {.name = "tree_ranks", .run = tree_ranks},
    {.name = "tree_nodes", .run = run_rows},
    {.name = "replicas", .run = replicas},
    {.name = "order_of_homes", .run = order_of_homes},
    {.name = "set_placement", .run = set_placement},
    {"large", large, .max_ranks = 3},
    {.name = "odd_rows", .run = odd_rows},
    {.name = "any_config", .run = any_config},
    {"worked_example", worked_example, .min_ranks = 4, .max_ranks = 4},
    {.name = "s01_none", .run = run_rows},
    {.name = "s02_same_expert_twice", .run = run_rows},
    {.name = "s03_zero_tokens", .run = s03_zero_tokens},
    {.name = "s07_no_weights_are_ones", .run = s07_no_weights_are_ones},
    {.name = "s10_repeats", .run = s10_repeats},
    {.name = "s17_uneven", .run = s17_uneven},
    {.name = NULL},
};
