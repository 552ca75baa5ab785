// SPDX-License-Identifier: Apache-2.0
/*
 * Rank 0 has other settings than the other ranks. All ranks must use the
 * settings of rank 0. If each rank used its own, calls would hang, or end with
 * errors.
 */

#include <stdlib.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

/* Settings on which ranks must agree: the name, rank 0's value, and the others'
 * value. */
static const char *const settings[][3] = {
    {"SHUNT_EAGER", "1k", "16k"},
    {"SHUNT_CHUNK", "16k", "1k"},
    {"SHUNT_ZCOPY_MIN", "1m", "4k"},
    {"SHUNT_ALLREDUCE_DIRECT", "1m", "8"},
    {"SHUNT_ALGORITHM", "allgather=flat", "allgather=two_level,broadcast=flat"},
    {"SHUNT_CARRY", "0", "1m"},
    {"SHUNT_RELAY_IN_PLACE", "64", "1g"},
    {"SHUNT_RELAY_PART", "64", "1m"},
    {"SHUNT_FUSED", "always", "off"},
    {"SHUNT_MOE_CHUNK", "100", "1m"},
    {"SHUNT_MOE_RECORDS", "0", "1m"},
};

/* Element i of rank r's vector. */
static int64_t element(int r, size_t i)
{
    return (int64_t)(i % 1000) + 1000 * r;
}

/* Calls allreduce, allgather and alltoall with `count` elements, and checks the
 * results. */
static int collectives_of(const struct rank *self, struct shunt_comm *comm,
                          size_t count)
{
    const size_t size = (size_t)self->size, total = size * count;
    int64_t *mine = calloc(total, sizeof(*mine));
    int64_t *all = calloc(total, sizeof(*all));
    int64_t rank_sum = 1000 * (int64_t)(size * (size - 1) / 2);

    for (size_t i = 0; i < total; i++)
        mine[i] = element(self->rank, i);
    CHECK_OK(comm,
             shunt_allreduce(comm, mine, all, count, SHUNT_I64, SHUNT_SUM));
    for (size_t i = 0; i < count; i++)
        CHECK(all[i] == (int64_t)(size * (i % 1000)) + rank_sum,
              "sum %zu of %zu", i, count);
    CHECK_OK(comm, shunt_allgather(comm, mine, all, count, SHUNT_I64));
    for (size_t i = 0; i < total; i++)
        CHECK(all[i] == element((int)(i / count), i % count),
              "gathered %zu of %zu", i, count);
    CHECK_OK(comm, shunt_alltoall(comm, mine, all, count, SHUNT_I64));
    for (size_t i = 0; i < total; i++)
        CHECK(all[i] == element((int)(i / count),
                                (size_t)self->rank * count + i % count),
              "exchanged %zu of %zu", i, count);
    free(mine);
    free(all);
    return 0;
}

/* Makes a plan in which all tokens go to expert 0, so to rank 0. */
static int plan_of(const struct rank *self, struct shunt_comm *comm)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    struct shunt_moe_rows rows;
    const int32_t experts[5] = {0};
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;

    config.hidden = 8;
    config.experts = (size_t)self->size;
    config.topk = 1;
    config.max_tokens = 5;
    config.dtype = SHUNT_F32;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    CHECK_OK(comm, shunt_moe_create(comm, &config, &moe));
    CHECK_OK(comm, shunt_moe_plan_create(moe, experts, NULL, 5, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    CHECK(rows.total == (self->rank ? 0 : 5 * (size_t)self->size), "%zu rows",
          rows.total);
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    return 0;
}

static int settings_are_rank_0s(const struct rank *self)
{
    static const size_t counts[] = {1, 3, 200, 1500, 3000, 20000};
    struct shunt_comm *twin;

    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        setenv(settings[i][0], settings[i][self->rank ? 2 : 1], 1);
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (collectives_of(self, twin, counts[i]))
            return 1;
    if (plan_of(self, twin))
        return 1;
    CHECK_OK(twin, shunt_comm_finish(twin));
    shunt_comm_destroy(twin);
    return 0;
}

static const struct rank_case cases[] = {
    {"settings_are_rank_0s", settings_are_rank_0s, .no_threads = true,
     .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
