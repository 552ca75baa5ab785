// SPDX-License-Identifier: Apache-2.0
/*
 * Experts must get copies only if the fullest rank has more than `above` times
 * the mean, and if the copies pay.
 */
#include "train/balance/places.h"
#include "train/base/error.h"

#include <criterion/criterion.h>
#include <string.h>

enum { RANKS = 4, EACH = 2, EXPERTS = RANKS * EACH };

static struct places now, next;

static void set_up(void)
{
    cr_assert_eq(places_create(RANKS, EXPERTS, 4, &now), 0);
    cr_assert_eq(places_create(RANKS, EXPERTS, 4, &next), 0);
}

static void tear_down(void)
{
    places_destroy(&now);
    places_destroy(&next);
}

TestSuite(places, .init = set_up, .fini = tear_down);

/* Each rank sends 100 rows to each expert, but `hot` rows to the first one. So
 * rank 0 gets 400 + 4 hot rows, and each other rank 800. */
static void fill(int64_t *rows, int64_t hot)
{
    for (int r = 0; r < RANKS; r++)
        for (int e = 0; e < EXPERTS; e++)
            rows[r * EXPERTS + e] = e ? 100 : hot;
}

static size_t copies(double above, int64_t hot)
{
    const struct balance_config c = {.how = BALANCE_REPLICAS,
                                     .slots = 4,
                                     .hot = 0.001,
                                     .leaf_rows = 1,
                                     .above = above};
    int64_t counted[RANKS * EXPERTS];
    double rows[RANKS * EXPERTS];

    fill(counted, hot);
    for (int i = 0; i < RANKS * EXPERTS; i++)
        rows[i] = (double)counted[i];
    cr_assert_eq(places_decide(&c, rows, &now, &next), 0, "%s",
                 train_error_text());
    return next.replicas;
}

static size_t copies_of_batch(double above, int64_t hot)
{
    const struct balance_config c = {
        .how = BALANCE_MICROBATCH, .slots = 4, .leaf_rows = 1, .above = above};
    const int node[RANKS] = {0};
    int64_t rows[RANKS * EXPERTS];

    fill(rows, hot);
    cr_assert_eq(places_decide_batch(&c, rows, node, &now, &next), 0, "%s",
                 train_error_text());
    return next.replicas;
}

/* Rank 0 has 2800 rows, which is 2.1538... times the mean of 1300. */
Test(places, no_copies_up_to_the_threshold)
{
    cr_assert_eq(copies(2.1539, 600), 0u);
    cr_assert_eq(copies(2.1538, 600), RANKS - 1u);
    cr_assert_eq(copies_of_batch(2.1539, 600), 0u);
    cr_assert_gt(copies_of_batch(2.1538, 600), 0u);
    /* A load equal to the threshold does not exceed it. Even loads have no
     * copies. */
    cr_assert_eq(copies(2800.0 / 1300, 600), 0u);
    cr_assert_eq(copies_of_batch(2800.0 / 1300, 600), 0u);
    cr_assert_eq(copies(1, 100), 0u);
    cr_assert_eq(copies_of_batch(1, 100), 0u);
}

/* Home and copies together must have all rows of an expert. */
Test(places, shares_of_copies_are_all_rows)
{
    int64_t rows[RANKS * EXPERTS], sum[EXPERTS] = {0};

    cr_assert_gt(copies_of_batch(1.01, 500), 0u);
    fill(rows, 500);
    for (int e = 0; e < EXPERTS; e++)
        sum[e] = next.share[e];
    for (size_t i = 0; i < next.replicas; i++)
        sum[next.replica[i].expert] += next.share[EXPERTS + i];
    for (int e = 0; e < EXPERTS; e++)
        cr_assert_eq(sum[e], RANKS * rows[e], "expert %d", e);
}
