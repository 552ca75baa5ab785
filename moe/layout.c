// SPDX-License-Identifier: Apache-2.0
/* The layout of rows; see layout.h. */
#include "moe/layout.h"

#include <string.h>

#include "kernels/rows.h"
#include "moe/sort.h"

size_t shunti_layout_align(size_t rows, size_t align)
{
    return (rows + align - 1) / align * align;
}

void shunti_layout_bases(const struct shunti_placement *p,
                         const struct shunti_counts *counts, size_t align,
                         int source, size_t *total, size_t *base, size_t *rows)
{
    const size_t experts = (size_t)p->experts;
    const uint32_t *ours = p->copy + (size_t)source * experts;

    /* Source by source, as the counts lie in memory. */
    memset(rows, 0, p->first[p->ranks] * sizeof(*rows));
    for (int s = 0; s < p->ranks; s++) {
        const uint32_t *copy = p->copy + (size_t)s * experts;
        const uint32_t *count = counts->rows[s];

        for (size_t e = 0; e < experts && s == source; e++)
            base[e] = rows[copy[e]];
        if (counts->padded)
            for (size_t e = 0; e < experts; e++)
                rows[copy[e]] += counts->padded[s];
        else
            for (size_t e = 0; e < experts; e++)
                rows[copy[e]] += count[e];
    }
    /* From the rows of each copy to where they begin. */
    for (int r = 0; r < p->ranks; r++) {
        size_t at = 0;

        for (size_t i = p->first[r]; i < p->first[r + 1]; i++) {
            size_t end = shunti_layout_align(at + rows[i], align);

            rows[i] = at;
            at = end;
        }
        total[r] = at;
    }
    for (size_t e = 0; e < experts; e++)
        base[e] += rows[ours[e]];
}

size_t shunti_layout_recv(const struct shunti_placement *p,
                          const struct shunti_counts *counts, size_t align,
                          int rank, const struct shunti_layout_recv *recv)
{
    const size_t local = (size_t)shunti_placement_count(p, rank);
    const size_t experts = (size_t)p->experts, first = p->first[rank];
    const int32_t *expert = shunti_placement_local(p, rank);
    size_t at = 0;

    memset(recv->count, 0, local * sizeof(*recv->count));
    for (size_t s = 0; s < (size_t)p->ranks; s++)
        for (size_t i = 0; i < local; i++) {
            const size_t e = (size_t)expert[i];
            const bool sends = p->copy[s * experts + e] == first + i;
            const size_t rows = sends ? counts->rows[s][e] : 0;

            recv->source_count[s * local + i] = rows;
            recv->count[i] +=
                sends && counts->padded ? counts->padded[s] : rows;
        }
    for (size_t i = 0; i < local; i++) {
        recv->offset[i] = at;
        at = shunti_layout_align(at + recv->count[i], align);
    }
    recv->offset[local] = at;
    return at;
}

/* --- the routing ------------------------------------------------------------------ */

/* Count token t once in `group`. seen: the last token of each group, counted
 * from 1. Without a branch: whether two experts of a token share a rank is as
 * good as random. */
static inline void count_once(uint32_t *count, uint32_t *seen, int group,
                              size_t t)
{
    count[group] += seen[group] != (uint32_t)t + 1;
    seen[group] = (uint32_t)t + 1;
}

size_t shunti_layout_read(const struct shunti_order *order,
                          const int32_t *expert, size_t tokens, int topk,
                          const int *node, uint32_t *scratch,
                          const struct shunti_layout_read *out)
{
    const struct shunti_order_expert *const of = order->expert;
    const size_t ranks = (size_t)order->ranks, k = (size_t)topk;
    const size_t stride = shunti_sort_stride(k);
    const uint32_t experts = (uint32_t)order->experts;
    uint32_t *const rank_seen = scratch, *const node_seen = scratch + ranks;
    uint32_t *const by_expert = out->expert, *const by_rank = out->rank;
    uint32_t *const by_node = out->node, *key = out->key;

    memset(scratch, 0, 2 * ranks * sizeof(*scratch));
    memset(by_expert, 0, experts * sizeof(*by_expert));
    memset(by_rank, 0, ranks * sizeof(*by_rank));
    for (size_t t = 0; t < tokens; t++, expert += k, key += stride) {
        for (size_t j = 0; j < k; j++) {
            const uint32_t e = (uint32_t)expert[j];

            if (e >= experts) {
                if (expert[j] != -1)
                    return t * k + j;
                key[j] = SHUNTI_NO_KEY;
                continue;
            }
            key[j] = of[e].position | (uint32_t)j;
            by_expert[e]++;
            count_once(by_rank, rank_seen, of[e].rank, t);
            if (node)
                count_once(by_node, node_seen, node[of[e].rank], t);
        }
        for (size_t j = k; j < stride; j++)
            key[j] = SHUNTI_NO_KEY;
    }
    return tokens * k;
}

void shunti_layout_terms(struct shunti_order *order, uint32_t *key,
                         const float *weight, size_t tokens, int topk,
                         const size_t *base, uint32_t *scratch,
                         struct shunti_term *terms, size_t *first)
{
    const size_t k = (size_t)topk, stride = shunti_sort_stride(k);
    struct shunti_order_place *const place = order->place;
    struct shunti_term *term = terms;

    for (int e = 0; e < order->experts; e++)
        place[order->expert[e].position >> SHUNTI_SLOT_BITS].next =
            (uint32_t)base[e];
    /* Equal experts stay in the order of their slots. */
    shunti_sort(key, tokens, stride, scratch);
    for (size_t t = 0; t < tokens; t++, key += stride) {
        uint32_t group = 0, node = 0;

        first[t] = (size_t)(term - terms);
        for (size_t i = 0; i < k && key[i] != SHUNTI_NO_KEY; i++, term++) {
            const uint32_t slot = key[i] % SHUNTI_TOPK_MAX;
            struct shunti_order_place *at =
                place + (key[i] >> SHUNTI_SLOT_BITS);

            *term = (struct shunti_term){
                .row = at->next++,
                .rank = at->rank,
                .weight = weight ? weight[t * k + slot] : 1,
                .slot = (uint16_t)slot,
                .op = (uint8_t)((group != at->group) + (node != at->node)),
                .unused = 0,
            };
            group = at->group;
            node = at->node;
        }
        if (term != terms + first[t])
            terms[first[t]].op = SHUNTI_ROWS_ADD; /* nothing before it */
    }
    first[tokens] = (size_t)(term - terms);
}
