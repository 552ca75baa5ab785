// SPDX-License-Identifier: Apache-2.0
/* The order of experts in the reduction tree; see order.h. */
#include "moe/layout/order.h"

#include <stdlib.h>
#include <string.h>

#include "moe/layout/shares.h"

/* The position of an expert in the tree, as a number to sort by. It has 20 bits
 * each for the node, the group and the expert. */
static uint64_t key_of(const struct shunti_placement *p,
                       const struct shunti_tree *tree, int target, int expert)
{
    int64_t group = target, node;

    if (tree->ranks) {
        group = (int64_t)shunti_placement_expert(p, expert) * tree->ranks /
                shunti_placement_real(p)->experts;
        node = tree->nodes ? group * tree->nodes / tree->ranks
                           : tree->node[group * p->ranks / tree->ranks];
    } else {
        if (tree->homes)
            group = p->home[expert];
        node = tree->node[group];
    }
    return (uint64_t)node << 44 | (uint64_t)group << 20 | (uint64_t)expert;
}

bool shunti_order_tree_fits(const struct shunti_placement *p,
                            const struct shunti_tree *tree)
{
    const int sources = shunti_placement_has_one_copy(p) ? 1 : p->ranks;

    for (int s = 0; s < sources; s++)
        for (int e = 0; e < p->experts; e++) {
            int target = shunti_placement_target(p, s, e);

            if (key_of(p, tree, target, e) >> 44 !=
                (uint64_t)tree->node[target])
                return false;
        }
    return true;
}

static int by_key(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

static uint64_t bit_of(int group, int groups)
{
    return groups <= SHUNTI_ORDER_BITS
               ? (uint64_t)1 << (group % 8 * 8 + group / 8)
               : 0;
}

/* Get memory for all arrays. Four of them have an entry -1. */
static bool prepare(struct shunti_order *order)
{
    const size_t n = (size_t)order->experts + 1;

    order->memory =
        malloc(n * (sizeof(*order->place) + sizeof(*order->rank_bit) +
                    sizeof(*order->node_bit) + sizeof(*order->expert) +
                    sizeof(*order->rows)));
    if (!order->memory)
        return false;
    order->place = order->memory;
    order->rank_bit = (uint64_t *)(order->place + n) + 1;
    order->node_bit = order->rank_bit + n;
    order->expert = (struct shunti_order_expert *)(order->node_bit - 1 + n) + 1;
    order->rows = (uint32_t *)(order->expert - 1 + n) + 1;
    return true;
}

bool shunti_order_init(struct shunti_order *order,
                       const struct shunti_placement *p,
                       const struct shunti_tree *tree, int source)
{
    const size_t n = (size_t)p->experts;
    uint64_t *key = malloc(n * sizeof(*key));
    uint32_t group = 0, node = 0;

    *order = (struct shunti_order){.experts = p->experts, .ranks = p->ranks};
    if (!key || !prepare(order)) {
        free(key);
        return false;
    }
    for (int r = 0; r < p->ranks; r++)
        if (tree->node[r] >= order->nodes)
            order->nodes = tree->node[r] + 1;
    for (int e = 0; e < p->experts; e++)
        key[e] = key_of(p, tree, shunti_placement_target(p, source, e), e);
    qsort(key, n, sizeof(*key), by_key);
    order->expert[-1] =
        (struct shunti_order_expert){.position = UINT32_MAX, .rank = -1};
    order->rank_bit[-1] = order->node_bit[-1] = 0;
    for (size_t i = 0; i < n; i++) {
        const int e = (int)(key[i] % SHUNTI_EXPERTS_MAX);
        const int rank = shunti_placement_target(p, source, e);
        const uint32_t position = (uint32_t)i << SHUNTI_SLOT_BITS;

        if (i && key[i] >> 20 != key[i - 1] >> 20)
            group = position;
        if (i && key[i] >> 44 != key[i - 1] >> 44)
            node = position;
        order->expert[e] = (struct shunti_order_expert){position, rank};
        order->rank_bit[e] = bit_of(rank, p->ranks);
        order->node_bit[e] = bit_of(tree->node[rank], order->nodes);
        order->place[i] = (struct shunti_order_place){0, group, node};
    }
    free(key);
    return true;
}

void shunti_order_finish(struct shunti_order *order)
{
    free(order->memory);
    memset(order, 0, sizeof(*order));
}
