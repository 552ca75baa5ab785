// SPDX-License-Identifier: Apache-2.0
/*
 * The tree in which the leaves of an expert's gradient are added
 * (shunt/moe_gradients.h): which subtrees there are, and which may be added.
 *
 * A subtree of level l has 2^l leaves and begins at a multiple of 2^l. At the
 * right end of the tree, a subtree without a right partner moves up a level, as
 * if there were more leaves that add nothing. So a subtree at the right end may
 * have fewer leaves than 2^l.
 */
#ifndef SHUNTI_MOE_TREE_H
#define SHUNTI_MOE_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe_gradients.h>

enum { SHUNTI_TREE_SUMS = 132 }; /* one more than the most sums of any range */

/* Find the levels of the sums that remain when all leaves of a range are added,
 * in order. Returns the number of sums. */
size_t shunti_tree_levels(const struct shunt_moe_range *range, size_t leaf_rows,
                          unsigned char level[SHUNTI_TREE_SUMS]);

/* Begin the tree of an expert. Its subtrees are then pushed in order. */
void shunti_tree_begin(struct shunt_moe_tree *tree,
                       const struct shunt_moe_range *range, size_t leaf_rows);
/* Push the next subtree. Its sum has the number tree->sums - 1. */
void shunti_tree_push(struct shunt_moe_tree *tree, unsigned char level);
/* True: the caller must add sum number tree->sums to the sum before it, and
 * then call this again. */
bool shunti_tree_fold(struct shunt_moe_tree *tree);

/* to[i] += from[i] */
void shunti_tree_add(float *to, const float *from, size_t n);

#endif
