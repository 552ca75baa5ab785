// SPDX-License-Identifier: Apache-2.0
/* How many sums the tree of a gradient needs, compared with adding leaves one
 * by one. */

#include <criterion/criterion.h>
#include <stdint.h>

#include <shunt/moe_gradients.h>

TestSuite(moe_tree, .timeout = 30);

/* A sum of the leaves from `at` on. In a full tree it would have `width`
 * leaves. */
struct sum {
    uint64_t at, width;
};

/* Adds the leaves first .. end - 1 of `leaves` by the definition
 * (moe_gradients.h). Returns the largest number of sums at a time, and in *left
 * the number of sums that remain. */
static size_t add_one_by_one(uint64_t first, uint64_t end, uint64_t leaves,
                             size_t *left)
{
    struct sum sum[130];
    size_t n = 0, most = 0;

    for (uint64_t leaf = first; leaf < end; leaf++) {
        sum[n++] = (struct sum){leaf, 1};
        most = n > most ? n : most;
        for (;;) {
            struct sum *last = &sum[n - 1];
            const bool is_right = last->at / last->width % 2;

            if (is_right && n > 1 && last[-1].width == last->width &&
                last[-1].at + last->width == last->at) {
                last[-1].width *= 2;
                n--;
            } else if (!is_right && leaf + 1 == leaves && last->at) {
                /* a sum without a partner moves one level up */
                last->width *= 2;
            } else {
                break;
            }
        }
    }
    *left = n;
    return most;
}

Test(moe_tree, every_small_range)
{
    static const size_t rows[] = {1, 3};

    for (uint64_t leaves = 1; leaves <= 70; leaves++)
        for (uint64_t first = 0; first < leaves; first++)
            for (uint64_t end = first + 1; end <= leaves; end++)
                for (int i = 0; i < 2; i++) {
                    const struct shunt_moe_range range = {
                        .first = first * rows[i],
                        .count = (end - first) * rows[i],
                        .all = leaves * rows[i],
                    };
                    size_t left;
                    const size_t most =
                        add_one_by_one(first, end, leaves, &left);

                    cr_assert_eq(shunt_moe_tree_room(&range, rows[i]), most,
                                 "leaves %lu to %lu of %lu", first, end,
                                 leaves);
                    cr_assert_eq(shunt_moe_tree_sums(&range, rows[i]), left,
                                 "leaves %lu to %lu of %lu", first, end,
                                 leaves);
                }
}

/* The room is computed before memory is allocated, so the computation must be
 * fast. */
Test(moe_tree, large_ranges)
{
    for (unsigned bits = 1; bits <= 62; bits++) {
        const uint64_t n = (uint64_t)1 << bits;
        const struct shunt_moe_range all = {.count = n, .all = n};
        const struct shunt_moe_range but_one = {
            .first = 1, .count = n - 1, .all = n};

        cr_assert_eq(shunt_moe_tree_room(&all, 1), bits + 1);
        cr_assert_eq(shunt_moe_tree_sums(&all, 1), 1);
        cr_assert_eq(shunt_moe_tree_sums(&but_one, 1), bits);
    }
}

static void expect_none(uint64_t first, uint64_t count, uint64_t all)
{
    const struct shunt_moe_range range = {first, count, all};
    struct shunt_moe_tree tree;
    float memory[1];

    cr_assert_eq(shunt_moe_tree_room(&range, 1), 0);
    cr_assert_eq(shunt_moe_tree_sums(&range, 1), 0);
    cr_assert_eq(shunt_moe_tree_begin(&tree, &range, 1, memory, 1),
                 SHUNT_ERR_INVALID);
}

Test(moe_tree, no_range)
{
    expect_none(0, UINT64_MAX, UINT64_MAX);
    expect_none(0, UINT64_MAX, 8);
    expect_none(4, UINT64_MAX - 2, 8); /* its last row would be row 2 */
    expect_none(9, 1, 8);
    expect_none(0, 9, 8);
    expect_none(SHUNT_MOE_SCATTERED, 4, SHUNT_MOE_SCATTERED);
}
