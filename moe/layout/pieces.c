// SPDX-License-Identifier: Apache-2.0
/* Pieces that nodes send home; see pieces.h. */
#include "moe/layout/pieces.h"

#include "src/kernels/rows.h"

/* Find the end of the terms from `begin` on that belong to one rank in the tree
 * and are computed on `node`. */
static size_t same_rank(const struct shunti_term *term, size_t begin, size_t n,
                        const int *node_of, int node)
{
    size_t end = begin;

    while (end < n && node_of[term[end].rank] == node &&
           (end == begin || term[end].op == SHUNTI_ROWS_ADD))
        end++;
    return end;
}

size_t shunti_piece_end(const struct shunti_term *term, size_t n, bool first,
                        const int *node_of)
{
    const int node = node_of[term->rank];
    size_t end;

    if (!first && term->op == SHUNTI_ROWS_ADD)
        return 1; /* other terms of its rank in the tree come before it */
    end = same_rank(term, 0, n, node_of, node);
    if (!first && term->op == SHUNTI_ROWS_RANK)
        return end;
    /* If the loop runs, the first rank in the tree has all its terms on this
     * node. Add the ranks behind it that also have all their terms here. */
    while (end < n && term[end].op == SHUNTI_ROWS_RANK) {
        const size_t next = same_rank(term, end, n, node_of, node);

        if (next == end || (next < n && term[next].op == SHUNTI_ROWS_ADD))
            break;
        end = next;
    }
    return end;
}

void shunti_pieces_count(const struct shunti_term *terms, const size_t *first,
                         size_t tokens, const int *node, uint32_t *pieces)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = first[t]; i < first[t + 1];) {
            pieces[node[terms[i].rank]]++;
            i += shunti_piece_end(terms + i, first[t + 1] - i, i == first[t],
                                  node);
        }
}
