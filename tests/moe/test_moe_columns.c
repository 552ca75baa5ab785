// SPDX-License-Identifier: Apache-2.0
/*
 * Columns of counts that are valid and invalid. Every layout relies on valid
 * ones.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "moe/plan/received_counts.h"

TestSuite(moe_columns, .timeout = 60);

enum { LOCAL = 5, TOKENS = 10, TOPK = 3 };

/* Tests a column of these words: different tokens; tokens and rows for the
 * node; pieces; rows for each expert. */
static bool can_be(const uint32_t words[4 + LOCAL], size_t padded, bool by_node,
                   bool pieces)
{
    _Alignas(struct shunti_column) unsigned char
        memory[(4 + LOCAL) * sizeof(uint32_t)];

    cr_assert_eq(shunti_column_words(LOCAL), 4 + LOCAL);
    memcpy(memory, words, sizeof(memory));
    return shunti_column_is_possible(
        (const struct shunti_column *)(const void *)memory, LOCAL, TOKENS, TOPK,
        padded, by_node, pieces);
}

/* Tests a column without pieces. The other words are those of can_be(). */
static bool is_possible(const uint32_t words[3 + LOCAL], size_t padded,
                        bool by_node)
{
    uint32_t all[4 + LOCAL] = {words[0], words[1], words[2]};

    memcpy(all + 4, words + 3, LOCAL * sizeof(*all));
    return can_be(all, padded, by_node, false);
}

Test(moe_columns, what_a_source_can_have)
{
    cr_assert(is_possible((uint32_t[]){0, 0, 0, 0, 0, 0, 0, 0}, 0, true));
    cr_assert(is_possible((uint32_t[]){10, 10, 30, 6, 6, 6, 6, 6}, 0, true));
    cr_assert(is_possible((uint32_t[]){10, 10, 30, 6, 6, 6, 6, 6}, 6, true));
    cr_assert(is_possible((uint32_t[]){4, 0, 0, 0, 0, 9, 0, 0}, 0, false));
}

Test(moe_columns, more_than_the_source_has)
{
    cr_assert_not(
        is_possible((uint32_t[]){11, 10, 30, 6, 6, 6, 6, 6}, 0, true));
    cr_assert_not(
        is_possible((uint32_t[]){10, 11, 30, 6, 6, 6, 6, 6}, 0, true));
    cr_assert_not(
        is_possible((uint32_t[]){10, 10, 31, 6, 6, 6, 6, 6}, 0, true));
    cr_assert_not(
        is_possible((uint32_t[]){10, 10, 29, 6, 6, 6, 6, 6}, 0, true));
    cr_assert_not(is_possible((uint32_t[]){10, 0, 0, 7, 6, 6, 6, 6}, 0, false));
    cr_assert_not(is_possible((uint32_t[]){10, 0, 0, 0, 0, 0, 0, 7}, 6, false));
    /* The sum of counts must not wrap around. */
    cr_assert_not(
        is_possible((uint32_t[]){1, 0, 0, UINT32_MAX, 1, 0, 0, 0}, 0, false));
}

/* A node returns at least one piece for each token, and at most one for each
 * row. */
Test(moe_columns, pieces_of_a_node)
{
    cr_assert(can_be((uint32_t[]){9, 5, 9, 5, 1, 2, 0, 0, 0}, 0, true, true));
    cr_assert(can_be((uint32_t[]){9, 5, 9, 9, 1, 2, 0, 0, 0}, 0, true, true));
    cr_assert_not(
        can_be((uint32_t[]){9, 5, 9, 4, 1, 2, 0, 0, 0}, 0, true, true));
    cr_assert_not(
        can_be((uint32_t[]){9, 5, 9, 10, 1, 2, 0, 0, 0}, 0, true, true));
}
