// SPDX-License-Identifier: Apache-2.0
/* The order of experts in the reduction tree; see order.h. */
#include "moe/order.h"

#include <stdlib.h>
#include <string.h>

/* Where an expert stands in the tree, as a number to sort by: 20 bits each of
 * node, group and expert. */
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

bool shunti_order_tree_fits(const struct shunti_placement *p,
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

static int by_key(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

bool shunti_order_init(struct shunti_order *order,
                       const struct shunti_placement *p,
                       const struct shunti_tree *tree, int source)
{
    const size_t n = (size_t)p->experts;
    uint64_t *key = malloc(n * sizeof(*key));

    *order = (struct shunti_order){
        .experts = p->experts,
        .ranks = p->ranks,
        .expert = malloc(n * sizeof(*order->expert)),
        .place = malloc(n * sizeof(*order->place)),
    };
    if (!key || !order->expert || !order->place) {
        free(key);
        shunti_order_finish(order);
        return false;
    }
    for (int e = 0; e < p->experts; e++)
        key[e] = key_of(p, tree, shunti_placement_target(p, source, e), e);
    qsort(key, n, sizeof(*key), by_key);
    for (size_t i = 0; i < n; i++) {
        const int e = (int)(key[i] % SHUNTI_EXPERTS_MAX);
        const int rank = shunti_placement_target(p, source, e);

        order->expert[e] = (struct shunti_order_expert){
            .position = (uint32_t)i << SHUNTI_SLOT_BITS,
            .rank = rank,
        };
        order->place[i] = (struct shunti_order_place){
            .rank = rank,
            .group = (uint32_t)(key[i] >> 20) % SHUNTI_EXPERTS_MAX,
            .node = (uint32_t)(key[i] >> 44),
        };
    }
    free(key);
    return true;
}

void shunti_order_finish(struct shunti_order *order)
{
    free(order->expert);
    free(order->place);
    memset(order, 0, sizeof(*order));
}
