// SPDX-License-Identifier: Apache-2.0
/* Synthetic workloads must have the loads that workload.h describes. */
#include "train/workload/random.h"
#include "train/workload/workload.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 8192, E = 64, HOT = E / 4 };

/* Counts the rows of each expert, for `tokens` tokens from `first` on. A
 * token's choices must differ. */
static void count(enum workload_kind kind, size_t step, size_t K, size_t first,
                  size_t tokens, double rows[E])
{
    const struct workload w = {
        kind, random_bits(random_key(3, "workload"), step), step, TOKENS};
    int32_t choice[E];

    memset(rows, 0, E * sizeof(*rows));
    for (size_t t = first; t < first + tokens; t++) {
        workload_choose(&w, t, E, K, choice);
        for (size_t j = 0; j < K; j++) {
            cr_assert(choice[j] < E && (choice[j] < 0) == (choice[0] < 0));
            for (size_t i = 0; i < j && choice[j] >= 0; i++)
                cr_assert_neq(choice[i], choice[j], "W%d, token %zu",
                              (int)kind - 1, t);
            if (choice[j] >= 0)
                rows[choice[j]] += 1;
        }
    }
}

/* The part of all rows that the experts first, first + stride, ... have. */
static double part(const double rows[E], size_t first, size_t stride, size_t n)
{
    double some = 0, all = 0;

    for (size_t e = 0; e < E; e++)
        all += rows[e];
    for (size_t i = 0; i < n; i++)
        some += rows[first + i * stride];
    return some / all;
}

static void near(double got, double want)
{
    cr_assert(fabs(got - want) <=
                  4.5 * sqrt(want * (1 - want) / TOKENS) + 1e-12,
              "%g, not %g", got, want);
}

/* Loads of the whole batch, with one expert a token. */
Test(workload, loads)
{
    const double hot = 0.75 + 0.25 / 4;
    double rows[E];

    for (size_t step = 0; step < 3; step++) {
        count(WORKLOAD_W0, step, 1, 0, TOKENS, rows);
        for (size_t e = 0; e < E; e++)
            cr_assert_eq(rows[e], TOKENS / E);
    }
    for (int kind = WORKLOAD_W1; kind <= WORKLOAD_W2; kind++) {
        count((enum workload_kind)kind, 1, 1, 0, TOKENS, rows);
        near(part(rows, 0, 1, HOT), hot);
        for (size_t e = 0; e < HOT; e++)
            near(part(rows, e, 1, 1), hot / HOT);
    }
    count(WORKLOAD_W3, 1, 1, 0, TOKENS, rows);
    near(part(rows, 0, 2, E / 2), 0.75 + 0.25 / 2);
    near(part(rows, 2, 2, 1), (0.75 + 0.25 / 2) / (E / 2));
    count(WORKLOAD_W5, 1, 1, 0, TOKENS, rows);
    cr_assert_eq(part(rows, 0, 1, E / 2), 0);
    near(part(rows, E / 2, 1, 1), 2.0 / E);
}

/* The load of the hottest of 8 experts, with top-4 and top-2, as published for
 * this benchmark: 1.77 to 1.78 and 3.2 to 3.3 times the mean, for 512 and 128
 * tokens. With top-2 two experts are hot, so their load is 8 (3/4 / 2 + 1/4 /
 * 8) times the mean. */
Test(workload, heat)
{
    static const enum workload_kind hot[] = {WORKLOAD_W1, WORKLOAD_W2,
                                             WORKLOAD_W6};

    for (size_t i = 0; i < 3; i++)
        for (size_t K = 2; K <= 4; K += 2) {
            const struct workload w = {hot[i], 9 + i, 0, TOKENS};
            double rows[8] = {0}, most = 0;
            int32_t choice[4];

            for (size_t t = 0; t < TOKENS; t++) {
                workload_choose(&w, t, 8, K, choice);
                for (size_t j = 0; j < K; j++)
                    rows[choice[j]]++;
            }
            for (size_t e = 0; e < 8; e++)
                most = rows[e] > most ? rows[e] : most;
            cr_assert(fabs(most * 8 / (TOKENS * (double)K) -
                           (K == 2 ? 3.25 : 1.75)) < 0.04,
                      "%g", most);
        }
}

/* Each set of K experts must be equally probable. Of 4 experts there are 6
 * pairs. */
Test(workload, pairs_are_alike)
{
    const struct workload w = {WORKLOAD_W5, 17, 0, TOKENS};
    double pairs[16] = {0};
    int32_t choice[2];

    for (size_t t = 0; t < TOKENS; t++) {
        workload_choose(&w, t, 8, 2, choice);
        cr_assert(choice[0] >= 4 && choice[1] >= 4);
        pairs[(1 << (choice[0] - 4)) | (1 << (choice[1] - 4))]++;
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < a; b++)
            near(pairs[(1 << a) | (1 << b)] / TOKENS, 1.0 / 6);
}

/* With one choice a token, expert e must be chosen in proportion to 1 / (e +
 * 1). */
Test(workload, zipf_by_number)
{
    double rows[E], all = 0;

    for (size_t e = 0; e < E; e++)
        all += 1.0 / (double)(e + 1);
    count(WORKLOAD_ZIPF, 1, 1, 0, TOKENS, rows);
    for (size_t e = 0; e < E; e++)
        near(part(rows, e, 1, 1), 1 / (double)(e + 1) / all);
}

Test(workload, sources_are_uneven)
{
    double rows[E], first = 0, last = 0;

    count(WORKLOAD_W4, 1, 1, 0, TOKENS / 8, rows);
    for (size_t e = 0; e < E; e++)
        first += rows[e];
    count(WORKLOAD_W4, 1, 1, TOKENS - TOKENS / 8, TOKENS / 8, rows);
    for (size_t e = 0; e < E; e++)
        last += rows[e];
    /* The expected numbers are for the middle of the first and of the last
     * eighth. */
    cr_assert(fabs(first / (TOKENS / 8) - (1 - 0.75 / 16)) < 0.03);
    cr_assert(fabs(last / (TOKENS / 8) - (1 - 0.75 * 15 / 16)) < 0.07);
}

Test(workload, change_from_step_to_step)
{
    double rows[E];

    for (size_t step = 0; step < 20; step++) {
        count(WORKLOAD_W6, step, 1, 0, TOKENS, rows);
        near(part(rows, step / 3 % 4 * HOT, 1, HOT), 0.75 + 0.25 / 4);
        count(WORKLOAD_W7, step, 1, 0, TOKENS, rows);
        near(part(rows, 0, 1, HOT), step % 4 == 3 ? 0.5 + 0.5 / 4 : 0.25);
    }
}

/* The experts of a token must differ, even if a set has fewer than K. */
Test(workload, choices_differ)
{
    static const size_t topk[] = {2, 8, 40, E};
    double rows[E];

    for (int kind = WORKLOAD_W0; kind <= WORKLOAD_ZIPF; kind++)
        for (size_t i = 0; i < 4; i++)
            count((enum workload_kind)kind, 8, topk[i], 100, 50, rows);
}

/* The experts of a token must differ also if it chooses all experts. */
Test(workload, of_few_experts)
{
    for (int kind = WORKLOAD_W0; kind <= WORKLOAD_ZIPF; kind++)
        for (size_t few = 1; few < 20; few++)
            for (size_t t = 0; t < 40; t++) {
                const struct workload w = {(enum workload_kind)kind, 5, t, 40};
                int32_t choice[20];
                uint32_t seen = 0;
                workload_choose(&w, t, few, few, choice);
                for (size_t j = 0; j < few && choice[0] >= 0; j++) {
                    cr_assert(choice[j] >= 0 && choice[j] < (int32_t)few);
                    seen |= UINT32_C(1) << choice[j];
                }
                cr_assert(choice[0] < 0 || seen == (UINT32_C(1) << few) - 1);
            }
}
