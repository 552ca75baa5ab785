// SPDX-License-Identifier: Apache-2.0
/* Routers with groups, compared with their definitions. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>

#include <shunt/balance.h>

#include "tests/moe/balance/random.h"

TestSuite(topk, .timeout = 60);

enum { EXPERTS = 32 };

static float value(float score)
{
    return isnan(score) ? -INFINITY : score;
}

/* The best score that is `open` and not `taken`, by comparing all. */
static int best(const float *scores, int n, const bool *open, bool *taken)
{
    int at = -1;

    for (int e = 0; e < n; e++)
        if (open[e] && !taken[e] &&
            (at < 0 || value(scores[e]) > value(scores[at])))
            at = e;
    if (at >= 0)
        taken[at] = true;
    return at;
}

/* Few different values, so that many are equal; sometimes a NaN or an
 * infinity. */
static float random_score(uint64_t *state)
{
    int n = random_below(state, 40);

    return n == 0 ? NAN : n == 1 ? -INFINITY : n == 2 ? INFINITY : (float)n / 8;
}

Test(topk, within_the_best_groups)
{
    /* Groups of four. The second group has the best expert, the first has the
     * best two. */
    static const float scores[12] = {5, 4, 0, 1, 6, 0, 2, 0, 3, 3, 3, 3};
    int32_t idx[3];

    cr_assert_eq(shunt_balance_topk_limited(scores, 1, 12, 3, 1, 1, 3, idx),
                 SHUNT_OK);
    cr_expect(idx[0] == 4 && idx[1] == 6 && idx[2] == 5);
    cr_assert_eq(shunt_balance_topk_limited(scores, 1, 12, 3, 1, 2, 3, idx),
                 SHUNT_OK);
    cr_expect(idx[0] == 0 && idx[1] == 1 && idx[2] == 3);
}

Test(topk, random_scores)
{
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint64_t state = seed;
        int groups = 1 << random_below(&state, 4);
        int experts = groups * (1 + random_below(&state, EXPERTS / groups));
        int size = experts / groups, chosen = 1 + random_below(&state, groups);
        int best_of = 1 + random_below(&state, size);
        int k = 1 + random_below(&state, chosen * size);
        int per_group = 1 + random_below(&state, size);
        float scores[2 * EXPERTS], sums[EXPERTS];
        int32_t idx[2 * EXPERTS];

        for (int i = 0; i < 2 * experts; i++)
            scores[i] = random_score(&state);
        cr_assert_eq(shunt_balance_topk_limited(scores, 2, experts, groups,
                                                chosen, best_of, k, idx),
                     SHUNT_OK);
        for (int t = 0; t < 2; t++) {
            const float *of = scores + t * experts;
            bool all[EXPERTS], open[EXPERTS] = {false},
                               taken[EXPERTS] = {false};
            bool groups_taken[EXPERTS] = {false};

            for (int g = 0; g < groups; g++) {
                bool in[EXPERTS] = {false}, used[EXPERTS] = {false};

                sums[g] = 0;
                all[g] = true;
                for (int e = g * size; e < (g + 1) * size; e++)
                    in[e] = true;
                for (int i = 0; i < best_of; i++)
                    sums[g] += value(of[best(of, experts, in, used)]);
            }
            for (int i = 0; i < chosen; i++) {
                int g = best(sums, groups, all, groups_taken);

                for (int e = g * size; e < (g + 1) * size; e++)
                    open[e] = true;
            }
            for (int i = 0; i < k; i++)
                cr_assert_eq(idx[t * k + i], best(of, experts, open, taken),
                             "seed %d: token %d, place %d", (int)seed, t, i);
        }
        cr_assert_eq(shunt_balance_topk_grouped(scores, 2, experts, groups,
                                                per_group * groups, idx),
                     SHUNT_OK);
        for (int t = 0; t < 2; t++)
            for (int g = 0; g < groups; g++) {
                bool in[EXPERTS] = {false}, used[EXPERTS] = {false};

                for (int e = g * size; e < (g + 1) * size; e++)
                    in[e] = true;
                for (int i = 0; i < per_group; i++)
                    cr_assert_eq(idx[(t * groups + g) * per_group + i],
                                 best(scores + t * experts, experts, in, used),
                                 "seed %d: token %d, group %d", (int)seed, t,
                                 g);
            }
    }
}
