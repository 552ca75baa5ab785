// SPDX-License-Identifier: Apache-2.0
/* Tests prediction, hot experts, migration, and bad arguments. The example that
 * is computed by hand has four ranks with two experts each. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <shunt/balance.h>
#include <shunt/comm.h>

#include "tests/moe/balance/random.h"

TestSuite(balance, .timeout = 60);

enum { RANKS = 4, EXPERTS = 8, MANY = 40 };

static const double loads[EXPERTS] = {900, 100, 80, 60, 500, 40, 30, 290};

/* --- loads ------------------------------------------------------------------- */

Test(balance, moving_average)
{
    double predicted[2] = {NAN, INFINITY};
    const double first[2] = {100, 0}, second[2] = {0, 50};

    cr_assert_eq(shunt_balance_predict(predicted, first, 2, 0), SHUNT_OK);
    cr_assert_eq(predicted[0], 100);
    cr_assert_eq(predicted[1], 0);
    cr_assert_eq(shunt_balance_predict(predicted, second, 2, 0.9), SHUNT_OK);
    cr_assert_float_eq(predicted[0], 90, 1e-12);
    cr_assert_float_eq(predicted[1], 5, 1e-12);
}

Test(balance, imbalance_and_variation)
{
    const double ranks[RANKS] = {1000, 140, 540, 320}, none[2] = {0, 0};

    cr_expect_eq(shunt_balance_imbalance(ranks, RANKS), 2);
    cr_expect_float_eq(shunt_balance_variation(ranks, RANKS), 0.643, 0.0005);
    cr_expect_eq(shunt_balance_imbalance(none, 2), 1);
    cr_expect_eq(shunt_balance_variation(none, 2), 0);
    cr_expect_eq(shunt_balance_imbalance(NULL, 0), 1);
    cr_expect_eq(shunt_balance_variation(NULL, 0), 0);
}

/* --- hot experts ---------------------------------------------------------------- */

/* The load of the worst rank if each expert of `hot` has copies on all ranks,
 * by the definition. */
static double worst(const double *b, int ranks, int experts,
                    const int32_t *placement, const int32_t *hot, int nhot)
{
    double most = 0;

    for (int r = 0; r < ranks; r++) {
        double load = 0;

        for (int e = 0; e < experts; e++) {
            int home = placement ? placement[e] : e * ranks / experts;
            bool is_hot = false;

            for (int i = 0; i < nhot; i++)
                is_hot |= hot[i] == e;
            for (int s = 0; s < ranks; s++)
                if (is_hot ? s == r : home == r)
                    load += b[s * experts + e];
        }
        most = load > most ? load : most;
    }
    return most;
}

/* A price such that a copy costs as much as `rows` rows. */
static struct shunt_balance_price price_in_rows(double rows)
{
    return (struct shunt_balance_price){.row_s = 1e-6,
                                        .bytes_per_s = 10e9,
                                        .expert_bytes = rows * 1e-6 * 10e9 / 2};
}

Test(balance, hot_experts_worked_out)
{
    double b[RANKS][EXPERTS];
    struct shunt_balance_price price = price_in_rows(26);
    static const double most[] = {1000, 765, 670, 562.5};
    int32_t hot[EXPERTS];
    int n = -1;

    for (int r = 0; r < RANKS; r++)
        for (int e = 0; e < EXPERTS; e++)
            b[r][e] = loads[e] / RANKS;
    cr_assert_eq(shunt_balance_hot(*b, RANKS, EXPERTS, NULL, &price, hot, &n),
                 SHUNT_OK);
    cr_assert_eq(n, 3);
    cr_expect_eq(hot[0], 0);
    cr_expect_eq(hot[1], 4);
    cr_expect_eq(hot[2], 7);
    for (int i = 0; i <= n; i++)
        cr_expect_eq(worst(*b, RANKS, EXPERTS, NULL, hot, i), most[i]);
    /* The fourth copy gains 20 rows, and now costs 19.9. */
    price = price_in_rows(19.9);
    cr_assert_eq(shunt_balance_hot(*b, RANKS, EXPERTS, NULL, &price, hot, &n),
                 SHUNT_OK);
    cr_expect_geq(n, 4);
    cr_expect_eq(hot[3], 2);
    cr_expect_eq(worst(*b, RANKS, EXPERTS, NULL, hot, 4), 542.5);
}

/* This copy gains no computing time. It saves more time on the link than it
 * costs. */
Test(balance, hot_experts_save_the_link)
{
    const double b[2][2] = {{0, 100}, {100, 0}};
    struct shunt_balance_price price = {
        .row_s = 0, .bytes_per_s = 1e9, .expert_bytes = 1000, .row_bytes = 19};
    int32_t hot[2];
    int n = -1;

    cr_assert_eq(shunt_balance_hot(*b, 2, 2, NULL, &price, hot, &n), SHUNT_OK);
    cr_expect_eq(n, 0, "1900 bytes saved, 2000 spent");
    price.row_bytes = 21;
    cr_assert_eq(shunt_balance_hot(*b, 2, 2, NULL, &price, hot, &n), SHUNT_OK);
    cr_expect_eq(n, 2);
}

/* Each copy that is chosen must be the greedy choice. The first one that is not
 * chosen must not pay. */
Test(balance, hot_experts_by_definition)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t state = seed;
        int ranks = 1 + random_below(&state, 6);
        int experts = 1 + random_below(&state, 12);
        struct shunt_balance_price price =
            price_in_rows(random_below(&state, 200));
        double b[6 * 12], cost = 2 * price.expert_bytes / price.bytes_per_s;
        int32_t placement[12], hot[13];
        int n = -1;

        /* Small loads, too, so that one row more makes a difference. */
        for (int i = 0; i < ranks * experts; i++)
            b[i] = (double)(seed % 2 ? random_rows(&state)
                                     : random_below(&state, 4));
        for (int e = 0; e < experts; e++)
            placement[e] = random_below(&state, ranks);
        cr_assert_eq(
            shunt_balance_hot(b, ranks, experts, placement, &price, hot, &n),
            SHUNT_OK);
        for (int i = 0; i <= n && i < experts; i++) {
            double now = worst(b, ranks, experts, placement, hot, i);
            int at = -1, next = -1;
            double load[6] = {0}, total[12] = {0}, gain;

            for (int e = 0; e < experts; e++) {
                bool is_hot = false;

                for (int j = 0; j < i; j++)
                    is_hot |= hot[j] == e;
                for (int s = 0; s < ranks; s++) {
                    total[e] += is_hot ? 0 : b[s * experts + e];
                    load[is_hot ? s : placement[e]] += b[s * experts + e];
                }
            }
            for (int r = ranks - 1; r >= 0; r--)
                if (load[r] == now)
                    at = r;
            for (int e = experts - 1; e >= 0; e--)
                if (placement[e] == at && total[e] > 0 &&
                    (next < 0 || total[e] >= total[next]))
                    next = e;
            if (i < n)
                cr_assert_eq(hot[i], next, "seed %d, choice %d: %d, not %d",
                             (int)seed, i, (int)hot[i], next);
            if (next < 0) {
                cr_assert_eq(i, n);
                continue;
            }
            hot[i] = next;
            gain = now - worst(b, ranks, experts, placement, hot, i + 1);
            cr_assert((price.row_s * gain > cost) == (i < n),
                      "seed %d: expert %d gains %g rows", (int)seed, next,
                      gain);
        }
    }
}

/* --- migration --------------------------------------------------------------------- */

Test(balance, migration_worked_out)
{
    struct shunt_balance_migration result;
    double load[RANKS] = {0};
    int32_t moved[EXPERTS];

    cr_assert_eq(shunt_balance_migrate(loads, RANKS, EXPERTS, NULL, 0.08, moved,
                                       &result),
                 SHUNT_OK);
    for (int e = 0; e < EXPERTS; e++)
        load[moved[e]] += loads[e];
    cr_expect_eq(load[0], 930);
    cr_expect_eq(load[1], 540);
    cr_expect_eq(load[2], 350);
    cr_expect_eq(load[3], 180);
    cr_expect_float_eq(result.before, 0.643, 0.0005);
    cr_expect_float_eq(result.after, 0.558, 0.0005);
    cr_expect_eq(result.pays, 1);

    /* The gain is 0.085, and the least gain is set to 0.086. */
    cr_assert_eq(shunt_balance_migrate(loads, RANKS, EXPERTS, NULL, 0.086,
                                       moved, &result),
                 SHUNT_OK);
    cr_expect_eq(result.pays, 0);
    cr_expect_eq(result.moves, 0);
    for (int e = 0; e < EXPERTS; e++)
        cr_expect_eq(moved[e], e / 2);
}

/* By the definition, experts are placed in descending order of load. Each goes
 * to the first of the least loaded ranks that have a free slot. */
Test(balance, migration_by_definition)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        uint64_t state = seed;
        int ranks = 1 + random_below(&state, 9);
        int experts = 1 + random_below(&state, MANY);
        int32_t placement[MANY], moved[MANY], want[MANY];
        double load[MANY], sum[9] = {0};
        bool placed[MANY] = {false};
        int room[9] = {0}, moves = 0;
        struct shunt_balance_migration result;

        for (int e = 0; e < experts; e++) {
            load[e] = (double)random_rows(&state);
            placement[e] = random_below(&state, ranks);
            room[placement[e]]++;
        }
        for (int i = 0; i < experts; i++) {
            int longest = -1, least = -1;

            for (int e = 0; e < experts; e++)
                if (!placed[e] && (longest < 0 || load[e] > load[longest]))
                    longest = e;
            for (int r = 0; r < ranks; r++)
                if (room[r] && (least < 0 || sum[r] < sum[least]))
                    least = r;
            placed[longest] = true;
            want[longest] = least;
            sum[least] += load[longest];
            room[least]--;
            moves += least != placement[longest];
        }
        cr_assert_eq(shunt_balance_migrate(load, ranks, experts, placement,
                                           -INFINITY, moved, &result),
                     SHUNT_OK);
        cr_assert_eq(result.moves, moves);
        cr_assert_arr_eq(moved, want, (size_t)experts * sizeof(*want),
                         "seed %d", (int)seed);
    }
}

/* --- calls that are refused ----------------------------------------------- */

#define REFUSED(call, text)                                                 \
    do {                                                                    \
        cr_expect_eq(call, SHUNT_ERR_INVALID);                              \
        cr_expect(strstr(shunt_last_error(NULL), text), "'%s' has no '%s'", \
                  shunt_last_error(NULL), text);                            \
    } while (0)

Test(balance, refusals)
{
    const struct shunt_balance_price price = {.bytes_per_s = 1},
                                     free_link = {.row_s = 1};
    struct shunt_balance_migration result;
    struct shunt_moe_replica replicas[8];
    const int32_t far[2] = {0, 2}, twice[4] = {1, 1, 1, 1};
    const int64_t rows[4] = {1, 2, -1, 3}, many[4] = {INT64_MAX, 1, 0, 0},
                  few[4] = {1, 2, 3, 4};
    const struct shunt_balance_goal tight = {.within = 0.5};
    double bad[4] = {1, 2, NAN, 3}, good[4] = {1, 2, 3, 4};
    const float scores[4] = {0};
    int64_t share[8];
    int32_t out[8];
    size_t count;
    int n;

    REFUSED(shunt_balance_predict(bad, good, 4, 0.5), "loads[2]");
    REFUSED(shunt_balance_predict(good, bad, 4, 0.5), "loads[2]");
    bad[2] = -1;
    REFUSED(shunt_balance_predict(good, bad, 4, 0.5), "loads[2]");
    bad[2] = INFINITY;
    REFUSED(shunt_balance_predict(good, bad, 4, 0.5), "loads[2]");
    REFUSED(shunt_balance_predict(good, good, 4, 1.5), "theta is 1.5");
    REFUSED(shunt_balance_hot(bad, 2, 2, NULL, &price, out, &n), "loads[2]");
    REFUSED(shunt_balance_hot(good, 2, 2, far, &price, out, &n),
            "placement[1] is 2");
    REFUSED(shunt_balance_hot(good, 2, 2, NULL, &free_link, out, &n),
            "a link of 0 bytes/s");
    REFUSED(shunt_balance_hot(good, 0, 2, NULL, &price, out, &n), "0 ranks");
    REFUSED(shunt_balance_migrate(bad, 2, 4, NULL, 0, out, &result),
            "loads[2]");
    REFUSED(shunt_balance_migrate(good, 2, 4, NULL, NAN, out, &result), "NaN");
    REFUSED(shunt_balance_eplb(good, 4, 3, 1, 2, 2, out), "3 groups");
    REFUSED(shunt_balance_eplb(good, 4, 1, 2, 3, 2, out), "2 nodes");
    REFUSED(shunt_balance_eplb(good, 4, 1, 1, 3, 1, out), "no room");
    REFUSED(shunt_balance_eplb(bad, 4, 1, 1, 2, 2, out), "loads[2]");
    REFUSED(shunt_balance_place(far, 2, 2, 1, NULL, out, replicas, &count),
            "expert[1] is 2");
    REFUSED(shunt_balance_place(twice, 2, 2, 2, NULL, out, replicas, &count),
            "expert 0 is in no slot");
    REFUSED(shunt_balance_batch(rows, 2, 2, NULL, NULL, 1, 8, replicas, share,
                                &count, NULL),
            "rows[2] is -1");
    REFUSED(shunt_balance_batch(many, 2, 2, NULL, NULL, 1, 8, replicas, share,
                                &count, NULL),
            "rows[1] is 1");
    REFUSED(shunt_balance_batch(rows, 2, 2, NULL, NULL, -1, 8, replicas, share,
                                &count, NULL),
            "-1 slots");
    REFUSED(shunt_balance_batch(many, 2, 2, NULL, NULL, 1, 0, replicas, share,
                                &count, NULL),
            "leaf_rows is 0");
    REFUSED(shunt_balance_batch_goal(few, 2, 2, NULL, NULL, 1, 8, &tight,
                                     replicas, share, &count, NULL),
            "within 0.5");
    REFUSED(shunt_balance_topk_limited(scores, 1, 4, 3, 1, 1, 1, out),
            "3 groups");
    REFUSED(shunt_balance_topk_limited(scores, 1, 4, 2, 1, 1, 3, out),
            "3 of their experts");
    REFUSED(shunt_balance_topk_limited(scores, 1, 4, 2, 1, 1, 5, out),
            "k is 5");
    REFUSED(shunt_balance_topk_grouped(scores, 1, 4, 2, 3, out), "k is 3");
}
