// SPDX-License-Identifier: Apache-2.0
/*
 * The order in which combine adds experts, as seen from one source rank.
 *
 * Experts are numbered by their position in the reduction tree: by node, then
 * group, then expert. A group is a computing rank, unless tree_ranks says
 * otherwise. The order depends only on the placement, so it is computed once
 * for a placement. A plan then sorts a token's few experts by plain 32-bit
 * numbers.
 */
#ifndef SHUNTI_ORDER_H
#define SHUNTI_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/layout/placement.h"

/* The grouping of experts in the tree. */
struct shunti_tree {
    int ranks; /* number of groups of contiguous experts; each rank stands for
                  an equal number of groups. 0: the experts that a rank computes
                  are a group */
    const int *node; /* (ranks) node of each rank */
    int nodes;  /* number of nodes over which the groups are spread evenly, in
                   order. 0: a group is on the real node of its rank */
    bool homes; /* if `ranks` is 0: group experts by their home, not by the rank
                   that computes */
};

/* Limits, so that a position and a slot of top-k fit 32 bits. */
#define SHUNTI_EXPERTS_MAX (1 << 20)
#define SHUNTI_TOPK_MAX (1 << 12)
#define SHUNTI_SLOT_BITS 12

/* The most ranks, or nodes, that can each have a bit of a 64-bit word. */
#define SHUNTI_ORDER_BITS 64

struct shunti_order {
    int experts, ranks, nodes;
    /* By expert. Entry -1 stands for "no expert": the last position, no rank,
     * no bits. */
    struct shunti_order_expert {
        uint32_t position; /* position in the tree << SHUNTI_SLOT_BITS */
        int32_t rank; /* the rank that computes the expert for this source */
    } * expert;
    /* By expert: the bit of its rank r, which is bit r / 8 of byte r % 8. 0 if
     * there are more ranks than bits. */
    uint64_t *rank_bit;
    uint64_t *node_bit; /* by expert: the bit of its node, laid out as in
                           `rank_bit` */
    uint32_t *rows;     /* scratch of shunti_layout_read() */
    /* By position. */
    struct shunti_order_place {
        uint64_t next; /* scratch of shunti_layout_terms(): the rank << 32 | the
                          next row in its buffer */
        uint32_t group, node; /* positions where its group and its node begin in
                                 the tree, << SHUNTI_SLOT_BITS */
    } * place;
    void *memory; /* holds all these arrays */
};

/* Compute the order that `source` uses. False: no memory. */
bool shunti_order_init(struct shunti_order *order,
                       const struct shunti_placement *placement,
                       const struct shunti_tree *tree, int source);
/* `order` may be zeroed. */
void shunti_order_finish(struct shunti_order *order);

/* True if the ranks of a node can compute that node's part of every sum, for
 * every source. False if the tree has an expert on another node than the one
 * that computes it. */
bool shunti_order_tree_fits(const struct shunti_placement *placement,
                            const struct shunti_tree *tree);

#endif
