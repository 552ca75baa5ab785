// SPDX-License-Identifier: Apache-2.0
/*
 * The order in which combine adds experts, as seen from one source rank.
 *
 * Experts are numbered by their position in the reduction tree: node, group
 * (the computing rank, unless tree_ranks says otherwise), expert. The order
 * depends on the placement alone, so it is computed once per placement, and a
 * plan sorts the few experts of a token by plain 32-bit numbers.
 */
#ifndef SHUNTI_ORDER_H
#define SHUNTI_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/layout/placement.h"

/* How experts are grouped in the tree. */
struct shunti_tree {
    int ranks;       /* 0: by the rank that computes; else contiguously on so
                        many ranks, each real one standing for an equal share */
    const int *node; /* (real ranks) */
    int nodes;       /* of the groups, in order; 0: those of real ranks */
    bool homes;      /* without `ranks`: by the home, whichever copy computes */
};

/* Limits, so that a position and a slot of top-k fit 32 bits. */
#define SHUNTI_EXPERTS_MAX (1 << 20)
#define SHUNTI_TOPK_MAX (1 << 12)
#define SHUNTI_SLOT_BITS 12

/* Up to so many ranks, or nodes, those of a token fit a word. */
#define SHUNTI_ORDER_BITS 64

struct shunti_order {
    int experts, ranks, nodes;
    /* By expert. Entry -1 is that of no expert: the last position, no rank, no
     * bits. */
    struct shunti_order_expert {
        uint32_t position; /* << SHUNTI_SLOT_BITS */
        int32_t rank;      /* that computes it for this source */
    } * expert;
    uint64_t *rank_bit; /* that of the rank r: bit r / 8 of byte r % 8; 0 if
                           there are more ranks than bits */
    uint64_t *node_bit; /* likewise of the rank's node */
    uint32_t *rows;     /* scratch of shunti_layout_read() */
    /* By position. */
    struct shunti_order_place {
        uint64_t next; /* scratch of shunti_layout_terms(): the rank, and the
                          next row in its buffer: rank << 32 | row */
        uint32_t group, node; /* position where its group and its node in the
                                 tree begin, << SHUNTI_SLOT_BITS */
    } * place;
    void *memory; /* of the arrays */
};

/* The order that `source` uses. False: no memory. */
bool shunti_order_init(struct shunti_order *order,
                       const struct shunti_placement *placement,
                       const struct shunti_tree *tree, int source);
/* Accepts a zeroed one. */
void shunti_order_finish(struct shunti_order *order);

/* Can each node of the tree be summed by the ranks of that node, for every
 * source? (Not if `tree->ranks` groups an expert elsewhere than it is.) */
bool shunti_order_tree_fits(const struct shunti_placement *placement,
                            const struct shunti_tree *tree);

#endif
