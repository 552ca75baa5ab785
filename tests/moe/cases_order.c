// SPDX-License-Identifier: Apache-2.0
/*
 * Waves in order. Each wave has a range of each expert's rows, in the order in
 * which a single wave would have them. So the leaves of a gradient, and its
 * bits, are the same.
 */
#include <stdlib.h>
#include <string.h>

#include <shunt/moe_gradients.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

enum { MOST = 50, HIDDEN = 12, TOPK = 3, EXPERTS = 5, LEAF = 7 };

struct tokens {
    size_t count;
    int32_t expert[MOST * TOPK];
    float x[MOST * HIDDEN];
};

/* Adds the gradient of some rows to `to`. Here it is a sum of squares, row by
 * row. */
static void add_rows(const float *rows, size_t n, float *to)
{
    for (size_t i = 0; i < n * HIDDEN; i++)
        to[i % HIDDEN] += rows[i] * rows[i];
}

/* The rows of one expert in the order in which they arrived. `due` is true
 * while `leaf` lacks rows. */
struct got {
    struct shunt_moe_tree tree;
    struct shunt_moe_leaf leaf;
    int due;
    /* rows: all rows of the expert; memory: the sums of `tree` */
    float *rows, *memory;
    size_t count;
};

static int begin(struct got *g, const struct shunt_moe_range *range)
{
    g->rows = calloc((size_t)range->all + 1, HIDDEN * sizeof(float));
    g->memory =
        calloc(shunt_moe_tree_room(range, LEAF) + 1, HIDDEN * sizeof(float));
    g->count = 0;
    CHECK_OK(NULL,
             shunt_moe_tree_begin(&g->tree, range, LEAF, g->memory, HIDDEN));
    g->due = shunt_moe_tree_next(&g->tree, &g->leaf);
    return 0;
}

/* Adds the rows that have arrived, and completes all leaves that end with
 * them. */
static void take(struct got *g, const float *rows, size_t n)
{
    if (n)
        memcpy(g->rows + g->count * HIDDEN, rows, n * HIDDEN * sizeof(*rows));
    g->count += n;
    while (g->due && g->leaf.row + g->leaf.rows <= g->count) {
        memset(g->leaf.gradient, 0, HIDDEN * sizeof(float));
        add_rows(g->rows + g->leaf.row * HIDDEN, g->leaf.rows,
                 g->leaf.gradient);
        g->due = shunt_moe_tree_next(&g->tree, &g->leaf);
    }
}

static void finish(struct got *got)
{
    for (int e = 0; e < EXPERTS; e++) {
        free(got[e].rows);
        free(got[e].memory);
    }
}

/* In all waves but the last, some rank must be so full that one more token
 * might not fit. */
static int check_full(const struct rank *self, size_t total, size_t max_rows,
                      bool last)
{
    int64_t mine = (int64_t)total, most;

    CHECK_OK(self->comm, shunt_allreduce(self->comm, &mine, &most, 1, SHUNT_I64,
                                         SHUNT_MAX));
    CHECK(most <= (int64_t)max_rows, "%d rows at once", (int)most);
    CHECK(last || most > (int64_t)max_rows - TOPK, "only %d rows of %zu",
          (int)most, max_rows);
    return 0;
}

/* Dispatches all waves. got: (EXPERTS) by local expert. */
static int run(const struct rank *self, struct shunt_moe *moe,
               const struct tokens *t, size_t max_rows, struct got *got,
               int *waves)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    const struct shunt_moe_state none = {.size = sizeof(none)};
    struct shunt_moe_plan *plan, *wave;
    struct shunt_moe_rows all, in;

    options.max_rows = max_rows;
    options.in_order = 1;
    CHECK_OK(self->comm, shunt_moe_plan_create_with(moe, t->expert, NULL,
                                                    t->count, &options, &plan));
    shunt_moe_plan_rows(plan, &all, sizeof(all));
    CHECK(all.leaf_rows == LEAF, "leaves of %zu", all.leaf_rows);
    for (int i = 0; i < all.local_experts; i++)
        CHECK_RUN(begin(&got[i], &all.range[i]));
    for (int w = 0; (wave = shunt_moe_plan_wave(plan, w)); w++) {
        float *rows;

        if (all.waves > 1)
            CHECK_STATUS(self->comm,
                         shunt_moe_gradients_reduce(wave, NULL, &none, 0),
                         SHUNT_ERR_INVALID);
        shunt_moe_plan_rows(wave, &in, sizeof(in));
        if (max_rows)
            CHECK_RUN(check_full(self, in.total, max_rows, w + 1 == all.waves));
        rows = shunt_moe_buffer(wave, SHUNT_MOE_ROWS);
        CHECK_OK(self->comm,
                 shunt_moe_dispatch(wave, t->x + in.first_token * HIDDEN, rows,
                                    in.total));
        for (int i = 0; i < in.local_experts; i++) {
            CHECK(in.range[i].first == got[i].count &&
                      in.range[i].count == in.count[i] &&
                      in.range[i].all == all.range[i].all,
                  "wave %d has rows %d + %d of %d, behind %zu", w,
                  (int)in.range[i].first, (int)in.range[i].count,
                  (int)in.range[i].all, got[i].count);
            take(&got[i], in.total ? rows + in.offset[i] * HIDDEN : NULL,
                 in.count[i]);
        }
    }
    for (int i = 0; i < all.local_experts; i++)
        CHECK(!got[i].due && got[i].count == all.range[i].all, "%zu rows",
              got[i].count);
    *waves = all.waves;
    shunt_moe_plan_destroy(plan);
    return 0;
}

static struct shunt_moe_config config(void)
{
    struct shunt_moe_config c = config_of(HIDDEN, SHUNT_F32, EXPERTS, TOPK);

    c.max_tokens = MOST;
    c.leaf_rows = LEAF;
    return c;
}

/* In every second rank most rows are for one expert. The ranks in between have
 * no rows for it. So when that expert is full, the tokens of the next rank
 * would still fit. Every fourth rank has no tokens. */
static void fill(struct tokens *t, const struct rank *self)
{
    const uint64_t rank = (uint64_t)self->rank;

    t->count = rank % 4 == 3 ? 0 : MOST - (size_t)(rank % 3) * 9;
    for (size_t i = 0; i < MOST * TOPK; i++) {
        const uint64_t dice = mix(32, rank, i, 0);

        t->expert[i] = rank % 2   ? 2 + (int32_t)(dice % 3)
                       : dice % 8 ? 1
                                  : (int32_t)(dice / 8 % (EXPERTS + 1)) - 1;
    }
    for (size_t i = 0; i < (size_t)MOST * HIDDEN; i++)
        t->x[i] = (float)(mix(33, rank, i, 0) & 0xffff) / 65536;
}

static int waves_in_order(const struct rank *self)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    struct tokens *t = calloc(1, sizeof(*t));
    struct shunt_moe_config c = config();
    struct got one[EXPERTS] = {0};
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    int waves, experts = 0, most = 0;

    fill(t, self);
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_RUN(run(self, moe, t, 0, one, &waves));
    CHECK(waves == 1, "%d waves without max_rows", waves);
    for (size_t rows = (size_t)self->size * TOPK; rows < 60; rows += 11) {
        struct got many[EXPERTS] = {0};

        CHECK_RUN(run(self, moe, t, rows, many, &waves));
        most = waves > most ? waves : most;
        for (experts = 0; experts < EXPERTS && one[experts].rows; experts++) {
            const struct got *a = &one[experts], *b = &many[experts];

            CHECK(
                !memcmp(a->rows, b->rows, a->count * HIDDEN * sizeof(*a->rows)),
                "rows of expert %d are in another order", experts);
            CHECK(a->tree.sums == b->tree.sums &&
                      !memcmp(a->memory, b->memory,
                              a->tree.sums * HIDDEN * sizeof(*a->memory)),
                  "the sum of expert %d has other bits", experts);
        }
        finish(many);
    }
    CHECK(most > 2, "never more than %d waves", most);
    finish(one);
    if (self->size > 1) {
        options.max_rows = 100;
        options.in_order = self->rank == 0;
        CHECK_STATUS(self->comm,
                     shunt_moe_plan_create_with(moe, t->expert, NULL, t->count,
                                                &options, &plan),
                     SHUNT_ERR_MISMATCH);
        CHECK(strstr(shunt_last_error(self->comm), "in_order"), "%s",
              shunt_last_error(self->comm));
    }
    shunt_moe_destroy(moe);

    c.pad_to_capacity = 1;
    c.capacity_factor = 2;
    options.max_rows = 1000;
    options.in_order = 1;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_STATUS(self->comm,
                 shunt_moe_plan_create_with(moe, t->expert, NULL, t->count,
                                            &options, &plan),
                 SHUNT_ERR_UNSUPPORTED);
    shunt_moe_destroy(moe);
    free(t);
    return 0;
}

const struct rank_case order_cases[] = {
    {.name = "waves_in_order", .run = waves_in_order},
    {.name = NULL},
};
