// SPDX-License-Identifier: Apache-2.0
/*
 * Which columns of counts can be: all that is laid out from them relies on it.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "moe/columns.h"

TestSuite(moe_columns, .timeout = 60);

enum { LOCAL = 5, TOKENS = 10, TOPK = 3 };

/* The words of a column: distinct tokens, tokens and rows for the node, rows for
 * each expert. */
static bool is_possible(const uint32_t words[3 + LOCAL], size_t padded,
                        bool by_node)
{
    _Alignas(struct shunti_column) unsigned char
        memory[(3 + LOCAL) * sizeof(uint32_t)];

    cr_assert_eq(shunti_column_words(LOCAL), 3 + LOCAL);
    memcpy(memory, words, sizeof(memory));
    return shunti_column_is_possible(
        (const struct shunti_column *)(const void *)memory, LOCAL, TOKENS, TOPK,
        padded, by_node);
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
    /* Their sum does not wrap. */
    cr_assert_not(
        is_possible((uint32_t[]){1, 0, 0, UINT32_MAX, 1, 0, 0, 0}, 0, false));
}
