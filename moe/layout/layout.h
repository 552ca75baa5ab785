// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of rows: pure functions of the counts and the routing.
 *
 * A rank's buffer is sorted by expert (ascending), then by source rank
 * (ascending). The rows of a source are sorted by token, then by top-k slot.
 * Each expert begins at a multiple of the alignment. So a rank that knows all
 * counts knows the final slot of every row. A rank that knows the counts of its
 * own experts knows the slots in its buffer. The layout does not depend on
 * timing.
 */
#ifndef SHUNTI_LAYOUT_H
#define SHUNTI_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/layout/order.h"
#include "moe/layout/placement.h"
#include "moe/layout/received_rows.h"
#include "moe/layout/sort.h"

/* All counts that a layout depends on. */
struct shunti_counts {
    const uint32_t *const *rows; /* [source] -> (experts) assignments kept */
    const size_t *padded; /* [source] rows that each expert reserves for the
                             source; NULL: no padding */
};

/* The counts of one rank's buffer: rows of each source for the rank's
 * experts. */
struct shunti_received_counts {
    const uint32_t *count; /* [source * stride + i] rows for the rank's i-th
                              expert; ignored if the source uses another copy */
    size_t stride;
    const size_t *padded; /* as in struct shunti_counts */
};

/* Round up to a multiple of `align`. */
size_t shunti_layout_align(size_t rows, size_t align);

/*
 * Find where the rows of `source` begin on each rank that it sends to, and how
 * many rows each rank's buffer has. Reads each count once.
 *
 * total    (ranks) out: rows of each rank's buffer.
 * base     (experts) out: first row of `source` for each expert.
 * scratch  (copies of experts: placement->first[ranks]).
 */
void shunti_layout_bases(const struct shunti_placement *placement,
                         const struct shunti_counts *counts, size_t align,
                         int source, size_t *total, size_t *base,
                         size_t *scratch);

/* Count the rows of each rank, without padding and gaps. counts: [source] ->
 * (experts) assignments kept. */
void shunti_layout_rows(const struct shunti_placement *placement,
                        const uint32_t *const *counts, size_t *rank_rows);

/* Lay out the buffer of `rank`: set *recv, except its source_tokens. */
void shunti_layout_recv(const struct shunti_placement *placement,
                        const struct shunti_received_counts *columns,
                        size_t align, int rank,
                        struct shunti_received_rows *recv);

/*
 * Find where the rows of each source begin in the buffer of `rank`. For one
 * source, shunti_layout_bases() finds the same.
 *
 * recv   from shunti_layout_recv().
 * start  [source * stride + i] out: the source's first row for the i-th expert.
 *        If the source uses another copy: where its rows would begin.
 */
void shunti_layout_starts(const struct shunti_placement *placement,
                          const size_t *padded, int rank,
                          const struct shunti_received_rows *recv,
                          uint32_t *start, size_t stride);

/*
 * A term: one assignment that is sent. The terms of a token lie together, in
 * the order of the reduction tree.
 */
struct shunti_term {
    uint32_t row; /* slot in the buffer of `rank` */
    int32_t rank;
    float weight;
    uint16_t slot; /* slot of top-k */
    uint8_t op; /* enum shunti_rows_op: how the tree adds this term to the terms
                   before it */
    uint8_t unused;
};

/* The key of an entry without an assignment: the slot has no expert, or its
 * assignment was dropped, or the entry is padding. */
#define SHUNTI_NO_KEY UINT32_MAX

/* Results of shunti_layout_read(). The caller owns the arrays. */
struct shunti_layout_read {
    uint32_t *key; /* (tokens, shunti_sort_stride(topk)) positions and slots of
                      top-k. The array has shunti_sort_room() keys */
    uint32_t *expert; /* (experts) number of assignments to each */
    uint32_t *rank;   /* (ranks) number of tokens with a row on each */
    uint32_t *node; /* (nodes) number of tokens with a row on each, if `node` is
                       given. The caller zeroes it */
};

/*
 * Read a routing once.
 *
 * order    order of the source rank; order->rows is used as scratch.
 * expert   (tokens, topk) ids; -1: none or dropped.
 * node     (ranks) node of each rank, as in the tree of the order; NULL:
 *          out->node is not wanted.
 * scratch  (2 * ranks)
 *
 * Returns tokens * topk, or the index of the first id that is out of range;
 * then `out` is unspecified.
 */
size_t shunti_layout_read(struct shunti_order *order, const int32_t *expert,
                          size_t tokens, int topk, const int *node,
                          uint32_t *scratch,
                          const struct shunti_layout_read *out);

/* Describe the id at index `at` of a routing, which is out of range. */
void shunti_layout_bad_id(const int32_t *expert, size_t at, int topk,
                          int experts, char *why, size_t len);

/*
 * Make the terms of `tokens` tokens. Time is linear in the assignments, apart
 * from a factor log(topk / 8).
 *
 * order    order of the source rank, whose tokens these are.
 * key      from shunti_layout_read(); sorted here.
 * weight   (tokens, topk). NULL: all weights are 1.
 * base     (experts) the source rank's first row for each expert.
 * scratch  (shunti_sort_stride(topk))
 * terms    (tokens * topk) out.
 * first    (tokens + 1) out: index of a token's first term.
 */
void shunti_layout_terms(struct shunti_order *order, uint32_t *key,
                         const float *weight, size_t tokens, int topk,
                         const size_t *base, uint32_t *scratch,
                         struct shunti_term *terms, size_t *first);

#endif
