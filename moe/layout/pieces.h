// SPDX-License-Identifier: Apache-2.0
/*
 * Pieces: the sums that a node sends home for a token.
 *
 * A node adds up the rows that it has of a token, and sends their sum.
 * Sometimes these rows are not neighbours in the reduction tree. One cause is
 * SHUNT_MOE_ORDER_HOMES: a row stands in the tree at its expert's home, also if
 * a copy on another node computed it. Another cause is `tree_ranks`, which can
 * group experts of several nodes. Then a node adds up only rows that form one
 * term in the tree: a piece. The source adds up the pieces of all nodes in the
 * order of the tree.
 *
 * A piece is
 *
 *   - the first ranks of a node in the tree, each with all its terms;
 *   - or the first terms of a rank in the tree, at least one;
 *   - or a single term.
 *
 * All terms of a piece are computed on one node, and a piece is as long as
 * possible. Without the two causes above, a node has one piece of a token.
 */
#ifndef SHUNTI_PIECES_H
#define SHUNTI_PIECES_H

#include <stddef.h>
#include <stdint.h>

#include "moe/layout/layout.h"

/*
 * Find the end of the piece that begins with term[0].
 *
 * term   (n) the rest of a token's terms.
 * first  true if term[0] is the token's first term.
 * node   (ranks) node of each rank.
 *
 * Returns the number of terms in the piece.
 */
size_t shunti_piece_end(const struct shunti_term *term, size_t n, bool first,
                        const int *node);

/*
 * Count the pieces that each node has of `tokens` tokens.
 *
 * terms, first  from shunti_layout_terms(); rows are not used.
 * pieces        (nodes) in/out; the counts are added.
 */
void shunti_pieces_count(const struct shunti_term *terms, const size_t *first,
                         size_t tokens, const int *node, uint32_t *pieces);

#endif
