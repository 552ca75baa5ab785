// SPDX-License-Identifier: Apache-2.0
/* The tree of a gradient's leaves; see tree.h. */
#include "moe/state/tree.h"

#include <string.h>

#include "src/base/error.h"
#include "src/kernels/reduce.h"

_Static_assert(sizeof(((struct shunt_moe_tree *)0)->level) == SHUNTI_TREE_SUMS,
               "levels of all sums");

static uint64_t leaves_of(uint64_t rows, size_t leaf_rows)
{
    return rows / leaf_rows + (rows % leaf_rows != 0);
}

/* True if the range is inside the rows of an expert. There must be less than
 * 2^63 rows, so that the size of each subtree fits into 64 bits. */
static bool is_possible(const struct shunt_moe_range *range)
{
    return range->all <= INT64_MAX && range->first <= range->all &&
           range->count <= range->all - range->first;
}

static bool is_range(const struct shunt_moe_range *range)
{
    return range->count && is_possible(range);
}

/* --- subtrees ----------------------------------------------------------------- */

size_t shunti_tree_levels(const struct shunt_moe_range *range, size_t leaf_rows,
                          unsigned char level[SHUNTI_TREE_SUMS])
{
    const uint64_t leaves = leaves_of(range->all, leaf_rows);
    uint64_t at, last, end;
    size_t n = 0;

    if (!is_range(range))
        return 0;
    at = range->first / leaf_rows;
    end = last = leaves_of(range->first + range->count, leaf_rows);
    if (end == leaves) /* round up, as if the tree were full */
        while (end & (end - 1))
            end += end & (~end + 1);
    while (at < last) {
        unsigned char l = (unsigned char)(at ? __builtin_ctzll(at) : 63);

        while (((uint64_t)1 << l) > end - at)
            l--;
        level[n++] = l;
        at += (uint64_t)1 << l;
    }
    return n;
}

void shunti_tree_begin(struct shunt_moe_tree *tree,
                       const struct shunt_moe_range *range, size_t leaf_rows)
{
    memset(tree, 0, sizeof(*tree));
    tree->range = *range;
    tree->leaf_rows = leaf_rows;
    tree->leaves = leaves_of(range->all, leaf_rows);
    tree->next = range->first / leaf_rows;
}

void shunti_tree_push(struct shunt_moe_tree *tree, unsigned char level)
{
    tree->level[tree->sums++] = level;
    tree->next += (uint64_t)1 << level;
}

bool shunti_tree_fold(struct shunt_moe_tree *tree)
{
    for (;;) {
        unsigned char *last = &tree->level[tree->sums - 1];
        const uint64_t width = (uint64_t)1 << *last;
        const uint64_t at = tree->next - width; /* number of its first leaf */

        if (at & width) {
            /* The subtree is the right one of a pair. Another copy may have the
             * left one. */
            if (tree->sums < 2 || last[-1] != *last)
                return false;
            last[-1]++;
            tree->sums--;
            return true;
        }
        if (!at || tree->next < tree->leaves)
            return false;
        ++*last; /* the subtree is the last one, and has no partner: it moves up
                    a level */
        tree->next += width;
    }
}

void shunti_tree_add(float *to, const float *from, size_t n)
{
    const void *const both[] = {to, from};

    if (n)
        shunti_reduce(to, both, 2, n, SHUNT_F32, SHUNT_SUM, 1);
}

/* --- of a copy ---------------------------------------------------------------- */

size_t shunt_moe_tree_sums(const struct shunt_moe_range *range,
                           size_t leaf_rows)
{
    unsigned char level[SHUNTI_TREE_SUMS];

    return range && leaf_rows ? shunti_tree_levels(range, leaf_rows, level) : 0;
}

/* The most sums that exist at a time while a subtree of `leaves` leaves is
 * made. Before leaf k there is a sum for each bit that is set in k, and leaf k
 * adds one. So the result is 1 + the most bits that any k < leaves has. One
 * candidate for k is the last leaf. For each bit that is set in the last leaf's
 * number, there is another candidate. It has 0 in this bit, 1 in all lower
 * bits, and the same higher bits. */
static size_t most_sums(uint64_t leaves)
{
    const uint64_t last = leaves - 1;
    size_t most = (size_t)__builtin_popcountll(last);

    for (unsigned bit = 0; bit < 64; bit++) {
        const uint64_t above = bit < 63 ? last >> (bit + 1) : 0;

        if (last >> bit & 1) {
            const size_t n = (size_t)__builtin_popcountll(above) + bit;

            most = n > most ? n : most;
        }
    }
    return most + 1;
}

size_t shunt_moe_tree_room(const struct shunt_moe_range *range,
                           size_t leaf_rows)
{
    unsigned char level[SHUNTI_TREE_SUMS];
    size_t most = 0, n;
    uint64_t at, end;

    if (!range || !leaf_rows || !is_range(range))
        return 0;
    n = shunti_tree_levels(range, leaf_rows, level);
    at = range->first / leaf_rows;
    end = leaves_of(range->first + range->count, leaf_rows);
    for (size_t i = 0; i < n; i++) {
        const uint64_t width = (uint64_t)1 << level[i];
        const uint64_t leaves = width < end - at ? width : end - at;
        const size_t sums = i + most_sums(leaves);

        most = sums > most ? sums : most;
        at += width;
    }
    return most;
}

enum shunt_status shunt_moe_tree_begin(struct shunt_moe_tree *tree,
                                       const struct shunt_moe_range *range,
                                       size_t leaf_rows, float *memory,
                                       size_t n)
{
    static const char call[] = "moe_tree_begin";

    if (!tree || !range || !leaf_rows)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: %s is %s", call,
                           !tree    ? "tree"
                           : !range ? "range"
                                    : "leaf_rows",
                           tree && range ? "0" : "NULL");
    memset(tree, 0, sizeof(*tree));
    if (range->first == SHUNT_MOE_SCATTERED)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: the rows of this copy are no range, as there "
                           "are copies without shares: shunt_moe_set_shares()",
                           call);
    if (!is_possible(range))
        return shunti_fail(
            NULL, SHUNT_ERR_INVALID,
            "%s: %llu rows from row %llu on are not in an expert "
            "of %llu rows: take range of shunt_moe_plan_rows()",
            call, (unsigned long long)range->count,
            (unsigned long long)range->first, (unsigned long long)range->all);
    if (range->first % leaf_rows)
        return shunti_fail(
            NULL, SHUNT_ERR_INVALID,
            "%s: leaf_rows is %zu, and row %llu does not begin a "
            "leaf: take leaf_rows of shunt_moe_plan_rows()",
            call, leaf_rows, (unsigned long long)range->first);
    if (range->count && (!memory || !n))
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: %s", call,
                           n ? "memory is NULL" : "n is 0");
    shunti_tree_begin(tree, range, leaf_rows);
    tree->memory = memory;
    tree->n = n;
    return SHUNT_OK;
}

int shunt_moe_tree_next(struct shunt_moe_tree *tree,
                        struct shunt_moe_leaf *leaf)
{
    const struct shunt_moe_range *range = &tree->range;
    uint64_t row, left;

    if (tree->making) {
        shunti_tree_push(tree, 0);
        while (shunti_tree_fold(tree)) {
            float *right = tree->memory + tree->sums * tree->n;

            shunti_tree_add(right - tree->n, right, tree->n);
        }
    }
    row = tree->next * tree->leaf_rows;
    tree->making = row < range->first + range->count;
    if (!tree->making)
        return 0;
    left = range->first + range->count - row;
    *leaf = (struct shunt_moe_leaf){
        .row = (size_t)(row - range->first),
        .rows = left < tree->leaf_rows ? (size_t)left : tree->leaf_rows,
        .gradient = tree->memory + tree->sums * tree->n,
    };
    return 1;
}
