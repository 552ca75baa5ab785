// SPDX-License-Identifier: Apache-2.0
/* The layout of rows; see layout.h. */
#include "moe/layout.h"

#include <string.h>

#include "kernels/rows.h"

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

/* Where an expert stands in the tree, as a number to sort by. Experts, ranks
 * and nodes are fewer than 2^20 each (config.c). */
static uint64_t key_of(const struct shunti_placement *p,
                       const struct shunti_tree *tree, int target, int expert)
{
    int64_t group = target, node;

    if (tree->ranks) {
        group = (int64_t)expert * tree->ranks / p->experts;
        node = tree->nodes ? group * tree->nodes / tree->ranks
                           : tree->node[group * p->ranks / tree->ranks];
    } else {
        node = tree->node[target];
    }
    return (uint64_t)node << 44 | (uint64_t)group << 20 | (uint64_t)expert;
}

bool shunti_layout_tree_fits(const struct shunti_placement *p,
                             const struct shunti_tree *tree)
{
    for (int s = 0; s < p->ranks; s++)
        for (int e = 0; e < p->experts; e++) {
            int target = shunti_placement_target(p, s, e);

            if (key_of(p, tree, target, e) >> 44 !=
                (uint64_t)tree->node[target])
                return false;
        }
    return true;
}

static uint8_t op_between(uint64_t before, uint64_t after)
{
    if (before >> 44 != after >> 44)
        return SHUNTI_ROWS_NODE;
    return before >> 20 != after >> 20 ? SHUNTI_ROWS_RANK : SHUNTI_ROWS_ADD;
}

void shunti_layout_terms(const struct shunti_placement *p,
                         const struct shunti_tree *tree, int source,
                         const int32_t *expert, const float *weight,
                         size_t tokens, int topk, const size_t *base,
                         struct shunti_layout_expert *scratch,
                         struct shunti_term *terms, size_t *first)
{
    size_t n = 0;

    for (int e = 0; e < p->experts; e++) {
        scratch[e].rank = shunti_placement_target(p, source, e);
        scratch[e].key = key_of(p, tree, scratch[e].rank, e);
        scratch[e].next = base[e];
    }
    for (size_t t = 0; t < tokens; t++) {
        const int32_t *ids = expert + t * (size_t)topk;
        size_t begin = n;

        first[t] = n;
        for (int j = 0; j < topk; j++) {
            struct shunti_layout_expert *here;
            size_t i;

            if (ids[j] < 0)
                continue;
            here = &scratch[ids[j]];
            /* An insertion sort: top-k is short. Equal ids stay in the order
             * of their slots. */
            for (i = n++; i > begin; i--) {
                if (scratch[ids[terms[i - 1].slot]].key <= here->key)
                    break;
                terms[i] = terms[i - 1];
            }
            terms[i] = (struct shunti_term){
                .row = (uint32_t)here->next++,
                .rank = here->rank,
                .weight = weight ? weight[t * (size_t)topk + (size_t)j] : 1,
                .slot = (uint16_t)j,
            };
        }
        for (size_t i = begin + 1; i < n; i++)
            terms[i].op = op_between(scratch[ids[terms[i - 1].slot]].key,
                                     scratch[ids[terms[i].slot]].key);
    }
    first[tokens] = n;
}

void shunti_layout_distinct(const struct shunti_placement *p, int source,
                            const int *group, int groups, const int32_t *expert,
                            size_t tokens, int topk, size_t *scratch,
                            uint32_t *distinct)
{
    /* The last token seen for each group, counted from 1. */
    memset(scratch, 0, (size_t)groups * sizeof(*scratch));
    memset(distinct, 0, (size_t)groups * sizeof(*distinct));
    for (size_t t = 0; t < tokens; t++)
        for (int j = 0; j < topk; j++) {
            int e = expert[t * (size_t)topk + (size_t)j], at;

            if (e < 0)
                continue;
            at = shunti_placement_target(p, source, e);
            if (group)
                at = group[at];
            distinct[at] += scratch[at] != t + 1;
            scratch[at] = t + 1;
        }
}
