// SPDX-License-Identifier: Apache-2.0
/* Copies for one batch: what any answer must keep to, how even loads become, and
 * that the nearest copies are taken. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#include <shunt/balance.h>

#include "tests/balance/random.h"

TestSuite(batch, .timeout = 60);

enum { RANKS = 12, EXPERTS = 40, SLOTS = 4 };

struct answer {
    struct shunt_moe_replica replicas[RANKS * SLOTS];
    int64_t share[RANKS * SLOTS][RANKS];
    int64_t result[RANKS];
    size_t n;
};

/* Two ranks a node. All rows are rank 1's first expert's, from all ranks. */
Test(batch, worked_out)
{
    static const int64_t rows[4][4] = {
        {0, 10, 0, 0}, {0, 30, 0, 0}, {0, 50, 0, 0}, {0, 10, 0, 0}};
    static const int node[4] = {0, 0, 1, 1};
    /* 100 rows, 25 a rank: rank 0 is nearest, then 2, then 3. Each copy takes
     * its own rank's rows first: 10 of 25, 25 of rank 1's 30, 25 of 50, 10 of 25.
     * On node 0 rank 0's copy takes the 5 rows left of rank 1, on node 1 rank 3's
     * 15 of the 25 of rank 2; what is left of those goes to rank 0. */
    static const int64_t want[3][4] = {
        {10, 5, 10, 0}, {0, 0, 25, 0}, {0, 0, 15, 10}};
    static const int32_t rank[3] = {0, 2, 3};
    struct shunt_moe_replica replicas[4];
    int64_t share[4][4], result[4];
    size_t n;

    cr_assert_eq(shunt_balance_batch(*rows, 4, 4, NULL, node, 1, replicas,
                                     *share, &n, result),
                 SHUNT_OK);
    cr_assert_eq(n, 3);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(replicas[i].expert, 1);
        cr_expect_eq(replicas[i].rank, rank[i]);
        for (int s = 0; s < 4; s++)
            cr_expect_eq(share[i][s], want[i][s], "copy %d takes %d of rank %d",
                         i, (int)share[i][s], s);
    }
    for (int r = 0; r < 4; r++)
        cr_expect_eq(result[r], 25);
}

/* Rows that go neither to a copy on their own rank nor to one on their node,
 * though a copy there took rows of others: never right. */
static void check_nearness(const struct answer *a, const int64_t *rows,
                           int ranks, int experts, const int32_t *home,
                           const int *node, uint64_t seed)
{
    for (int e = 0; e < experts; e++) {
        /* (copy, source) rows; copy by rank */
        int64_t to[RANKS][RANKS] = {{0}};
        bool has[RANKS] = {false};

        has[home[e]] = true;
        for (int s = 0; s < ranks; s++)
            to[home[e]][s] = rows[s * experts + e];
        for (size_t i = 0; i < a->n; i++) {
            if (a->replicas[i].expert != e)
                continue;
            has[a->replicas[i].rank] = true;
            for (int s = 0; s < ranks; s++) {
                to[a->replicas[i].rank][s] = a->share[i][s];
                to[home[e]][s] -= a->share[i][s];
            }
        }
        for (int c = 0; c < ranks; c++)
            for (int s = 0; s < ranks; s++)
                for (int d = 0; d < ranks; d++)
                    for (int t = 0; t < ranks; t++) {
                        /* s's rows at d, while t's rows are at c. */
                        if (!has[c] || c == d || !to[d][s] || !to[c][t])
                            continue;
                        if (c == s && t != s)
                            cr_assert_fail("seed %d: expert %d: rank %d's rows "
                                           "go to %d, and those of %d to it",
                                           (int)seed, e, s, d, t);
                        if (node[c] == node[s] && node[d] != node[s] &&
                            node[t] != node[c])
                            cr_assert_fail("seed %d: expert %d: rows of rank "
                                           "%d leave its node for %d, and "
                                           "those of %d come to %d",
                                           (int)seed, e, s, d, t, c);
                    }
    }
}

Test(batch, random_rows)
{
    static struct answer a;

    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint64_t state = seed;
        int ranks = 1 + random_below(&state, RANKS);
        int experts = 1 + random_below(&state, EXPERTS);
        int slots = random_below(&state, SLOTS + 1);
        int64_t rows[RANKS * EXPERTS], load[RANKS] = {0}, all = 0, most = 0,
                                       before = 0, was[RANKS] = {0}, target;
        int32_t home[EXPERTS];
        int node[RANKS], used[RANKS] = {0};

        for (int r = 0; r < ranks; r++)
            node[r] = r ? node[r - 1] + !random_below(&state, 3) : 0;
        for (int e = 0; e < experts; e++)
            home[e] = random_below(&state, ranks);
        for (int i = 0; i < ranks * experts; i++) {
            rows[i] = random_rows(&state);
            load[home[i % experts]] += rows[i];
            all += rows[i];
        }
        memcpy(was, load, sizeof(was));
        target = (all + ranks - 1) / ranks;
        memset(&a, 0xff, sizeof(a));
        /* share is (…, ranks): read it as such. */
        cr_assert_eq(shunt_balance_batch(rows, ranks, experts, home, node,
                                         slots, a.replicas, *a.share, &a.n,
                                         a.result),
                     SHUNT_OK);
        cr_assert_leq(a.n, (size_t)(ranks * slots));
        for (size_t i = a.n; i-- > 0;)
            memmove(a.share[i], *a.share + i * (size_t)ranks,
                    (size_t)ranks * sizeof(int64_t));
        for (size_t i = 0; i < a.n; i++) {
            int e = a.replicas[i].expert, r = a.replicas[i].rank;

            cr_assert(e >= 0 && e < experts && r >= 0 && r < ranks);
            cr_assert_neq(home[e], r);
            cr_assert(
                !i || a.replicas[i - 1].expert < e ||
                (a.replicas[i - 1].expert == e && a.replicas[i - 1].rank < r));
            used[r]++;
            for (int s = 0; s < ranks; s++) {
                cr_assert_geq(a.share[i][s], 0);
                load[r] += a.share[i][s];
                load[home[e]] -= a.share[i][s];
            }
        }
        for (int e = 0; e < experts; e++)
            for (int s = 0; s < ranks; s++) {
                int64_t sum = 0;

                for (size_t i = 0; i < a.n; i++)
                    if (a.replicas[i].expert == e)
                        sum += a.share[i][s];
                cr_assert_leq(sum, rows[s * experts + e], "seed %d", (int)seed);
            }
        for (int r = 0; r < ranks; r++) {
            cr_assert_leq(used[r], slots);
            cr_assert_eq(a.result[r], load[r], "seed %d: rank %d", (int)seed,
                         r);
            /* Nobody gets more than its share because of others. */
            cr_assert_leq(load[r], was[r] > target ? was[r] : target);
            most = load[r] > most ? load[r] : most;
            before = was[r] > before ? was[r] : before;
        }
        cr_assert_leq(most, before);
        /* With a slot for each expert of others nothing stands in the way. */
        if (slots >= experts)
            cr_assert_leq(most, target, "seed %d", (int)seed);
        check_nearness(&a, rows, ranks, experts, home, node, seed);
    }
}

/* A router whose expert e gets 1 / (e + 1) of the rows, 64 experts on 8 ranks:
 * two slots make them even, as one would for a copy of each. */
Test(batch, zipf_is_even_with_two_slots)
{
    enum { N = 8, E = 64 };
    static int64_t rows[N][E], share[N * 2][N];
    struct shunt_moe_replica replicas[N * 2];
    int64_t result[N], all = 0, most = 0;
    size_t n;

    for (int s = 0; s < N; s++)
        for (int e = 0; e < E; e++)
            all += rows[s][e] = 10000 / (e + 1);
    cr_assert_eq(shunt_balance_batch(*rows, N, E, NULL, NULL, 2, replicas,
                                     *share, &n, result),
                 SHUNT_OK);
    for (int r = 0; r < N; r++)
        most = result[r] > most ? result[r] : most;
    cr_expect_leq((double)most * N / (double)all, 1.02);
}
