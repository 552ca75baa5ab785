// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of rows: pure functions of the counts and the routing.
 *
 * On a rank: its experts ascending; of an expert the source ranks ascending;
 * of a source its assignments by token, then by top-k slot. Each expert begins
 * at a multiple of the alignment. Every rank knows all counts, so a sender
 * knows the final place of each of its rows. Nothing here is a race or depends
 * on who comes first.
 */
#ifndef SHUNTI_LAYOUT_H
#define SHUNTI_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/placement.h"

/* What every rank knows of a routing. */
struct shunti_counts {
    const uint32_t *const *rows; /* [source] -> (experts) assignments kept */
    const size_t *padded;        /* [source] rows each expert takes instead,
                                     or NULL: as many as there are */
};

/* What one rank receives. Arrays are the caller's. */
struct shunti_layout_recv {
    size_t *count;        /* (local) rows, padding included */
    size_t *offset;       /* (local + 1) */
    size_t *source_count; /* (ranks, local) rows without padding */
};

/* Round up to a multiple of `align`. */
size_t shunti_layout_align(size_t rows, size_t align);

/* Rows of the buffer of `rank`. If `recv` is given, its details; if `base`
 * (experts) is given, the first row of source `source` for each expert that
 * it sends to `rank` (others are left alone). */
size_t shunti_layout_rank(const struct shunti_placement *placement,
                          const struct shunti_counts *counts, size_t align,
                          int rank, const struct shunti_layout_recv *recv,
                          int source, size_t *base);

/*
 * One assignment that is sent. Those of a token lie together, in the order of
 * the reduction tree.
 */
struct shunti_term {
    uint32_t row; /* in the buffer of `rank` */
    int32_t rank;
    float weight;
    uint16_t slot; /* of top-k */
    uint8_t op;    /* enum shunti_rows_op: where it stands in the tree */
    uint8_t unused;
};

/* How experts are grouped in the tree. */
struct shunti_tree {
    int ranks;       /* 0: by the rank that computes; else contiguously on so
                        many ranks, each real one standing for an equal share */
    const int *node; /* (real ranks) */
    int nodes;       /* of the groups, in order; 0: those of real ranks */
};

/* Is the sum of each node of the tree one that its ranks can make, for every
 * source? (Not if `ranks` puts an expert elsewhere than it is.) */
bool shunti_layout_tree_fits(const struct shunti_placement *placement,
                             const struct shunti_tree *tree);

/* Scratch of shunti_layout_terms(). */
struct shunti_layout_expert {
    uint64_t key; /* its place in the tree: node, group, expert */
    size_t next;  /* row of the next assignment */
    int32_t rank;
};

/*
 * The terms of `tokens` tokens.
 *
 * source   the rank whose tokens these are.
 * expert   (tokens, topk); -1: none or dropped.
 * weight   (tokens, topk), or NULL: all 1.
 * base     (experts) first row of ours for each expert.
 * scratch  (experts)
 * terms    (tokens * topk) out.
 * first    (tokens + 1) out: where the terms of a token begin.
 */
void shunti_layout_terms(const struct shunti_placement *placement,
                         const struct shunti_tree *tree, int source,
                         const int32_t *expert, const float *weight,
                         size_t tokens, int topk, const size_t *base,
                         struct shunti_layout_expert *scratch,
                         struct shunti_term *terms, size_t *first);

/* distinct: (groups) out, how many tokens have any row in that group of ranks.
 * group: (ranks) of each, NULL: each its own. scratch: (groups). */
void shunti_layout_distinct(const struct shunti_placement *placement,
                            int source, const int *group, int groups,
                            const int32_t *expert, size_t tokens, int topk,
                            size_t *scratch, uint32_t *distinct);

#endif
