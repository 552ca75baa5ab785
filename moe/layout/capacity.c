// SPDX-License-Identifier: Apache-2.0
/* Capacity of experts; see capacity.h. */
#include "moe/layout/capacity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t shunti_capacity(double factor, size_t tokens, int topk, int experts)
{
    double rows;

    if (factor == 0)
        return SIZE_MAX;
    rows = ceil(fabs(factor) * (double)tokens * topk / experts);
    return rows < 0x1p53 ? (size_t)rows : SIZE_MAX;
}

static void drop_latest(int32_t *expert, size_t n, size_t capacity,
                        uint32_t *count)
{
    for (size_t i = 0; i < n; i++) {
        if (expert[i] < 0)
            continue;
        if (count[expert[i]] < capacity)
            count[expert[i]]++;
        else
            expert[i] = -1;
    }
}

struct candidate {
    int32_t expert;
    float weight;
    size_t at;
};

/* Order by expert, then by weight (larger first), then by position. */
static int compare(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    if (a->expert != b->expert)
        return a->expert < b->expert ? -1 : 1;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static enum shunt_status drop_lightest(int32_t *expert, const float *weight,
                                       size_t n, size_t capacity,
                                       uint32_t *count)
{
    struct candidate *all = malloc((n ? n : 1) * sizeof(*all));
    size_t m = 0;

    if (!all)
        return SHUNT_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (expert[i] >= 0)
            all[m++] = (struct candidate){
                expert[i], isnan(weight[i]) ? -INFINITY : weight[i], i};
    qsort(all, m, sizeof(*all), compare);
    for (size_t i = 0; i < m; i++) {
        if (count[all[i].expert] < capacity)
            count[all[i].expert]++;
        else
            expert[all[i].at] = -1;
    }
    free(all);
    return SHUNT_OK;
}

enum shunt_status shunti_capacity_apply(int32_t *expert, const float *weight,
                                        size_t n, int experts, size_t capacity,
                                        enum shunt_moe_drop drop,
                                        uint32_t *count)
{
    memset(count, 0, (size_t)experts * sizeof(*count));
    if (drop == SHUNT_MOE_DROP_WEIGHT && weight && capacity < n)
        return drop_lightest(expert, weight, n, capacity, count);
    drop_latest(expert, n, capacity, count);
    return SHUNT_OK;
}
