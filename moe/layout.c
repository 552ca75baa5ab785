// SPDX-License-Identifier: Apache-2.0
/* The layout of rows; see layout.h. */
#include "layout.h"

#include <string.h>

#include "rows.h"

size_t shunti_layout_align(size_t rows, size_t align)
{
    return (rows + align - 1) / align * align;
}

size_t shunti_layout_rank(const struct shunti_placement *p,
                          const struct shunti_counts *counts, size_t align,
                          int rank, const struct shunti_layout_recv *recv,
                          int source, size_t *base)
{
    int local = shunti_placement_count(p, rank);
    const int32_t *expert = shunti_placement_local(p, rank);
    size_t at = 0;

    for (int i = 0; i < local; i++) {
        int e = expert[i];
        size_t begin = at;

        if (recv)
            recv->offset[i] = begin;
        for (int s = 0; s < p->ranks; s++) {
            bool sends = shunti_placement_target(p, s, e) == rank;
            size_t rows = sends ? counts->rows[s][e] : 0;

            if (recv)
                recv->source_count[(size_t)s * (size_t)local + (size_t)i] =
                    rows;
            if (!sends)
                continue;
            if (base && s == source)
                base[e] = at;
            at += counts->padded ? counts->padded[s] : rows;
        }
        if (recv)
            recv->count[i] = at - begin;
        at = shunti_layout_align(at, align);
    }
    if (recv)
        recv->offset[local] = at;
    return at;
}

/* Where an expert stands in the tree: its rank there, and that one's node. */
struct place {
    int node;
    int rank;
};

static struct place place_of(const struct shunti_placement *p,
                             const struct shunti_tree *tree, int target,
                             int expert)
{
    if (tree->ranks == 0)
        return (struct place){tree->node[target], target};
    /* The products fit: experts and ranks are 32 bits each. */
    int rank = (int)((int64_t)expert * tree->ranks / p->experts);

    return (struct place){
        tree->node[(int64_t)rank * p->ranks / tree->ranks], rank};
}

/* Does `a` come before `b`? `b` was found later, so equal ones stay. */
static bool before(struct place a, int a_expert, struct place b, int b_expert)
{
    if (a.node != b.node)
        return a.node < b.node;
    if (a.rank != b.rank)
        return a.rank < b.rank;
    return a_expert < b_expert;
}

void shunti_layout_terms(const struct shunti_placement *p,
                         const struct shunti_tree *tree, int source,
                         const int32_t *expert, const float *weight,
                         size_t tokens, int topk, const size_t *base,
                         size_t *next, struct shunti_term *terms,
                         size_t *first)
{
    size_t n = 0;

    memcpy(next, base, (size_t)p->experts * sizeof(*next));
    for (size_t t = 0; t < tokens; t++) {
        const int32_t *ids = expert + t * (size_t)topk;
        size_t begin = n;

        first[t] = n;
        for (int j = 0; j < topk; j++) {
            int e = ids[j];
            struct place here;
            size_t i;

            if (e < 0)
                continue;
            struct shunti_term term = {
                .row = (uint32_t)next[e]++,
                .rank = shunti_placement_target(p, source, e),
                .weight = weight ? weight[t * (size_t)topk + (size_t)j] : 1,
                .slot = (uint16_t)j,
            };

            /* An insertion sort: top-k is short. */
            here = place_of(p, tree, term.rank, e);
            for (i = n++; i > begin; i--) {
                int other = ids[terms[i - 1].slot];

                if (!before(here, e,
                            place_of(p, tree, terms[i - 1].rank, other),
                            other))
                    break;
                terms[i] = terms[i - 1];
            }
            terms[i] = term;
        }
        for (size_t i = begin + 1; i < n; i++) {
            int a = ids[terms[i - 1].slot], b = ids[terms[i].slot];
            struct place x = place_of(p, tree, terms[i - 1].rank, a);
            struct place y = place_of(p, tree, terms[i].rank, b);

            terms[i].op = x.node != y.node   ? SHUNTI_ROWS_NODE
                          : x.rank != y.rank ? SHUNTI_ROWS_RANK
                                             : SHUNTI_ROWS_ADD;
        }
    }
    first[tokens] = n;
}

void shunti_layout_distinct(const struct shunti_placement *p, int source,
                            const int32_t *expert, size_t tokens, int topk,
                            uint32_t *distinct)
{
    memset(distinct, 0, (size_t)p->ranks * sizeof(*distinct));
    for (size_t t = 0; t < tokens; t++) {
        const int32_t *ids = expert + t * (size_t)topk;

        for (int j = 0; j < topk; j++) {
            int rank, k = 0;

            if (ids[j] < 0)
                continue;
            rank = shunti_placement_target(p, source, ids[j]);
            while (k < j && (ids[k] < 0 ||
                             shunti_placement_target(p, source, ids[k]) !=
                                 rank))
                k++;
            distinct[rank] += k == j;
        }
    }
}
