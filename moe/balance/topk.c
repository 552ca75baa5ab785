// SPDX-License-Identifier: Apache-2.0
/* Routers that choose by groups of experts. */
#include <shunt/balance.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "moe/balance/check.h"
#include "src/base/error.h"
#include "src/kernels/best.h"

static void offer_group(struct shunti_best *b, const float *scores, int size,
                        int g)
{
    const int first = g * size;

    shunti_best_offer(b, (size_t)size, scores + first, NULL, first);
}

static bool make(struct shunti_best *b, int k)
{
    b->k = (size_t)k;
    b->score = malloc((size_t)k * sizeof(*b->score));
    b->number = malloc((size_t)k * sizeof(*b->number));
    return b->score && b->number;
}

static void finish(struct shunti_best *b)
{
    free(b->score);
    free(b->number);
}

static enum shunt_status check_groups(const char *call, int experts, int groups,
                                      int k)
{
    if (experts < 1 || groups < 1 || experts % groups)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d groups of %d experts; the one must divide "
                           "the other",
                           call, groups, experts);
    if (k < 1 || k > experts)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: k is %d, of %d experts", call, k, experts);
    return SHUNT_OK;
}

static void limited(const float *scores, int size, int groups,
                    struct shunti_best *of, struct shunti_best *open,
                    struct shunti_best *k, bool *is_open)
{
    open->n = k->n = 0;
    for (int g = 0; g < groups; g++) {
        float sum = 0;

        of->n = 0;
        offer_group(of, scores, size, g);
        for (size_t i = 0; i < of->n; i++)
            sum += of->score[i];
        shunti_best_offer(open, 1, &sum, NULL, (int32_t)g);
        is_open[g] = false;
    }
    for (size_t i = 0; i < open->n; i++)
        is_open[open->number[i]] = true;
    /* Offer the groups in order, so that of equal scores the lower number comes
     * first. */
    for (int g = 0; g < groups; g++)
        if (is_open[g])
            offer_group(k, scores, size, g);
}

enum shunt_status shunt_balance_topk_limited(const float *scores, size_t tokens,
                                             int experts, int groups,
                                             int chosen, int best_of, int k,
                                             int32_t *topk_idx)
{
    static const char call[] = "shunt_balance_topk_limited";
    enum shunt_status st = check_groups(call, experts, groups, k);
    struct shunti_best of = {0}, open = {0}, best = {0};
    bool *is_open = NULL;
    int size;

    if (st)
        return st;
    size = experts / groups;
    if (chosen < 1 || chosen > groups || best_of < 1 || best_of > size ||
        k > chosen * size)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: %d of %d groups, by the best %d, and %d of "
                           "their experts; a group has %d",
                           call, chosen, groups, best_of, k, size);
    is_open = malloc((size_t)groups * sizeof(*is_open));
    if (make(&of, best_of) && make(&open, chosen) && make(&best, k) && is_open)
        for (size_t t = 0; t < tokens; t++) {
            limited(scores + t * (size_t)experts, size, groups, &of, &open,
                    &best, is_open);
            memcpy(topk_idx + t * (size_t)k, best.number,
                   (size_t)k * sizeof(*topk_idx));
        }
    else
        st = shunti_balance_no_memory(call);
    finish(&of);
    finish(&open);
    finish(&best);
    free(is_open);
    return st;
}

enum shunt_status shunt_balance_topk_grouped(const float *scores, size_t tokens,
                                             int experts, int groups, int k,
                                             int32_t *topk_idx)
{
    static const char call[] = "shunt_balance_topk_grouped";
    enum shunt_status st = check_groups(call, experts, groups, k);
    struct shunti_best best = {0};
    int size;

    if (st)
        return st;
    if (k % groups)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "%s: k is %d; it must be a multiple of %d groups",
                           call, k, groups);
    size = experts / groups;
    if (make(&best, k / groups))
        for (size_t t = 0; t < tokens; t++)
            for (int g = 0; g < groups; g++) {
                best.n = 0;
                offer_group(&best, scores + t * (size_t)experts, size, g);
                memcpy(topk_idx, best.number, best.n * sizeof(*topk_idx));
                topk_idx += best.n;
            }
    else
        st = shunti_balance_no_memory(call);
    finish(&best);
    return st;
}
