// SPDX-License-Identifier: Apache-2.0
/* EPLB, compared with its published example and a plain reference; and its
 * slots as a placement. */
#include <criterion/criterion.h>
#include <stdbool.h>

#include <shunt/balance.h>

#include "tests/moe/balance/random.h"

TestSuite(eplb, .timeout = 60);

enum { MOST = 512 };

/* The example in the README of github.com/deepseek-ai/EPLB: two layers of 12
 * experts in 4 groups, 2 nodes, 8 ranks, 16 copies. */
Test(eplb, published_example)
{
    static const double loads[2][12] = {
        {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
        {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    static const int32_t want[2][16] = {
        {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
        {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
    int32_t expert[16];

    for (int layer = 0; layer < 2; layer++) {
        cr_assert_eq(shunt_balance_eplb(loads[layer], 12, 4, 2, 8, 2, expert),
                     SHUNT_OK);
        for (int i = 0; i < 16; i++)
            cr_expect_eq(expert[i], want[layer][i], "layer %d, slot %d: %d",
                         layer, i, (int)expert[i]);
    }
}

/* --- a plain reference, without shortcuts --------------------------------- */

/* Puts n items into bins of equal size. `order` gets them bin by bin. */
static void plain_pack(const double *load, int n, int bins, int *order)
{
    int room = n / bins, held[MOST] = {0};
    double sum[MOST] = {0};
    bool done[MOST] = {false};

    for (int i = 0; i < n; i++) {
        int heaviest = -1, lightest = -1;

        for (int j = 0; j < n; j++)
            if (!done[j] && (heaviest < 0 || load[j] > load[heaviest]))
                heaviest = j;
        for (int b = 0; b < bins; b++)
            if (held[b] < room && (lightest < 0 || sum[b] < sum[lightest]))
                lightest = b;
        if (room == 1) {
            heaviest = i;
            lightest = i;
        }
        done[heaviest] = true;
        order[lightest * room + held[lightest]++] = heaviest;
        sum[lightest] += load[heaviest];
    }
}

static void plain_eplb(const double *loads, int experts, int groups, int nodes,
                       int ranks, int slots, int32_t *expert)
{
    int size, here, copies, order[MOST];
    double group[MOST] = {0};

    if (groups % nodes)
        groups = nodes = 1;
    size = experts / groups;
    here = experts / nodes;
    copies = ranks / nodes * slots;
    for (int e = 0; e < experts; e++)
        group[e / size] += loads[e];
    plain_pack(group, groups, nodes, order);
    for (int node = 0; node < nodes; node++) {
        int own[MOST], of[MOST], times[MOST], slot[MOST];
        double load[MOST];

        for (int i = 0; i < here; i++) {
            own[i] =
                order[node * (groups / nodes) + i / size] * size + i % size;
            of[i] = i;
            times[i] = 1;
        }
        for (int c = here; c < copies; c++) {
            int most = 0;

            for (int i = 0; i < here; i++)
                if (loads[own[i]] / times[i] > loads[own[most]] / times[most])
                    most = i;
            of[c] = most;
            times[most]++;
        }
        for (int c = 0; c < copies; c++)
            load[c] = loads[own[of[c]]] / times[of[c]];
        plain_pack(load, copies, ranks / nodes, slot);
        for (int c = 0; c < copies; c++)
            expert[node * copies + c] = own[of[slot[c]]];
    }
}

Test(eplb, random_loads)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        uint64_t state = seed;
        int nodes = 1 + random_below(&state, 3);
        int ranks = nodes * (1 + random_below(&state, 4));
        int groups = 1 + random_below(&state, 4);
        int experts = groups * (1 + random_below(&state, 8)), slots;
        int32_t expert[MOST], want[MOST];
        double loads[MOST];

        if (random_below(&state, 2))
            experts *= nodes, groups *= nodes;
        slots = (experts + ranks - 1) / ranks + random_below(&state, 3);
        for (int e = 0; e < experts; e++)
            loads[e] = (double)random_rows(&state);
        cr_assert_eq(shunt_balance_eplb(loads, experts, groups, nodes, ranks,
                                        slots, expert),
                     SHUNT_OK);
        plain_eplb(loads, experts, groups, nodes, ranks, slots, want);
        for (int i = 0; i < ranks * slots; i++)
            cr_assert_eq(expert[i], want[i],
                         "seed %d: %d experts, %d groups, %d nodes, %d ranks "
                         "of %d slots: slot %d is %d, not %d",
                         (int)seed, experts, groups, nodes, ranks, slots, i,
                         (int)expert[i], (int)want[i]);
    }
}

/* --- slots as a placement ------------------------------------------------------- */

Test(eplb, slots_as_a_placement)
{
    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint64_t state = seed;
        int ranks = 1 + random_below(&state, 6);
        int experts = 1 + random_below(&state, 20);
        int slots = (experts + ranks - 1) / ranks + random_below(&state, 3);
        int n = ranks * slots;
        int32_t expert[64], before[20], home[20];
        bool on[20][6] = {{false}};
        struct shunt_moe_replica replicas[64];
        size_t count, at = 0;

        for (int i = 0; i < n; i++)
            expert[i] = i < experts ? i : random_below(&state, experts);
        for (int i = n - 1; i > 0; i--) {
            int j = random_below(&state, i + 1);
            int32_t swap = expert[i];

            expert[i] = expert[j];
            expert[j] = swap;
        }
        for (int i = 0; i < n; i++)
            on[expert[i]][i / slots] = true;
        for (int e = 0; e < experts; e++)
            home[e] = before[e] = random_below(&state, ranks);
        cr_assert_eq(shunt_balance_place(expert, experts, ranks, slots, home,
                                         home, replicas, &count),
                     SHUNT_OK);
        for (int e = 0; e < experts; e++) {
            int first = 0;

            while (!on[e][first])
                first++;
            cr_assert_eq(home[e], on[e][before[e]] ? before[e] : first,
                         "seed %d, expert %d", (int)seed, e);
            for (int r = 0; r < ranks; r++) {
                if (!on[e][r] || r == home[e])
                    continue;
                cr_assert_lt(at, count);
                cr_assert_eq(replicas[at].expert, e);
                cr_assert_eq(replicas[at].rank, r);
                at++;
            }
        }
        cr_assert_eq(at, count, "seed %d", (int)seed);
    }
}
