// SPDX-License-Identifier: Apache-2.0
/* The layout of rows; see layout.h. */
#include "moe/layout/layout.h"

#include <stdio.h>
#include <string.h>

#include "moe/layout/counts.h"
#include "moe/layout/sort.h"
#include "src/kernels/rows.h"

size_t shunti_layout_align(size_t rows, size_t align)
{
    return (rows + align - 1) / align * align;
}

/* Sum the rows of all sources, by copy of an expert; and the rows of sources
 * before `source`, by expert. */
static void sum_by_copy(const struct shunti_placement *p,
                        const struct shunti_counts *counts, int source,
                        size_t *before, size_t *rows)
{
    const size_t experts = (size_t)p->experts;

    /* Go source by source, which is the order of the counts in memory. */
    memset(rows, 0, p->first[p->ranks] * sizeof(*rows));
    for (int s = 0; s < p->ranks; s++) {
        const uint32_t *copy = p->copy + (size_t)s * experts;
        const uint32_t *count = counts->rows[s];

        for (size_t e = 0; e < experts && s == source; e++)
            before[e] = rows[copy[e]];
        if (counts->padded)
            for (size_t e = 0; e < experts; e++)
                rows[copy[e]] += counts->padded[s];
        else
            for (size_t e = 0; e < experts; e++)
                rows[copy[e]] += count[e];
    }
}

/* The same if each expert has one copy. Both sums are by expert, so counts are
 * added in the order of memory. */
static void sum_by_expert(const struct shunti_placement *p,
                          const struct shunti_counts *counts, int source,
                          size_t *before, size_t *rows)
{
    const size_t experts = (size_t)p->experts;
    size_t padded = 0;

    memset(rows, 0, experts * sizeof(*rows));
    for (int s = 0; s < p->ranks; s++) {
        for (size_t e = 0; e < experts && s == source; e++)
            before[e] = rows[e] + padded;
        if (counts->padded)
            padded += counts->padded[s];
        else
            shunti_counts_add(rows, counts->rows[s], experts);
    }
    for (size_t e = 0; e < experts; e++)
        rows[e] += padded;
}

void shunti_layout_bases(const struct shunti_placement *p,
                         const struct shunti_counts *counts, size_t align,
                         int source, size_t *total, size_t *base, size_t *rows)
{
    const bool one_copy = shunti_placement_has_one_copy(p);
    const uint32_t *ours = shunti_placement_copies(p, source);

    if (one_copy)
        sum_by_expert(p, counts, source, base, rows);
    else
        sum_by_copy(p, counts, source, base, rows);
    for (int r = 0; r < p->ranks; r++) {
        size_t at = 0;

        for (size_t i = p->first[r]; i < p->first[r + 1]; i++) {
            const int32_t e = p->local[i];

            if (ours[e] == i)
                base[e] += at;
            at =
                shunti_layout_align(at + rows[one_copy ? (size_t)e : i], align);
        }
        total[r] = at;
    }
}

void shunti_layout_rows(const struct shunti_placement *p,
                        const uint32_t *const *counts, size_t *rank_rows)
{
    memset(rank_rows, 0, (size_t)p->ranks * sizeof(*rank_rows));
    for (int s = 0; s < p->ranks; s++)
        for (int e = 0; e < p->experts; e++)
            rank_rows[shunti_placement_target(p, s, e)] += counts[s][e];
}

/* True if source `s` sends its rows for `expert` to this copy. */
static bool uses(const struct shunti_placement *p, size_t s, int32_t expert,
                 size_t copy)
{
    return p->copy[s * (size_t)p->experts + (size_t)expert] == copy;
}

void shunti_layout_recv(const struct shunti_placement *p,
                        const struct shunti_received_counts *columns,
                        size_t align, int rank,
                        struct shunti_received_rows *recv)
{
    const size_t local = recv->local;
    const size_t first = p->first[rank];
    const int32_t *expert = shunti_placement_local(p, rank);
    const bool one_copy = shunti_placement_has_one_copy(p);

    memset(recv->count, 0, local * sizeof(*recv->count));
    recv->lent = 0;
    for (size_t s = 0; s < (size_t)p->ranks; s++)
        for (size_t i = 0; i < local; i++) {
            const bool sends = one_copy || uses(p, s, expert[i], first + i);
            const size_t rows =
                sends ? columns->count[s * columns->stride + i] : 0;

            recv->source_count[s * local + i] = rows;
            recv->lent += s != (size_t)rank ? rows : 0;
            recv->count[i] +=
                sends && columns->padded ? columns->padded[s] : rows;
        }
    shunti_received_rows_place(recv, align);
}

void shunti_layout_starts(const struct shunti_placement *p,
                          const size_t *padded, int rank,
                          const struct shunti_received_rows *recv,
                          uint32_t *start, size_t stride)
{
    const size_t local = (size_t)shunti_placement_count(p, rank);
    const size_t first = p->first[rank];
    const int32_t *expert = shunti_placement_local(p, rank);
    const bool one_copy = shunti_placement_has_one_copy(p);

    for (size_t i = 0; i < local; i++)
        start[i] = (uint32_t)recv->offset[i];
    for (size_t s = 1; s < (size_t)p->ranks; s++, start += stride)
        for (size_t i = 0; i < local; i++) {
            size_t rows = recv->source_count[(s - 1) * local + i];

            if (padded)
                rows = one_copy || uses(p, s - 1, expert[i], first + i)
                           ? padded[s - 1]
                           : 0;
            start[stride + i] = start[i] + (uint32_t)rows;
        }
}

/* --- the routing ------------------------------------------------------------------ */

/* Functions that loop over a token's slots are compiled once more with the
 * usual number of slots as a constant. The compiler then unrolls the loop. */
#define INLINE static inline __attribute__((always_inline))

enum {
    USUAL = 8, /* the usual top-k */
    /* Tokens that are read at once: their ids and keys fit in the first-level
     * cache, and a byte can count them. */
    BLOCK = 128,
};

/* The index of the first of n ids that is out of range, or n. */
static size_t find_bad(const int32_t *expert, size_t n, uint32_t experts)
{
    size_t i = 0;

    /* An id of -1 (no expert) is in range. */
    for (uint32_t bad = 0; i + 16 <= n; i += 16) {
        for (size_t j = 0; j < 16; j++)
            bad |= (uint32_t)expert[i + j] + 1 > experts;
        if (bad)
            break;
    }
    while (i < n && (uint32_t)expert[i] + 1 <= experts)
        i++;
    return i;
}

/* Make the keys of some tokens, and count their rows by expert. */
INLINE void make_keys(const struct shunti_order *order, const int32_t *expert,
                      size_t tokens, size_t k, uint32_t *key)
{
    const struct shunti_order_expert *const of = order->expert;
    uint32_t *const rows = order->rows;
    const size_t stride = shunti_sort_stride(k);

    for (size_t t = 0; t < tokens; t++, expert += k, key += stride) {
#pragma GCC unroll 8
        for (size_t j = 0; j < k; j++) {
            const int32_t e = expert[j];

            key[j] = of[e].position | (uint32_t)j;
            rows[e]++;
        }
        for (size_t j = k; j < stride; j++)
            key[j] = SHUNTI_NO_KEY;
    }
}

/* Groups by which distinct tokens are counted: ranks or nodes. */
struct groups {
    size_t n;
    const uint64_t *bit; /* (experts) bit of the expert's group (order.h) */
    const int *of;       /* (ranks) group of each rank; NULL: the rank itself */
    uint32_t *seen;      /* (n) last token of each, counted from 1; zeroed */
    uint32_t *count;     /* (n) out: tokens with any row there; zeroed */
};

/* Count by few groups. A token's groups are the bits of a word. Words are added
 * up byte by byte, which counts eight groups at once. */
INLINE void count_few(const struct groups *g, const int32_t *expert,
                      size_t tokens, size_t k)
{
    const size_t lanes = (g->n + 7) / 8;
    uint64_t lane[SHUNTI_ORDER_BITS / 8] = {0};

    for (size_t t = 0; t < tokens; t++, expert += k) {
        uint64_t bits = 0;

#pragma GCC unroll 8
        for (size_t j = 0; j < k; j++)
            bits |= g->bit[expert[j]];
        for (size_t i = 0; i < lanes; i++)
            lane[i] += bits >> i & UINT64_C(0x0101010101010101);
    }
    for (size_t i = 0; i < g->n; i++)
        g->count[i] += lane[i / 8] >> i % 8 * 8 & 0xff;
}

/* Count by any number of groups. before: tokens that have been counted. */
INLINE void count_many(const struct groups *g,
                       const struct shunti_order_expert *of,
                       const int32_t *expert, size_t tokens, size_t k,
                       size_t before)
{
    for (size_t t = 0; t < tokens; t++, expert += k) {
        const uint32_t now = (uint32_t)(before + t) + 1;

#pragma GCC unroll 8
        for (size_t j = 0; j < k; j++) {
            const int r = of[expert[j]].rank;

            if (r >= 0) {
                const int to = g->of ? g->of[r] : r;

                /* No branch here: it could not be predicted whether two experts
                 * of a token share a rank. */
                g->count[to] += g->seen[to] != now;
                g->seen[to] = now;
            }
        }
    }
}

INLINE void count_groups(const struct groups *g,
                         const struct shunti_order *order,
                         const int32_t *expert, size_t tokens, size_t k,
                         size_t before)
{
    if (g->n <= SHUNTI_ORDER_BITS)
        count_few(g, expert, tokens, k);
    else
        count_many(g, order->expert, expert, tokens, k, before);
}

/* Returns tokens * k, or the index of the first bad id. nodes->n is 0 if nodes
 * are not wanted. */
INLINE size_t read_tokens(const struct shunti_order *order,
                          const int32_t *expert, size_t tokens, size_t k,
                          const struct groups *ranks,
                          const struct groups *nodes, uint32_t *key)
{
    for (size_t t = 0, n; t < tokens; t += n) {
        const int32_t *ids = expert + t * k;
        size_t bad;

        n = tokens - t < BLOCK ? tokens - t : BLOCK;
        bad = find_bad(ids, n * k, (uint32_t)order->experts);
        if (bad < n * k)
            return t * k + bad;
        make_keys(order, ids, n, k, key + t * shunti_sort_stride(k));
        count_groups(ranks, order, ids, n, k, t);
        if (nodes->n)
            count_groups(nodes, order, ids, n, k, t);
    }
    return tokens * k;
}

size_t shunti_layout_read(struct shunti_order *order, const int32_t *expert,
                          size_t tokens, int topk, const int *node,
                          uint32_t *scratch,
                          const struct shunti_layout_read *out)
{
    const size_t n = (size_t)order->ranks, experts = (size_t)order->experts;
    const struct groups ranks = {
        .n = n,
        .bit = order->rank_bit,
        .seen = scratch,
        .count = out->rank,
    };
    const struct groups nodes = {
        .n = node ? (size_t)order->nodes : 0,
        .bit = order->node_bit,
        .of = node,
        .seen = scratch + n,
        .count = out->node,
    };
    size_t read;

    memset(scratch, 0, 2 * n * sizeof(*scratch));
    memset(out->rank, 0, n * sizeof(*out->rank));
    memset(order->rows - 1, 0, (experts + 1) * sizeof(*order->rows));
    read = topk == USUAL ? read_tokens(order, expert, tokens, USUAL, &ranks,
                                       &nodes, out->key)
                         : read_tokens(order, expert, tokens, (size_t)topk,
                                       &ranks, &nodes, out->key);
    memcpy(out->expert, order->rows, experts * sizeof(*order->rows));
    return read;
}

void shunti_layout_bad_id(const int32_t *expert, size_t at, int topk,
                          int experts, char *why, size_t len)
{
    snprintf(why, len,
             "topk_idx of token %zu, slot %zu is %d; experts are 0 to %d, and "
             "-1 is none",
             at / (size_t)topk, at % (size_t)topk, (int)expert[at],
             experts - 1);
}

/* --- terms ------------------------------------------------------------------------ */

_Static_assert(sizeof(struct shunti_term) == 16 &&
                   offsetof(struct shunti_term, rank) == 4 &&
                   offsetof(struct shunti_term, weight) == 8 &&
                   offsetof(struct shunti_term, slot) == 12 &&
                   offsetof(struct shunti_term, op) == 14,
               "a term is two words");

/* Write a term in two stores. All machines of the library are little-endian. */
static inline void write_term(struct shunti_term *term, uint64_t place,
                              float weight, uint32_t slot, uint32_t op)
{
    uint32_t bits;
    uint64_t rest;

    memcpy(&bits, &weight, sizeof(bits));
    rest = bits | (uint64_t)(slot | op << 16) << 32;
    memcpy(term, &place, sizeof(place));
    memcpy((unsigned char *)term + 8, &rest, sizeof(rest));
}

/* Write the terms of some tokens. Returns the number of terms. */
INLINE size_t write_terms(struct shunti_order_place *place, const uint32_t *key,
                          const float *weight, size_t tokens, size_t k,
                          struct shunti_term *terms, size_t *first)
{
    const size_t stride = shunti_sort_stride(k);
    struct shunti_term *term = terms;

    for (size_t t = 0; t < tokens; t++, key += stride) {
        uint32_t before = UINT32_MAX; /* the first term begins no group */

        first[t] = (size_t)(term - terms);
#pragma GCC unroll 8
        for (size_t i = 0; i < k; i++) {
            const uint32_t now = key[i], slot = now % SHUNTI_TOPK_MAX;
            struct shunti_order_place *at;

            if (now == SHUNTI_NO_KEY)
                break;
            at = place + (now >> SHUNTI_SLOT_BITS);
            write_term(term++, at->next, weight ? weight[slot] : 1, slot,
                       (uint32_t)(before < at->group) + (before < at->node));
            at->next++;
            before = now;
        }
        if (weight)
            weight += k;
    }
    return (size_t)(term - terms);
}

void shunti_layout_terms(struct shunti_order *order, uint32_t *key,
                         const float *weight, size_t tokens, int topk,
                         const size_t *base, uint32_t *scratch,
                         struct shunti_term *terms, size_t *first)
{
    const size_t k = (size_t)topk;
    struct shunti_order_place *const place = order->place;

    for (int e = 0; e < order->experts; e++) {
        const struct shunti_order_expert of = order->expert[e];

        place[of.position >> SHUNTI_SLOT_BITS].next =
            (uint64_t)(uint32_t)of.rank << 32 | (uint32_t)base[e];
    }
    /* Equal experts stay in the order of their slots. */
    shunti_sort(key, tokens, shunti_sort_stride(k), scratch);
    first[tokens] =
        k == USUAL && weight
            ? write_terms(place, key, weight, tokens, USUAL, terms, first)
            : write_terms(place, key, weight, tokens, k, terms, first);
}
