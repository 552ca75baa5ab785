// SPDX-License-Identifier: Apache-2.0
/* Routers that choose by groups of experts. */
#include <shunt/balance.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "balance/check.h"
#include "src/error.h"

/* The best k of what was offered, in descending order; of equal scores the one
 * that was offered first. */
struct best {
    int k, n;
    float *score;    /* (k) */
    int32_t *number; /* (k) */
};

static float comparable(float score)
{
    return isnan(score) ? -INFINITY : score;
}

static void offer(struct best *b, float score, int32_t number)
{
    int at;

    if (b->n == b->k && score <= b->score[b->k - 1])
        return;
    at = b->n < b->k ? b->n++ : b->k - 1;
    for (; at > 0 && b->score[at - 1] < score; at--) {
        b->score[at] = b->score[at - 1];
        b->number[at] = b->number[at - 1];
    }
    b->score[at] = score;
    b->number[at] = number;
}

static void offer_group(struct best *b, const float *scores, int size, int g)
{
    for (int e = g * size; e < (g + 1) * size; e++)
        offer(b, comparable(scores[e]), (int32_t)e);
}

static bool make(struct best *b, int k)
{
    b->k = k;
    b->score = malloc((size_t)k * sizeof(*b->score));
    b->number = malloc((size_t)k * sizeof(*b->number));
    return b->score && b->number;
}

static void finish(struct best *b)
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

static void limited(const float *scores, int size, int groups, struct best *of,
                    struct best *open, struct best *k, bool *is_open)
{
    open->n = k->n = 0;
    for (int g = 0; g < groups; g++) {
        float sum = 0;

        of->n = 0;
        offer_group(of, scores, size, g);
        for (int i = 0; i < of->n; i++)
            sum += of->score[i];
        offer(open, comparable(sum), (int32_t)g);
        is_open[g] = false;
    }
    for (int i = 0; i < open->n; i++)
        is_open[open->number[i]] = true;
    /* By number, so that of equal scores the lower one is first. */
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
    struct best of = {0}, open = {0}, best = {0};
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
            for (int i = 0; i < k; i++)
                topk_idx[t * (size_t)k + (size_t)i] = best.number[i];
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
    struct best best = {0};
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
                for (int i = 0; i < best.n; i++)
                    *topk_idx++ = best.number[i];
            }
    else
        st = shunti_balance_no_memory(call);
    finish(&best);
    return st;
}
