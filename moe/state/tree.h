// SPDX-License-Identifier: Apache-2.0
/*
 * The tree in which the leaves of an expert's gradient are added
 * (shunt/moe_gradients.h): which of its subtrees there are, and which may be added.
 *
 * A subtree of level l has the leaves from a multiple of 2^l on. At the right end
 * of the tree one without a partner passes up, which is as if there were leaves
 * behind that add nothing. So there the leaves of a subtree may be fewer.
 */
#ifndef SHUNTI_MOE_TREE_H
#define SHUNTI_MOE_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe_gradients.h>

enum { SHUNTI_TREE_SUMS = 132 }; /* most in any range, and one more */

/* The levels of the sums that remain of a range, in order. Returns how many. */
size_t shunti_tree_levels(const struct shunt_moe_range *range, size_t leaf_rows,
                          unsigned char level[SHUNTI_TREE_SUMS]);

/* The tree of a whole expert, of which the subtrees are pushed in order. */
void shunti_tree_begin(struct shunt_moe_tree *tree,
                       const struct shunt_moe_range *range, size_t leaf_rows);
/* A subtree behind all that are there; its sum is number tree->sums - 1. */
void shunti_tree_push(struct shunt_moe_tree *tree, unsigned char level);
/* True: sum number tree->sums is to be added to that before it. Call it again. */
bool shunti_tree_fold(struct shunt_moe_tree *tree);

/* to[i] += from[i] */
void shunti_tree_add(float *to, const float *from, size_t n);

#endif
