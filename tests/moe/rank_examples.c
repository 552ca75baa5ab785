// SPDX-License-Identifier: Apache-2.0
/*
 * Routings whose rows and sums were computed by hand, without the reference of
 * the other cases. They run in every mode that the ranks' memory permits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

static const enum shunt_moe_mode modes[] = {
    SHUNT_MOE_FLAT, SHUNT_MOE_DIRECT, SHUNT_MOE_TWO_LEVEL, SHUNT_MOE_ALLGATHER,
    SHUNT_MOE_AUTO};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static struct shunt_moe_config config_of(size_t hidden, int experts, int topk,
                                         size_t tokens)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;

    c.hidden = hidden;
    c.dtype = SHUNT_F32;
    c.experts = experts;
    c.topk = topk;
    c.max_tokens = tokens;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    return c;
}

/* Do all ranks map the memory of their local peers? */
static int find_mapped(const struct rank *self, int32_t *mapped)
{
    *mapped = 1;
    for (int r = 0; r < self->size; r++)
        if (r != self->rank &&
            shunt_comm_node(self->comm, r) ==
                shunt_comm_node(self->comm, self->rank) &&
            !strstr(shunt_comm_transport(self->comm, r), "(map"))
            *mapped = 0;
    CHECK_OK(self->comm, shunt_allreduce(self->comm, mapped, mapped, 1,
                                         SHUNT_I32, SHUNT_MIN));
    return 0;
}

/* Creates an exchange; *moe is NULL if the memory does not permit the mode. */
static int create(const struct rank *self, struct shunt_moe_config *c,
                  enum shunt_moe_mode mode, struct shunt_moe **moe)
{
    enum shunt_status st;
    int32_t mapped;

    CHECK_RUN(find_mapped(self, &mapped));
    c->mode = mode;
    st = shunt_moe_create(self->comm, c, moe);
    if (st == SHUNT_ERR_UNSUPPORTED && mode != SHUNT_MOE_AUTO &&
        mode != SHUNT_MOE_FLAT &&
        (!mapped ||
         (mode == SHUNT_MOE_DIRECT && shunt_comm_nodes(self->comm) > 1)))
        return 0;
    CHECK(st == SHUNT_OK, "mode %d: %s", mode, rank_why(self->comm, st));
    return 0;
}

/* --- two nodes of two ranks, eight experts, top-3 ------------------------- */

static const size_t example_tokens[4] = {2, 1, 0, 1};
static const size_t example_first[4] = {0, 2, 3, 3};
static const int32_t example_expert[4][3] = {
    {1, 4, 6}, {4, 5, 7}, {0, 2, 3}, {2, 5, 6}};
static const float example_weight[4][3] = {
    {.5f, .3f, .2f}, {.4f, .4f, .2f}, {.6f, .3f, .1f}, {.2f, .3f, .5f}};

/* Checks the plan's counts and rows. On two nodes, checks the bytes between
 * them, too. */
static int example_sizes(const struct rank *self,
                         const struct shunt_moe_rows *in, size_t row)
{
    /* by source rank and expert */
    static const size_t count[4][8] = {{0, 1, 0, 0, 2, 1, 1, 1},
                                       {1, 0, 1, 1, 0, 0, 0, 0},
                                       {0},
                                       {0, 0, 1, 0, 0, 1, 1, 0}};
    static const size_t offset[4][3] = {
        {0, 1, 2}, {0, 2, 3}, {0, 2, 4}, {0, 2, 3}};
    /* Rows that leave the node. plain: one for each assignment; by_rank: one
     * for each rank that a token goes to; by_node: one for each node; all: each
     * token once. */
    static const size_t plain[4] = {5, 0, 0, 1}, by_rank[4] = {4, 0, 0, 1},
                        by_node[4] = {2, 0, 0, 1}, all[4] = {2, 1, 0, 1};
    const bool nodes = shunt_comm_nodes(self->comm) == 2;
    const size_t *want = in->mode == SHUNT_MOE_FLAT        ? by_rank
                         : in->mode == SHUNT_MOE_TWO_LEVEL ? by_node
                                                           : all;
    int r = self->rank;

    CHECK(in->local_experts == 2, "%d experts", in->local_experts);
    for (int e = 0; e < 3; e++)
        CHECK(in->offset[e] == offset[r][e], "offset[%d] is %zu", e,
              in->offset[e]);
    for (int s = 0; s < 4; s++)
        for (int e = 0; e < 2; e++)
            CHECK(in->source_count[2 * s + e] == count[s][2 * r + e],
                  "%zu rows of expert %d from rank %d",
                  in->source_count[2 * s + e], 2 * r + e, s);
    if (!nodes)
        return 0;
    CHECK(in->network_rows_plain == plain[r], "%zu rows plain",
          in->network_rows_plain);
    CHECK(in->network_rows == want[r], "mode %d: %zu rows", in->mode,
          in->network_rows);
    CHECK(in->network_dispatch_bytes == want[r] * row, "mode %d: %zu B",
          in->mode, in->network_dispatch_bytes);
    return 0;
}

static int example_exchange(const struct rank *self,
                            struct shunt_moe_plan *plan,
                            const struct shunt_moe_rows *in)
{
    static const int rows_of[4][4] = {
        {2, 0}, {2, 3, 2}, {0, 1, 1, 3}, {0, 3, 1}};
    static const float result[4] = {3.9f, 12.0f, 5.7f, 23.6f};
    size_t mine = example_first[self->rank], n = example_tokens[self->rank];
    float x[2], y[2] = {-1, -1}, rows[8];

    for (size_t t = 0; t < n; t++)
        x[t] = (float)(mine + t) + 1;
    CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, 8));
    for (size_t i = 0; i < in->total; i++)
        CHECK(rows[i] == (float)rows_of[self->rank][i] + 1,
              "mode %d: row %zu is token %g", in->mode, i, (double)rows[i] - 1);
    for (int e = 0; e < 2; e++)
        for (size_t i = in->offset[e]; i < in->offset[e + 1]; i++)
            rows[i] *= (float)in->expert[e] + 1;
    CHECK_OK(self->comm, shunt_moe_combine(plan, rows, NULL, y));
    for (size_t t = 0; t < n; t++)
        CHECK(fabsf(y[t] - result[mine + t]) < 1e-5f,
              "mode %d: token %zu: %g, not %g", in->mode, mine + t,
              (double)y[t], (double)result[mine + t]);
    return 0;
}

static int worked_example(const struct rank *self)
{
    for (size_t m = 0; m < MODES; m++) {
        struct shunt_moe_config c = config_of(1, 8, 3, 2);
        size_t first = example_first[self->rank] % 4;
        struct shunt_moe *moe;
        struct shunt_moe_plan *plan;
        struct shunt_moe_rows in;

        CHECK_RUN(create(self, &c, modes[m], &moe));
        if (!moe)
            continue;
        CHECK_OK(self->comm,
                 shunt_moe_plan_create(moe, example_expert[first],
                                       example_weight[first],
                                       example_tokens[self->rank], &plan));
        shunt_moe_plan_rows(plan, &in, sizeof(in));
        CHECK_RUN(example_sizes(self, &in, sizeof(float)));
        CHECK_RUN(example_exchange(self, plan, &in));
        shunt_moe_plan_destroy(plan);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* --- three ranks, nine experts -------------------------------------------- */

/* Token i of each rank goes to expert i, which multiplies it by i + 1. */
static int nine_experts(const struct rank *self)
{
    const int r = self->rank;

    for (size_t m = 0; m < MODES; m++) {
        struct shunt_moe_config c = config_of(1, 9, 1, 9);
        struct shunt_moe *moe;
        struct shunt_moe_plan *plan;
        struct shunt_moe_rows in;
        float x[9], y[9], rows[9];
        int32_t idx[9];

        CHECK_RUN(create(self, &c, modes[m], &moe));
        if (!moe)
            continue;
        for (int i = 0; i < 9; i++) {
            idx[i] = i;
            x[i] = (float)(100 * r + i);
        }
        CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, NULL, 9, &plan));
        shunt_moe_plan_rows(plan, &in, sizeof(in));
        CHECK(in.local_experts == 3 && in.total == 9, "%d experts, %zu rows",
              in.local_experts, in.total);
        CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, 9));
        for (int e = 0; e < 3; e++) {
            CHECK(in.expert[e] == 3 * r + e && in.count[e] == 3 &&
                      in.offset[e] == (size_t)(3 * e),
                  "expert %d: %zu rows at %zu", in.expert[e], in.count[e],
                  in.offset[e]);
            for (int s = 0; s < 3; s++) {
                float *row = &rows[3 * e + s];

                CHECK(*row == (float)(100 * s + 3 * r + e),
                      "mode %d: row %d is %g", in.mode, 3 * e + s,
                      (double)*row);
                *row *= (float)(3 * r + e + 1);
            }
        }
        CHECK_OK(self->comm, shunt_moe_combine(plan, rows, NULL, y));
        for (int i = 0; i < 9; i++)
            CHECK(y[i] == (float)((100 * r + i) * (i + 1)), "token %d: %g", i,
                  (double)y[i]);
        shunt_moe_plan_destroy(plan);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* --- six tokens to experts 0, 1, 2, 1, 1, 0 ------------------------------- */

/* The tokens of each expert's rows from each rank. -1 is padding, -2 the
 * end. */
struct six_rows {
    double capacity; /* 0: dropless */
    int token[3][4];
    int dropped; /* the token that is dropped, or -1 */
};

/* The numbers of figure 3 in "Switch Transformers" (2101.03961). With factor
 * 1.0 each expert has 2 rows, and one token is dropped. With 1.5 each has 3
 * rows. */
static const struct six_rows six[] = {
    {0, {{0, 5, -2}, {1, 3, 4, -2}, {2, -2}}, -1},
    {1.0, {{0, 5, -2}, {1, 3, -2}, {2, -1, -2}}, 4},
    {1.5, {{0, 5, -1, -2}, {1, 3, 4, -2}, {2, -1, -1, -2}}, -1},
};

static int check_six(const struct rank *self, struct shunt_moe_plan *plan,
                     const struct six_rows *want)
{
    struct shunt_moe_rows in;
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    float x[6], y[6], *rows = malloc((in.total + 1) * sizeof(*rows));

    CHECK(rows, "memory");
    memset(rows, 0xff, in.total * sizeof(*rows));
    for (int i = 0; i < 6; i++)
        x[i] = (float)(10 * self->rank + i + 1);
    CHECK((int)in.dropped == (want->dropped >= 0), "%zu are dropped",
          in.dropped);
    CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, in.total));
    for (int e = 0; e < in.local_experts; e++) {
        size_t at = in.offset[e];

        for (int s = 0; s < self->size; s++)
            for (const int *t = want->token[in.expert[e]]; *t != -2; t++, at++)
                CHECK(rows[at] == (*t < 0 ? 0 : (float)(10 * s + *t + 1)),
                      "mode %d: row %zu is %g", in.mode, at, (double)rows[at]);
        CHECK(at == in.offset[e] + in.count[e], "%zu rows", in.count[e]);
    }
    CHECK_OK(self->comm, shunt_moe_combine(plan, rows, NULL, y));
    for (int i = 0; i < 6; i++)
        CHECK(y[i] == (i == want->dropped ? 0 : x[i]), "token %d: %g", i,
              (double)y[i]);
    free(rows);
    return 0;
}

static int six_tokens(const struct rank *self)
{
    static const int32_t idx[] = {0, 1, 2, 1, 1, 0};

    for (size_t m = 0; m < MODES; m++)
        for (size_t i = 0; i < sizeof(six) / sizeof(six[0]); i++) {
            struct shunt_moe_config c = config_of(1, 3, 1, 6);
            struct shunt_moe *moe;
            struct shunt_moe_plan *plan;

            c.capacity_factor = six[i].capacity;
            c.pad_to_capacity = six[i].capacity > 0;
            CHECK_RUN(create(self, &c, modes[m], &moe));
            if (!moe)
                continue;
            CHECK_OK(self->comm,
                     shunt_moe_plan_create(moe, idx, NULL, 6, &plan));
            CHECK_RUN(check_six(self, plan, &six[i]));
            shunt_moe_plan_destroy(plan);
            shunt_moe_destroy(moe);
        }
    return 0;
}

/* --- experts that change nothing ------------------------------------------ */

enum { EXPERTS = 8, HIDDEN = 5, TOKENS = 20 };

/* The weights of a token are powers of two and add up to 1. So combine must
 * return the tokens unchanged, bit by bit, in both directions. */
static int identity(const struct rank *self, int topk, bool idle)
{
    const float weight = 1.0f / (float)topk;
    const size_t tokens = idle && self->rank % 2 == 0 ? 0 : TOKENS;

    for (size_t m = 0; m < MODES; m++) {
        struct shunt_moe_config c = config_of(HIDDEN, EXPERTS, topk, TOKENS);
        float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN], w[TOKENS * EXPERTS];
        int32_t idx[TOKENS * EXPERTS];
        struct shunt_moe *moe;
        struct shunt_moe_plan *plan;
        struct shunt_moe_rows in;
        void *rows;
        size_t total;

        CHECK_RUN(create(self, &c, modes[m], &moe));
        if (!moe)
            continue;
        for (int t = 0; t < TOKENS; t++)
            for (int j = 0; j < topk; j++) {
                idx[t * topk + j] = (t * 3 + j + self->rank) % EXPERTS;
                w[t * topk + j] = weight;
            }
        for (int i = 0; i < TOKENS * HIDDEN; i++)
            x[i] = (float)(1000 * self->rank + i) / 64;
        CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, w, tokens, &plan));
        rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
        shunt_moe_plan_rows(plan, &in, sizeof(in));
        total = in.total;
        CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, total));
        CHECK_OK(self->comm, shunt_moe_combine(plan, rows, NULL, y));
        CHECK(!memcmp(x, y, tokens * HIDDEN * sizeof(*x)),
              "mode %d: y is not x", modes[m]);
        /* combine_backward has already applied the weights to the gradients of
         * rows. */
        CHECK_OK(self->comm,
                 shunt_moe_combine_backward(plan, x, rows, rows, total, w));
        CHECK_OK(self->comm, shunt_moe_dispatch_backward(plan, rows, y));
        CHECK(!memcmp(x, y, tokens * HIDDEN * sizeof(*x)),
              "mode %d: dx is not dy", modes[m]);
        shunt_moe_plan_destroy(plan);
        shunt_moe_destroy(moe);
    }
    return 0;
}

static int identity_experts(const struct rank *self)
{
    CHECK_RUN(identity(self, 1, false));
    CHECK_RUN(identity(self, 1, true));
    CHECK_RUN(identity(self, EXPERTS, false));
    return identity(self, EXPERTS, true);
}

/* --- the mode that AUTO chooses ------------------------------------------- */

static int auto_takes(const struct rank *self, int topk,
                      enum shunt_moe_mode want)
{
    const int experts = 2 * self->size;
    struct shunt_moe_config c = config_of(4, experts, topk, 4);
    int32_t *idx = calloc(4 * (size_t)topk, sizeof(*idx));
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;
    enum shunt_moe_mode mode;

    CHECK(idx, "memory");
    for (int i = 0; i < 4 * topk; i++)
        idx[i] = (i + self->rank) % experts;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, idx, NULL, 4, &plan));
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    mode = in.mode;
    CHECK(mode == want, "AUTO took mode %d and not %d", mode, want);
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    free(idx);
    return 0;
}

/* On one node DIRECT. Between nodes ALLGATHER if every node needs every token,
 * else TWO_LEVEL. FLAT if the ranks of a node are not mapped. */
static int mode_of_auto(const struct rank *self)
{
    const int experts = 2 * self->size;
    const bool nodes = shunt_comm_nodes(self->comm) > 1;
    int32_t mapped;

    CHECK_RUN(find_mapped(self, &mapped));
    if (!mapped) {
        CHECK_RUN(auto_takes(self, 1, SHUNT_MOE_FLAT));
        return auto_takes(self, experts, SHUNT_MOE_FLAT);
    }
    CHECK_RUN(
        auto_takes(self, 1, nodes ? SHUNT_MOE_TWO_LEVEL : SHUNT_MOE_DIRECT));
    return auto_takes(self, experts,
                      nodes ? SHUNT_MOE_ALLGATHER : SHUNT_MOE_DIRECT);
}

static const struct rank_case cases[] = {
    {"worked_example", worked_example, .min_ranks = 4, .max_ranks = 4},
    {"nine_experts", nine_experts, .min_ranks = 3, .max_ranks = 3},
    {"six_tokens", six_tokens, .max_ranks = 0},
    {"identity_experts", identity_experts, .max_ranks = 0},
    {"mode_of_auto", mode_of_auto, .max_ranks = 0},
    {NULL, NULL, .max_ranks = 0},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
