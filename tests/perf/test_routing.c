// SPDX-License-Identifier: Apache-2.0
/* Tests of the routings that shunt-perf uses. */

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/routing.h"

TestSuite(routing, .timeout = 60);

static struct perf_routing make(struct perf_routing_config config)
{
    struct perf_routing r;
    const char *wrong = perf_routing_init(&r, &config);
    cr_assert_null(wrong, "%s", wrong);
    return r;
}

static const struct perf_routing_config configs[] = {
    {2, 64, 8, 500, PERF_SKEW_UNIFORM, 0, 2, 1, 0},
    {4, 64, 8, 200, PERF_SKEW_ZIPF, 1.5, 4, 2, 0},
    {3, 7, 7, 100, PERF_SKEW_ZIPF, 16, 3, 3,
     0}, /* topk is all experts, some with hardly any weight */
    {2, 16, 3, 300, PERF_SKEW_HOT, 0.5, 2, 4, 0},
    {8, 64, 6, 100, PERF_SKEW_NODE_LIMITED, 2, 8, 5, 0},
    {5, 3, 2, 50, PERF_SKEW_UNIFORM, 0, 5, 6, 0}, /* fewer experts than ranks */
    {1, 1, 1, 10, PERF_SKEW_HOT, 1, 1, 7, 0},
    {4, 8, 2, 0, PERF_SKEW_UNIFORM, 0, 4, 8, 0},
};

#define EACH_CONFIG(c) \
    for (size_t c = 0; c < sizeof(configs) / sizeof(*configs); c++)

Test(routing, experts_of_a_token_differ)
{
    EACH_CONFIG(c)
    {
        struct perf_routing r = make(configs[c]);
        for (int s = 0; s < r.ranks; s++) {
            for (size_t t = 0; t < r.tokens; t++) {
                const int32_t *e = perf_token_experts(&r, s, t);
                for (int i = 0; i < r.topk; i++) {
                    cr_assert(e[i] >= 0 && e[i] < r.experts);
                    for (int j = 0; j < i; j++)
                        cr_assert_neq(e[i], e[j], "config %zu", c);
                }
            }
        }
        perf_routing_finish(&r);
    }
}

Test(routing, weights_are_positive_and_sum_to_one)
{
    struct perf_routing r = make(configs[0]);
    for (size_t t = 0; t < r.tokens; t++) {
        const float *w = perf_token_weights(&r, 1, t);
        double sum = 0;
        for (int k = 0; k < r.topk; k++) {
            cr_assert_gt(w[k], 0);
            sum += (double)w[k];
        }
        cr_assert(fabs(sum - 1) < 1e-6);
    }
    perf_routing_finish(&r);
}

Test(routing, is_a_function_of_the_seed)
{
    struct perf_routing_config config = configs[1];
    struct perf_routing a = make(config), b = make(config);
    size_t n = (size_t)a.ranks * a.tokens * (size_t)a.topk;

    cr_assert_eq(memcmp(a.index, b.index, n * sizeof(*a.index)), 0);
    cr_assert_eq(memcmp(a.weight, b.weight, n * sizeof(*a.weight)), 0);
    perf_routing_finish(&b);
    config.seed++;
    b = make(config);
    cr_assert_neq(memcmp(a.index, b.index, n * sizeof(*a.index)), 0);
    perf_routing_finish(&a);
    perf_routing_finish(&b);
}

static void count_experts(const struct perf_routing *r, size_t *count)
{
    memset(count, 0, (size_t)r->experts * sizeof(*count));
    for (size_t i = 0; i < (size_t)r->ranks * r->tokens * (size_t)r->topk; i++)
        count[r->index[i]]++;
}

Test(routing, uniform_loads_experts_alike)
{
    struct perf_routing r = make((struct perf_routing_config){
        2, 16, 4, 10000, PERF_SKEW_UNIFORM, 0, 2, 11, 0});
    size_t count[16];

    /* Binomial: 20000 tokens, each has an expert with probability 1/4. The
     * bound of 367 is six standard deviations. */
    count_experts(&r, count);
    for (int e = 0; e < 16; e++)
        cr_assert(count[e] > 5000 - 367 && count[e] < 5000 + 367, "%d: %zu", e,
                  count[e]);
    perf_routing_finish(&r);
}

static int descending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

Test(routing, zipf_falls_as_it_should)
{
    struct perf_routing r = make((struct perf_routing_config){
        1, 8, 1, 40000, PERF_SKEW_ZIPF, 1, 1, 12, 0});
    size_t count[8];
    double sum = 0;

    count_experts(&r, count);
    qsort(count, 8, sizeof(*count), descending);
    for (int i = 1; i <= 8; i++)
        sum += 1.0 / i;
    for (int i = 1; i <= 8; i++) {
        double p = 1.0 / i / sum, expected = 40000 * p;
        cr_assert(fabs((double)count[i - 1] - expected) <
                      6 * sqrt(expected * (1 - p)),
                  "%d: %zu, expected %g", i, count[i - 1], expected);
    }
    perf_routing_finish(&r);
}

Test(routing, the_hot_expert_has_its_share)
{
    struct perf_routing r = make((struct perf_routing_config){
        2, 64, 2, 10000, PERF_SKEW_HOT, 0.5, 2, 13, 0});
    size_t count[64];

    /* Expert 0 gets half of 20000 tokens. Each other token has it with
     * probability 2 of 64: 10312 in all. */
    count_experts(&r, count);
    cr_assert(count[0] > 10312 - 500 && count[0] < 10312 + 500, "%zu",
              count[0]);
    for (int e = 1; e < 64; e++)
        cr_assert_lt(count[e], 1000);
    perf_routing_finish(&r);
}

Test(routing, node_limited_tokens_stay_in_their_groups)
{
    struct perf_routing r = make((struct perf_routing_config){
        8, 64, 6, 500, PERF_SKEW_NODE_LIMITED, 2, 4, 14, 0});
    bool all_groups[4] = {false};

    for (int s = 0; s < 8; s++) {
        for (size_t t = 0; t < r.tokens; t++) {
            const int32_t *e = perf_token_experts(&r, s, t);
            bool group[4] = {false};
            int groups = 0;
            for (int k = 0; k < r.topk; k++) {
                int g = perf_expert_rank(&r, e[k]) / 2; /* 2 ranks in a group */
                groups += !group[g];
                group[g] = all_groups[g] = true;
            }
            cr_assert_leq(groups, 2);
        }
    }
    for (int g = 0; g < 4; g++)
        cr_assert(all_groups[g]);
    perf_routing_finish(&r);
}

Test(routing, placement_is_contiguous_and_complete)
{
    static const int shapes[][2] = {{2, 64}, {3, 64}, {7, 5}, {4, 4}, {8, 9}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        struct perf_routing r = {.ranks = shapes[i][0],
                                 .experts = shapes[i][1]};
        cr_assert_eq(perf_first_expert(&r, 0), 0);
        cr_assert_eq(perf_first_expert(&r, r.ranks), r.experts);
        for (int e = 0; e < r.experts; e++) {
            int rank = perf_expert_rank(&r, e);
            cr_assert_eq(rank, e * r.ranks / r.experts);
            cr_assert(e >= perf_first_expert(&r, rank) &&
                      e < perf_first_expert(&r, rank + 1));
        }
    }
}

/* An example for four ranks and eight experts, calculated by hand. */
Test(routing, arrivals_are_in_expert_major_order)
{
    /* The example has two tokens on rank 0, and one each on ranks 1 and 3. Here
     * every rank has two tokens. The unused ones have only expert 7. */
    static int32_t index[] = {
        1, 4, 6, 4, 5, 7, /* rank 0 */
        0, 2, 3, 7, 7, 7, /* rank 1 */
        7, 7, 7, 7, 7, 7, /* rank 2 */
        2, 5, 6, 7, 7, 7, /* rank 3 */
    };
    struct perf_routing r = {
        .ranks = 4, .experts = 8, .topk = 3, .tokens = 2, .index = index};
    static const struct perf_arrival rank2[] = {
        {0, 0, 1, 4}, {0, 1, 0, 4}, {0, 1, 1, 5}, {3, 0, 1, 5}};
    size_t count;
    struct perf_arrival *a = perf_routing_arrivals(&r, 2, &count);

    cr_assert_eq(count, 4);
    cr_assert_eq(perf_routing_rows(&r, 2), 4);
    cr_assert_eq(memcmp(a, rank2, sizeof(rank2)), 0);
    free(a);
    cr_assert_eq(perf_routing_rows(&r, 0), 2);
    cr_assert_eq(perf_routing_rows(&r, 1), 3);
    cr_assert_eq(perf_routing_rows(&r, 3), 24 - 4 - 2 - 3);
}

/* Returns a workload whose batch is split over the ranks in order. It has 64
 * experts on 4 ranks, so the hot experts of W2, W6 and W7 are all on one
 * rank. */
static struct perf_routing workload(enum perf_skew skew, size_t step)
{
    return make((struct perf_routing_config){.ranks = 4,
                                             .experts = 64,
                                             .topk = 2,
                                             .tokens = 1000,
                                             .skew = skew,
                                             .seed = 3,
                                             .step = step});
}

static double share_of(const struct perf_routing *r, int rank)
{
    return (double)perf_routing_rows(r, rank) /
           (double)perf_routing_assigned(r);
}

/* The hot rank has the experts of three of four tokens, and a quarter of the
 * other tokens' choices: 0.8125. */
Test(routing, workloads_have_a_hot_rank)
{
    for (size_t step = 0; step < 10; step++) {
        struct perf_routing w2 = workload(PERF_SKEW_W2, step);
        struct perf_routing w6 = workload(PERF_SKEW_W6, step);
        struct perf_routing w7 = workload(PERF_SKEW_W7, step);

        cr_assert(fabs(share_of(&w2, 0) - 0.8125) < 0.02);
        cr_assert(fabs(share_of(&w6, (int)(step / 3 % 4)) - 0.8125) < 0.02);
        cr_assert(fabs(share_of(&w7, 0) - (step % 4 == 3 ? 0.625 : 0.25)) <
                  0.03);
        perf_routing_finish(&w2);
        perf_routing_finish(&w6);
        perf_routing_finish(&w7);
    }
}

/* With W4 the last tokens of the batch have no experts, and no rank receives
 * rows for them. */
Test(routing, tokens_without_experts_are_nobodys)
{
    struct perf_routing r = workload(PERF_SKEW_W4, 0);
    size_t none[4] = {0}, rows = 0, count;

    for (int s = 0; s < 4; s++) {
        for (size_t t = 0; t < r.tokens; t++) {
            const int32_t *e = perf_token_experts(&r, s, t);
            cr_assert_eq(e[0] < 0, e[1] < 0);
            cr_assert_eq(perf_expert_rank(&r, e[0]) < 0, e[0] < 0);
            none[s] += e[0] < 0;
        }
        rows += perf_routing_rows(&r, s);
        free(perf_routing_arrivals(&r, s, &count));
        cr_assert_eq(count, perf_routing_rows(&r, s));
    }
    /* The share of tokens without experts grows up to 3/4. In the middle of the
     * first and last quarters, it is 1/8 and 7/8 of that. */
    cr_assert(none[0] > 55 && none[0] < 135, "%zu", none[0]);
    cr_assert(none[3] > 590 && none[3] < 720, "%zu", none[3]);
    cr_assert_eq(rows, perf_routing_assigned(&r));
    perf_routing_finish(&r);
}

Test(routing, nonsense_is_refused)
{
    static const struct perf_routing_config bad[] = {
        {2, 4, 5, 1, PERF_SKEW_UNIFORM, 0, 2, 1, 0},
        {0, 4, 1, 1, PERF_SKEW_UNIFORM, 0, 1, 1, 0},
        {2, 4, 1, 1, PERF_SKEW_HOT, 1.5, 2, 1, 0},
        {2, 4, 1, 1, PERF_SKEW_ZIPF, -1, 2, 1, 0},
        {2, 4, 1, 1, PERF_SKEW_NODE_LIMITED, 3, 2, 1, 0},
        {2, 4, 3, 1, PERF_SKEW_NODE_LIMITED, 1, 2, 1, 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct perf_routing r;
        cr_assert_not_null(perf_routing_init(&r, &bad[i]), "%zu", i);
        cr_assert_null(r.index);
    }
}
