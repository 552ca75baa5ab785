// SPDX-License-Identifier: Apache-2.0
/* Copies for one batch: conditions that every answer must meet, and how evenly
 * the loads are distributed. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#include <shunt/balance.h>

#include "tests/moe/balance/random.h"

TestSuite(batch, .timeout = 60);

enum { RANKS = 12, EXPERTS = 40, SLOTS = 4 };

struct answer {
    struct shunt_moe_replica replicas[RANKS * SLOTS];
    int64_t share[EXPERTS + RANKS * SLOTS];
    int64_t result[RANKS];
    size_t n;
};

/* Each node has two ranks. All ranks send their rows to rank 1's first
 * expert. */
static void check_worked(size_t leaf, const int64_t want[4],
                         const int64_t share_of_home)
{
    static const int64_t rows[4][4] = {
        {0, 10, 0, 0}, {0, 30, 0, 0}, {0, 50, 0, 0}, {0, 10, 0, 0}};
    static const int node[4] = {0, 0, 1, 1};
    static const int32_t rank[3] = {0, 2, 3};
    struct shunt_moe_replica replicas[4];
    int64_t share[8], result[4];
    size_t n;

    cr_assert_eq(shunt_balance_batch(*rows, 4, 4, NULL, node, 1, leaf, replicas,
                                     share, &n, result),
                 SHUNT_OK);
    cr_assert_eq(n, 3);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(replicas[i].expert, 1);
        cr_expect_eq(replicas[i].rank, rank[i]);
        cr_expect_eq(share[4 + i], want[rank[i]], "copy %d takes %d", i,
                     (int)share[4 + i]);
    }
    for (int e = 0; e < 4; e++)
        cr_expect_eq(share[e], e == 1 ? share_of_home : 0);
    for (int r = 0; r < 4; r++)
        cr_expect_eq(result[r], want[r]);
}

Test(batch, worked_out)
{
    /* 100 rows, so 25 for each rank. */
    check_worked(1, (const int64_t[]){25, 25, 25, 25}, 25);
    /* 100 rows are 15 leaves, of which the last has 2 rows. 25 rows are rounded
     * to 4 leaves, or 28 rows. Rank 0, which is nearest to the home, gets 28
     * rows, and so does rank 2. Rank 3 gets the last 3 leaves, which are 16
     * rows. The home keeps 28. */
    check_worked(7, (const int64_t[]){28, 28, 28, 16}, 28);
}

/* Checks the shares of a batch by their definition: all rows are covered, and
 * cuts are between leaves. Stores the rows of each rank in load (ranks). */
static void check_shares(const struct answer *a, const int64_t *all,
                         const int32_t *home, int ranks, int experts,
                         int64_t leaf, int64_t *load)
{
    memset(load, 0, (size_t)ranks * sizeof(*load));
    for (int e = 0; e < experts; e++) {
        int64_t of[RANKS] = {0}, up_to = 0;

        of[home[e]] = a->share[e];
        for (size_t i = 0; i < a->n; i++)
            if (a->replicas[i].expert == e)
                of[a->replicas[i].rank] += a->share[experts + (int)i];
        for (int r = 0; r < ranks; r++) {
            cr_assert_geq(of[r], 0);
            load[r] += of[r];
            up_to += of[r];
            cr_assert(up_to % leaf == 0 || up_to == all[e],
                      "expert %d is cut at %d", e, (int)up_to);
        }
        cr_assert_eq(up_to, all[e]);
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
        const int64_t leaf = seed % 2 ? 1 : 1 + random_below(&state, 100);
        int64_t rows[RANKS * EXPERTS], load[RANKS], of[EXPERTS] = {0}, all = 0;
        int64_t most = 0, before = 0, was[RANKS] = {0}, target;
        int32_t home[EXPERTS];
        int node[RANKS], used[RANKS] = {0};

        for (int r = 0; r < ranks; r++)
            node[r] = r ? node[r - 1] + !random_below(&state, 3) : 0;
        for (int e = 0; e < experts; e++)
            home[e] = random_below(&state, ranks);
        for (int i = 0; i < ranks * experts; i++) {
            rows[i] = random_rows(&state);
            was[home[i % experts]] += rows[i];
            of[i % experts] += rows[i];
            all += rows[i];
        }
        target = (all + ranks - 1) / ranks;
        memset(&a, 0xff, sizeof(a));
        cr_assert_eq(shunt_balance_batch(rows, ranks, experts, home, node,
                                         slots, (size_t)leaf, a.replicas,
                                         a.share, &a.n, a.result),
                     SHUNT_OK);
        cr_assert_leq(a.n, (size_t)(ranks * slots));
        for (size_t i = 0; i < a.n; i++) {
            int e = a.replicas[i].expert, r = a.replicas[i].rank;

            cr_assert(e >= 0 && e < experts && r >= 0 && r < ranks);
            cr_assert_neq(home[e], r);
            cr_assert(
                !i || a.replicas[i - 1].expert < e ||
                (a.replicas[i - 1].expert == e && a.replicas[i - 1].rank < r));
            cr_assert_gt(a.share[experts + (int)i], 0);
            used[r]++;
        }
        check_shares(&a, of, home, ranks, experts, leaf, load);
        for (int r = 0; r < ranks; r++) {
            cr_assert_leq(used[r], slots);
            cr_assert_eq(a.result[r], load[r], "seed %d: rank %d", (int)seed,
                         r);
            most = load[r] > most ? load[r] : most;
            before = was[r] > before ? was[r] : before;
            /* With leaves of single rows, the rows of other ranks' experts must
             * not raise a rank's load above the target. */
            if (leaf == 1)
                cr_assert_leq(load[r], was[r] > target ? was[r] : target);
        }
        cr_assert_leq(most, before);
        /* If there is a slot for each expert of other ranks, nothing prevents
         * even loads. */
        if (slots >= experts)
            cr_assert_lt(most, target + leaf, "seed %d", (int)seed);
    }
}

/* --- goals ------------------------------------------------------------------- */

static size_t copies_for(const int64_t *rows, double within, double row_s,
                         double copy_s, int64_t result[2])
{
    const struct shunt_balance_goal goal = {within, row_s, copy_s};
    struct shunt_moe_replica replicas[16];
    int64_t share[8 + 16];
    size_t n;

    cr_assert_eq(shunt_balance_batch_goal(rows, 2, 8, NULL, NULL, 8, 1, &goal,
                                          replicas, share, &n, result),
                 SHUNT_OK);
    return n;
}

/* Rank 0 has four experts with rows, 100 in all; rank 1 has none. */
Test(batch, goal_worked_out)
{
    static const int64_t rows[2][8] = {{20, 25, 25, 24}, {6}};
    int64_t result[2];

    /* For even loads rank 0 must give away 50 rows, which takes copies of two
     * experts. To have at most 75 rows, it must give away at least 25, which
     * takes one copy. */
    cr_expect_eq(copies_for(*rows, 1, 0, 0, result), 2);
    cr_expect_eq(result[0], 50);
    cr_expect_eq(copies_for(*rows, 1.5, 0, 0, result), 1);
    cr_expect_eq(result[0], 74);
    cr_expect_eq(copies_for(*rows, 2, 0, 0, result), 0);
    cr_expect_eq(result[0], 100);
    /* Two copies save 50 rows, one copy saves 26: the cheapest of these must be
     * chosen, or none. */
    cr_expect_eq(copies_for(*rows, 1, 1, 20, result), 2);
    cr_expect_eq(copies_for(*rows, 1, 1, 25.5, result), 1);
    cr_expect_eq(result[0], 74);
    cr_expect_eq(copies_for(*rows, 1, 1, 30, result), 0);
    cr_expect_eq(result[0], 100);
}

static int64_t most_of(const int64_t *load, int ranks)
{
    int64_t most = 0;

    for (int r = 0; r < ranks; r++)
        most = load[r] > most ? load[r] : most;
    return most;
}

/* A goal must need no more copies than even loads do, if even loads meet it. */
Test(batch, goal_of_random_rows)
{
    static struct answer a, even;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t state = seed;
        const int ranks = 1 + random_below(&state, RANKS);
        const int experts = 1 + random_below(&state, EXPERTS);
        const int slots = random_below(&state, SLOTS + 1);
        const size_t leaf =
            seed % 2 ? 1 : (size_t)random_below(&state, 100) + 1;
        const struct shunt_balance_goal goal = {1.05, 0, 0};
        int64_t rows[RANKS * EXPERTS], load[RANKS], of[EXPERTS] = {0}, all = 0;
        int32_t home[EXPERTS];
        int used[RANKS] = {0};
        double bound;

        for (int e = 0; e < experts; e++)
            home[e] = random_below(&state, ranks);
        for (int i = 0; i < ranks * experts; i++) {
            rows[i] = random_rows(&state);
            of[i % experts] += rows[i];
            all += rows[i];
        }
        bound = 1.05 * (double)((all + ranks - 1) / ranks);
        cr_assert_eq(shunt_balance_batch(rows, ranks, experts, home, NULL,
                                         slots, leaf, even.replicas, even.share,
                                         &even.n, even.result),
                     SHUNT_OK);
        cr_assert_eq(shunt_balance_batch_goal(rows, ranks, experts, home, NULL,
                                              slots, leaf, &goal, a.replicas,
                                              a.share, &a.n, a.result),
                     SHUNT_OK);
        for (size_t i = 0; i < a.n; i++)
            used[a.replicas[i].rank]++;
        check_shares(&a, of, home, ranks, experts, (int64_t)leaf, load);
        for (int r = 0; r < ranks; r++) {
            cr_assert_leq(used[r], slots);
            cr_assert_eq(a.result[r], load[r]);
        }
        if ((double)most_of(even.result, ranks) <= bound) {
            cr_assert_leq((double)most_of(load, ranks), bound, "seed %d",
                          (int)seed);
            cr_assert_leq(a.n, even.n, "seed %d", (int)seed);
        } else if ((double)most_of(load, ranks) > bound) {
            cr_assert_leq(most_of(load, ranks), most_of(even.result, ranks));
        }
        /* Without a goal, the result must be the same as that of
         * shunt_balance_batch(). */
        cr_assert_eq(shunt_balance_batch_goal(rows, ranks, experts, home, NULL,
                                              slots, leaf, NULL, a.replicas,
                                              a.share, &a.n, a.result),
                     SHUNT_OK);
        cr_assert(a.n == even.n &&
                  !memcmp(a.share, even.share,
                          ((size_t)experts + a.n) * sizeof(*a.share)));
    }
}

/* Expert e gets 1 / (e + 1) of the rows, with 64 experts on 8 ranks. Two slots
 * must make loads even, as a copy of each expert would. */
Test(batch, zipf_is_even_with_two_slots)
{
    enum { N = 8, E = 64 };
    static int64_t rows[N][E], share[E + N * 2];
    struct shunt_moe_replica replicas[N * 2];

    for (int s = 0; s < N; s++)
        for (int e = 0; e < E; e++)
            rows[s][e] = 10000 / (e + 1);
    for (size_t leaf = 1; leaf <= 64; leaf *= 64) {
        int64_t result[N], all = 0, most = 0;
        size_t n;

        cr_assert_eq(shunt_balance_batch(*rows, N, E, NULL, NULL, 2, leaf,
                                         replicas, share, &n, result),
                     SHUNT_OK);
        for (int r = 0; r < N; r++) {
            most = result[r] > most ? result[r] : most;
            all += result[r];
        }
        cr_expect_leq((double)most * N / (double)all, 1.02);
    }
}
