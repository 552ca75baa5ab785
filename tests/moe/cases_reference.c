// SPDX-License-Identifier: Apache-2.0
/* Whole exchanges, compared with the reference bit by bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

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
    {.name = "any_config", .run = any_config},
    {"worked_example", worked_example, .min_ranks = 4, .max_ranks = 4},
    {.name = NULL},
};
