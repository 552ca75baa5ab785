// SPDX-License-Identifier: Apache-2.0
/*
 * The k best numbers; see best.h. Vectors discard the numbers that cannot be
 * among the best, and the rest are inserted one by one. There are two bounds.
 * One is the k-th best so far. The other is used if there are many numbers:
 * split them into sixteen parts, one for each lane; the bound is the k-th
 * largest of the maxima of the parts. At least k numbers are as large as this
 * bound. Of 256 numbers in random order, the second bound leaves about 10 for k
 * = 8, and the first one leaves 36. The second one is also known before the
 * first number is inserted.
 */
#include "src/kernels/best.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LANES = 16, MANY = 4 * LANES };

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t choices __attribute__((vector_size(4 * LANES)));
typedef int32_t half __attribute__((vector_size(2 * LANES)));
typedef int32_t quarter __attribute__((vector_size(LANES)));

/* All such functions are inlined, so no vector is passed as an argument. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE __attribute__((always_inline)) static inline

INLINE lanes load(const float *x)
{
    lanes v;

    memcpy(&v, x, sizeof(v));
    return v;
}

/* One bit for each lane of a comparison's result. */
INLINE unsigned bits_of(const choices *result)
{
    static const choices bit = {
        1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
        1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
    const choices larger = *result & bit;
    half h[2], a;
    quarter q[2], b;
    int32_t x[4];

    memcpy(h, &larger, sizeof(h));
    a = h[0] | h[1];
    memcpy(q, &a, sizeof(q));
    b = q[0] | q[1];
    memcpy(x, &b, sizeof(x));
    return (unsigned)(x[0] | x[1] | x[2] | x[3]);
}

static inline void insert(struct shunti_best *b, float score, int32_t number)
{
    size_t at = b->n < b->k ? b->n++ : b->k - 1;

    for (; at > 0 && b->score[at - 1] < score; at--) {
        b->score[at] = b->score[at - 1];
        b->number[at] = b->number[at - 1];
    }
    b->score[at] = score;
    b->number[at] = number;
}

static inline void offer_one(struct shunti_best *b, float score, int32_t number)
{
    if (isnan(score))
        score = -INFINITY;
    if (b->n < b->k || score > b->score[b->k - 1])
        insert(b, score, number);
}

INLINE lanes sums_of(const float *scores, const float *bias, size_t i)
{
    return bias ? load(scores + i) + load(bias + i) : load(scores + i);
}

/* A bound: no number below it is among the k best of n. k is at most LANES.
 * -infinity if there are fewer than k numbers. */
INLINE float bound(size_t k, size_t n, const float *scores, const float *bias)
{
    lanes most = (lanes){0} - INFINITY;
    choices larger = {0};
    float m[LANES], least = INFINITY;
    int32_t above[LANES];

    for (size_t i = 0; i + LANES <= n; i += LANES) {
        const lanes v = sums_of(scores, bias, i);
        const choices more = v > most;

        most = (lanes)((more & (choices)v) | (~more & (choices)most));
    }
    memcpy(m, &most, sizeof(m));
    for (int j = 0; j < LANES; j++)
        larger -= m[j] + (lanes){0} > most;
    memcpy(above, &larger, sizeof(above));
    for (int j = 0; j < LANES; j++)
        least = (size_t)above[j] < k && m[j] < least ? m[j] : least;
    return least;
}

static void offer(struct shunti_best *b, size_t n, const float *scores,
                  const float *bias, int32_t first)
{
    const bool many = n >= MANY && b->k <= LANES;
    const float least = many ? bound(b->k, n, scores, bias) : -INFINITY;
    size_t i = 0;

    /* Without a bound, the first k numbers are all among the best. */
    for (; !(least > -INFINITY) && i < n && b->n < b->k; i++)
        offer_one(b, bias ? scores[i] + bias[i] : scores[i],
                  first + (int32_t)i);
    for (; i + LANES <= n; i += LANES) {
        const lanes v = sums_of(scores, bias, i);
        const float last = b->n < b->k ? -INFINITY : b->score[b->k - 1];
        float score[LANES];
        const choices result =
            (v >= least + (lanes){0}) & (v > last + (lanes){0});
        unsigned better = bits_of(&result);

        if (!better)
            continue;
        memcpy(score, &v, sizeof(score));
        for (; better; better &= better - 1) {
            const int j = __builtin_ctz(better);

            offer_one(b, score[j], first + (int32_t)i + j);
        }
    }
    for (; i < n; i++)
        offer_one(b, bias ? scores[i] + bias[i] : scores[i],
                  first + (int32_t)i);
}

const struct shunti_best_set KERNEL_TABLE = {.offer = offer};
