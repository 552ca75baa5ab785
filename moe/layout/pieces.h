// SPDX-License-Identifier: Apache-2.0
/*
 * Pieces: what a node sends home of a token's rows.
 *
 * A node adds up those rows of a token that it has, and sends their sum. But if a
 * copy elsewhere did the work of an expert, whose row has its place in the tree at
 * the home (SHUNT_MOE_ORDER_HOMES), the rows that one node has need not be
 * neighbours in the tree. (Likewise where `tree_ranks` groups experts of several
 * nodes.) So only so many of them are added up as stand in the tree as one term: a
 * piece. The source adds up the pieces of all nodes in the order of the tree.
 *
 * A piece is
 *
 *   - all terms of a node in the tree, or whole ranks of it from the first on;
 *   - or the first terms of a rank in the tree, at least one;
 *   - or a single term,
 *
 * all of which are computed on one node, and as many as there are. Without such
 * copies this is all that a node has of a token.
 */
#ifndef SHUNTI_PIECES_H
#define SHUNTI_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "moe/layout/layout.h"

/*
 * The end of the piece that begins with `term`.
 *
 * term   [0, n): this one and those behind it of the same token.
 * first  is it the token's first?
 * node   (ranks)
 */
size_t shunti_piece_end(const struct shunti_term *term, size_t n, bool first,
                        const int *node);

/*
 * How many pieces each node has of `tokens` tokens.
 *
 * terms, first  as of shunti_layout_terms(); rows do not matter.
 * pieces        (nodes) out; added to.
 */
void shunti_pieces_count(const struct shunti_term *terms, const size_t *first,
                         size_t tokens, const int *node, uint32_t *pieces);

#endif
