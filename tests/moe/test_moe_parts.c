// SPDX-License-Identifier: Apache-2.0
/*
 * Units of an exchange that need no ranks: layout, placement, capacity.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/capacity.h"
#include "moe/layout/layout.h"
#include "moe/layout/placement.h"
#include "src/kernels/rows.h"

TestSuite(moe_parts, .timeout = 60);

/* --- layout: the worked example ------------------------------------------- */

/* 4 ranks on 2 nodes, 8 experts, top-3. */
static const int example_node[4] = {0, 0, 1, 1};
static const uint32_t example_counts[4][8] = {
    {0, 1, 0, 0, 2, 1, 1, 1},
    {1, 0, 1, 1, 0, 0, 0, 0},
    {0, 0, 0, 0, 0, 0, 0, 0},
    {0, 0, 1, 0, 0, 1, 1, 0},
};

static void example_placement(struct shunti_placement *p)
{
    char why[128];

    cr_assert_eq(shunti_placement_init(p, 4, 8, NULL, NULL, 0, example_node,
                                       why, sizeof(why)),
                 SHUNT_OK, "%s", why);
}

Test(moe_parts, layout_of_the_example)
{
    static const size_t total[4] = {2, 3, 4, 3};
    static const size_t offset[4][3] = {
        {0, 1, 2}, {0, 2, 3}, {0, 2, 4}, {0, 2, 3}};
    struct shunti_placement p;

    example_placement(&p);
    for (int r = 0; r < 4; r++) {
        const struct shunti_received_counts columns = {
            &example_counts[0][2 * r], 8, NULL};
        size_t count[2], at[3], by_source[8];
        struct shunti_received_rows recv = {.count = count,
                                            .offset = at,
                                            .source_count = by_source,
                                            .ranks = 4,
                                            .local = 2};

        shunti_layout_recv(&p, &columns, 1, r, &recv);
        cr_assert_eq(recv.total, total[r]);
        for (int e = 0; e < 3; e++)
            cr_assert_eq(at[e], offset[r][e], "rank %d, offset %d", r, e);
        for (int s = 0; s < 4; s++)
            for (int e = 0; e < 2; e++)
                cr_assert_eq(by_source[2 * s + e],
                             example_counts[s][2 * r + e]);
    }
    shunti_placement_finish(&p);
}

Test(moe_parts, terms_of_the_example)
{
    /* Rank 0: token 0 goes to experts 1, 4, 6, and token 1 to 4, 5, 7. They are
     * passed out of order. */
    static const int32_t expert[6] = {6, 1, 4, 4, 7, 5};
    static const float weight[6] = {.2f, .5f, .3f, .4f, .2f, .4f};
    static const int want_rank[6] = {0, 2, 3, 2, 2, 3};
    static const uint32_t want_row[6] = {1, 0, 0, 1, 2, 2};
    static const int want_slot[6] = {1, 2, 0, 0, 2, 1};
    static const int want_op[6] = {0, SHUNTI_ROWS_NODE, SHUNTI_ROWS_RANK,
                                   0, SHUNTI_ROWS_ADD,  SHUNTI_ROWS_RANK};
    const uint32_t *rows[4] = {example_counts[0], example_counts[1],
                               example_counts[2], example_counts[3]};
    const struct shunti_counts counts = {rows, NULL};
    const struct shunti_tree tree = {0, example_node, 0, false};
    uint32_t key[64], count[8], distinct[4], nodes[2] = {0}, scratch[16];
    const struct shunti_layout_read out = {key, count, distinct, nodes};
    struct shunti_placement p;
    struct shunti_order order;
    struct shunti_term terms[6];
    size_t base[8], total[4], copies[8], first[3];

    example_placement(&p);
    cr_assert(shunti_order_init(&order, &p, &tree, 0));
    shunti_layout_bases(&p, &counts, 1, 0, total, base, copies);
    cr_assert_eq(
        shunti_layout_read(&order, expert, 2, 3, example_node, scratch, &out),
        6);
    cr_assert_arr_eq(count, example_counts[0], sizeof(count));
    shunti_layout_terms(&order, key, weight, 2, 3, base, scratch, terms, first);
    cr_assert_eq(first[0], 0);
    cr_assert_eq(first[1], 3);
    cr_assert_eq(first[2], 6);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(terms[i].rank, want_rank[i], "term %d", i);
        cr_assert_eq(terms[i].row, want_row[i], "term %d", i);
        cr_assert_eq(terms[i].slot, want_slot[i], "term %d", i);
        cr_assert_eq(terms[i].weight, weight[i / 3 * 3 + want_slot[i]]);
        if (i % 3)
            cr_assert_eq(terms[i].op, want_op[i], "term %d", i);
    }
    cr_assert_eq(distinct[0], 1);
    cr_assert_eq(distinct[1], 0);
    cr_assert_eq(distinct[2], 2);
    cr_assert_eq(distinct[3], 2);
    cr_assert_eq(nodes[0], 1);
    cr_assert_eq(nodes[1], 2);
    shunti_order_finish(&order);
    shunti_placement_finish(&p);
}

Test(moe_parts, a_bad_expert_is_found)
{
    static const struct shunti_tree tree = {0, example_node, 0, false};
    uint32_t key[64], count[8], distinct[4], scratch[16];
    const struct shunti_layout_read out = {key, count, distinct, NULL};
    int32_t expert[6] = {6, 1, -1, 4, 7, 5};
    struct shunti_placement p;
    struct shunti_order order;

    example_placement(&p);
    cr_assert(shunti_order_init(&order, &p, &tree, 0));
    cr_assert_eq(shunti_layout_read(&order, expert, 2, 3, NULL, scratch, &out),
                 6);
    expert[4] = 8;
    cr_assert_eq(shunti_layout_read(&order, expert, 2, 3, NULL, scratch, &out),
                 4);
    expert[1] = -2;
    cr_assert_eq(shunti_layout_read(&order, expert, 2, 3, NULL, scratch, &out),
                 1);
    shunti_order_finish(&order);
    shunti_placement_finish(&p);
}

/* --- sorting -------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

Test(moe_parts, lists_of_any_length_are_sorted)
{
    enum { LISTS = 13, MOST = 100 };
    static uint32_t key[(LISTS + 1) * (MOST + 8)], want[sizeof(key) / 4];
    uint32_t scratch[MOST + 8], random = 1;

    for (size_t most = 1; most <= MOST; most++) {
        const size_t stride = shunti_sort_stride(most);

        cr_assert_leq(shunti_sort_room(LISTS, stride), sizeof(key) / 4);
        for (size_t i = 0; i < LISTS * stride; i++) {
            random = random * 1664525 + 1013904223;
            /* Small, large and equal keys. */
            key[i] = i % stride >= most ? UINT32_MAX
                     : random % 3       ? random
                                        : random >> 28;
        }
        memcpy(want, key, sizeof(key));
        for (size_t i = 0; i < LISTS; i++)
            qsort(want + i * stride, stride, sizeof(*want), by_value);
        shunti_sort(key, LISTS, stride, scratch);
        cr_assert_arr_eq(key, want, LISTS * stride * sizeof(*key), "%zu keys",
                         most);
    }
}

/* All lists of eight keys of 0 and 1. A sorting network that sorts every list
 * of zeros and ones sorts every list. */
Test(moe_parts, the_network_sorts_zeros_and_ones)
{
    static uint32_t key[256 * 8 + 24];

    for (unsigned i = 0; i < 256; i++)
        for (unsigned bit = 0; bit < 8; bit++)
            key[i * 8 + bit] = i >> bit & 1;
    shunti_sort(key, 256, 8, NULL);
    for (unsigned i = 0; i < 256; i++)
        for (unsigned bit = 0; bit < 8; bit++)
            cr_assert_eq(key[i * 8 + bit],
                         bit >= 8 - (unsigned)__builtin_popcount(i));
}

Test(moe_parts, layout_aligns_and_pads)
{
    static const uint32_t counts_of[2][3] = {{3, 0, 1}, {2, 5, 0}};
    const uint32_t *rows[2] = {counts_of[0], counts_of[1]};
    static const int node[2] = {0, 0};
    static const int32_t home[3] = {1, 1, 1};
    const size_t padded[2] = {4, 6};
    struct shunti_counts counts = {rows, NULL};
    /* Rank 1 has all experts. */
    struct shunti_received_counts columns = {counts_of[0], 3, NULL};
    size_t count[3], at[4], by_source[6], base[3], total[2], copies[3];
    uint32_t start[2][3];
    struct shunti_received_rows recv = {
        .count = count, .offset = at, .source_count = by_source, .ranks = 2};
    struct shunti_placement p;
    char why[128];

    cr_assert_eq(
        shunti_placement_init(&p, 2, 3, home, NULL, 0, node, why, sizeof(why)),
        SHUNT_OK);
    shunti_layout_recv(&p, &columns, 8, 0, &recv);
    cr_assert_eq(recv.total, 0);
    recv.local = 3;
    shunti_layout_recv(&p, &columns, 8, 1, &recv);
    cr_assert_eq(recv.total, 24);
    shunti_layout_starts(&p, NULL, 1, &recv, start[0], 3);
    shunti_layout_bases(&p, &counts, 8, 1, total, base, copies);
    cr_assert_eq(total[0], 0);
    cr_assert_eq(total[1], 24);
    cr_assert_eq(count[0], 5);
    cr_assert_eq(count[2], 1);
    cr_assert_eq(at[1], 8);
    cr_assert_eq(at[3], 24);
    cr_assert_eq(base[0], 3);
    cr_assert_eq(base[2], 17);
    cr_assert_eq(start[0][0], 0);
    cr_assert_eq(start[0][2], 16);
    cr_assert_eq(start[1][0], 3);
    cr_assert_eq(start[1][1], 8);
    cr_assert_eq(start[1][2], 17);
    counts.padded = columns.padded = padded;
    shunti_layout_recv(&p, &columns, 8, 1, &recv);
    cr_assert_eq(recv.total, 48);
    shunti_layout_starts(&p, padded, 1, &recv, start[0], 3);
    shunti_layout_bases(&p, &counts, 8, 1, total, base, copies);
    cr_assert_eq(total[1], 48);
    cr_assert_eq(count[1], 10);
    cr_assert_eq(at[2], 32);
    cr_assert_eq(base[1], 20);
    cr_assert_eq(start[1][1], 20);
    cr_assert_eq(by_source[3 + 1], 5);
    shunti_placement_finish(&p);
}

/* --- placement ------------------------------------------------------------ */

Test(moe_parts, default_placement_is_contiguous)
{
    static const int node[5] = {0};
    struct shunti_placement p;
    char why[128];

    for (int ranks = 1; ranks <= 5; ranks++)
        for (int experts = 1; experts < 20; experts++) {
            int seen = 0;

            cr_assert_eq(shunti_placement_init(&p, ranks, experts, NULL, NULL,
                                               0, node, why, sizeof(why)),
                         SHUNT_OK);
            for (int r = 0; r < ranks; r++)
                for (int i = 0; i < shunti_placement_count(&p, r); i++) {
                    cr_assert_eq(shunti_placement_local(&p, r)[i], seen);
                    cr_assert_eq(seen * ranks / experts, r);
                    for (int s = 0; s < ranks; s++)
                        cr_assert_eq(shunti_placement_target(&p, s, seen), r);
                    seen++;
                }
            cr_assert_eq(seen, experts);
            shunti_placement_finish(&p);
        }
}

Test(moe_parts, copies_near_are_preferred)
{
    /* 6 ranks, 2 nodes. The home of expert 0 is rank 0; it has copies on ranks
     * 3 and 4. */
    static const int node[6] = {0, 0, 0, 1, 1, 1};
    static const struct shunt_moe_replica copies[2] = {{0, 4}, {0, 3}};
    static const int want[6] = {0, 0, 0, 3, 4, 4};
    struct shunti_placement p;
    char why[128];

    cr_assert_eq(shunti_placement_init(&p, 6, 6, NULL, copies, 2, node, why,
                                       sizeof(why)),
                 SHUNT_OK);
    for (int s = 0; s < 6; s++)
        cr_assert_eq(shunti_placement_target(&p, s, 0), want[s], "source %d",
                     s);
    cr_assert_eq(shunti_placement_count(&p, 3), 2);
    cr_assert_eq(shunti_placement_local(&p, 3)[0], 0);
    cr_assert_eq(shunti_placement_local(&p, 3)[1], 3);
    shunti_placement_finish(&p);
}

/* The target by the words of placement.h: the source's own copy, else a copy on
 * its node, else any copy. Among several copies: the one whose index is the
 * source modulo their number. */
static int target_by_definition(const bool *has, const int *node, int ranks,
                                int source)
{
    int some[16], count = 0;

    if (has[source])
        return source;
    for (int r = 0; r < ranks; r++)
        if (has[r] && node[r] == node[source])
            some[count++] = r;
    if (count == 0)
        for (int r = 0; r < ranks; r++)
            if (has[r])
                some[count++] = r;
    return some[source % count];
}

Test(moe_parts, copies_as_defined)
{
    enum { RANKS = 16, EXPERTS = 24, COPIES = 30 };

    srand(11);
    for (int round = 0; round < 200; round++) {
        const int ranks = 1 + rand() % RANKS;
        bool has[EXPERTS][RANKS] = {{false}};
        struct shunt_moe_replica copies[COPIES];
        int32_t home[EXPERTS];
        int node[RANKS];
        size_t ncopies = 0;
        struct shunti_placement p;
        char why[128];

        for (int r = 0; r < ranks; r++)
            node[r] = rand() % 3;
        for (int e = 0; e < EXPERTS; e++) {
            home[e] = rand() % ranks;
            has[e][home[e]] = true;
        }
        for (int i = 0; i < COPIES; i++) {
            const int e = rand() % EXPERTS, r = rand() % ranks;

            if (has[e][r])
                continue;
            has[e][r] = true;
            copies[ncopies++] = (struct shunt_moe_replica){e, r};
        }
        cr_assert_eq(shunti_placement_init(&p, ranks, EXPERTS, home, copies,
                                           ncopies, node, why, sizeof(why)),
                     SHUNT_OK, "%s", why);
        for (int s = 0; s < ranks; s++)
            for (int e = 0; e < EXPERTS; e++)
                cr_assert_eq(shunti_placement_target(&p, s, e),
                             target_by_definition(has[e], node, ranks, s),
                             "round %d, source %d, expert %d", round, s, e);
        shunti_placement_finish(&p);
    }
}

/* --- capacity ------------------------------------------------------------- */

Test(moe_parts, capacity_of_the_switch_paper)
{
    cr_assert_eq(shunti_capacity(1.0, 6, 1, 3), 2);
    cr_assert_eq(shunti_capacity(1.5, 6, 1, 3), 3);
    cr_assert_eq(shunti_capacity(1.25, 10, 2, 8), 4);
    cr_assert_eq(shunti_capacity(2, 0, 2, 8), 0);
    cr_assert_eq(shunti_capacity(0, 6, 1, 3), SIZE_MAX);
    cr_assert_eq(shunti_capacity(1e300, 6, 1, 3), SIZE_MAX);
}

Test(moe_parts, capacity_drops_the_latest_or_the_lightest)
{
    static const int32_t given[8] = {0, 1, 0, 0, -1, 0, 1, 0};
    static const float weight[8] = {.1f, .5f, .3f, NAN, 9, .3f, .5f, .2f};
    int32_t expert[8];
    uint32_t count[2];

    memcpy(expert, given, sizeof(given));
    cr_assert_eq(shunti_capacity_apply(expert, weight, 8, 2, 2,
                                       SHUNT_MOE_DROP_POSITION, count),
                 SHUNT_OK);
    cr_assert_eq(count[0], 2);
    cr_assert_eq(count[1], 2);
    cr_assert_arr_eq(expert, ((int32_t[]){0, 1, 0, -1, -1, -1, 1, -1}), 32);

    /* .3 and .3 stay; .2, .1 and the NaN are dropped. */
    memcpy(expert, given, sizeof(given));
    cr_assert_eq(shunti_capacity_apply(expert, weight, 8, 2, 2,
                                       SHUNT_MOE_DROP_WEIGHT, count),
                 SHUNT_OK);
    cr_assert_arr_eq(expert, ((int32_t[]){-1, 1, 0, -1, -1, 0, 1, -1}), 32);

    /* The later one of two equal weights is dropped. */
    memcpy(expert, given, sizeof(given));
    cr_assert_eq(shunti_capacity_apply(expert, weight, 8, 2, 1,
                                       SHUNT_MOE_DROP_WEIGHT, count),
                 SHUNT_OK);
    cr_assert_arr_eq(expert, ((int32_t[]){-1, 1, 0, -1, -1, -1, -1, -1}), 32);
    cr_assert_eq(count[0], 1);
}
