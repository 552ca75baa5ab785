// SPDX-License-Identifier: Apache-2.0
/*
 * Short sorted lists; see sort.h.
 *
 * Runs of eight keys are sorted by a network of 19 comparators (Knuth, The Art
 * of Computer Programming, volume 3, 5.3.4). Four runs are sorted at once, each
 * in one lane of vectors that every processor has. Longer lists are merged from
 * their runs.
 */
#include "moe/layout/sort.h"

#include <string.h>

typedef uint32_t lanes __attribute__((vector_size(16)));
typedef int32_t signed_lanes __attribute__((vector_size(16)));

/* Flipping this bit maps unsigned order to signed order. Every processor can
 * compare 128-bit vectors of signed numbers. */
#define FLIP ((uint32_t)1 << 31)

static inline void order(lanes *a, lanes *b)
{
    lanes more = (lanes)((signed_lanes)*a > (signed_lanes)*b);
    lanes swap = (*a ^ *b) & more;

    *a ^= swap;
    *b ^= swap;
}

/* Transpose the matrix whose rows are four vectors. */
static inline void transpose(lanes *a, lanes *b, lanes *c, lanes *d)
{
    lanes ab = __builtin_shufflevector(*a, *b, 0, 4, 1, 5);
    lanes cd = __builtin_shufflevector(*c, *d, 0, 4, 1, 5);
    lanes ab_high = __builtin_shufflevector(*a, *b, 2, 6, 3, 7);
    lanes cd_high = __builtin_shufflevector(*c, *d, 2, 6, 3, 7);

    *a = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *b = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

static inline lanes load(const uint32_t *at)
{
    lanes v;

    memcpy(&v, at, sizeof(v));
    return v ^ FLIP;
}

static inline void store(uint32_t *at, lanes v)
{
    v ^= FLIP;
    memcpy(at, &v, sizeof(v));
}

/* Sort four runs that lie one behind the other. */
static void sort_runs(uint32_t *x)
{
    lanes a = load(x), b = load(x + 8), c = load(x + 16), d = load(x + 24);
    lanes e = load(x + 4), f = load(x + 12), g = load(x + 20), h = load(x + 28);

    transpose(&a, &b, &c, &d);
    transpose(&e, &f, &g, &h);

    order(&a, &b), order(&c, &d), order(&e, &f), order(&g, &h);
    order(&a, &c), order(&b, &d), order(&e, &g), order(&f, &h);
    order(&b, &c), order(&f, &g), order(&a, &e), order(&d, &h);
    order(&b, &f), order(&c, &g);
    order(&b, &e), order(&d, &g);
    order(&c, &e), order(&d, &f);
    order(&d, &e);

    transpose(&a, &b, &c, &d);
    transpose(&e, &f, &g, &h);
    store(x, a), store(x + 8, b), store(x + 16, c), store(x + 24, d);
    store(x + 4, e), store(x + 12, f), store(x + 20, g), store(x + 28, h);
}

static void merge(const uint32_t *a, size_t na, const uint32_t *b, size_t nb,
                  uint32_t *to)
{
    while (na && nb) {
        if (*a <= *b) {
            *to++ = *a++;
            na--;
        } else {
            *to++ = *b++;
            nb--;
        }
    }
    memcpy(to, a, na * sizeof(*a));
    memcpy(to + na, b, nb * sizeof(*b));
}

/* Merge the sorted runs of a list of `n` keys. */
static void merge_runs(uint32_t *key, size_t n, uint32_t *scratch)
{
    uint32_t *from = key, *to = scratch;

    for (size_t run = SHUNTI_SORT_RUN; run < n; run *= 2) {
        uint32_t *swap = from;

        for (size_t i = 0; i < n; i += 2 * run) {
            size_t na = n - i < run ? n - i : run;
            size_t nb = n - i - na < run ? n - i - na : run;

            merge(from + i, na, from + i + na, nb, to + i);
        }
        from = to;
        to = swap;
    }
    if (from != key)
        memcpy(key, from, n * sizeof(*key));
}

void shunti_sort(uint32_t *key, size_t lists, size_t stride, uint32_t *scratch)
{
    for (size_t i = 0; i < lists * stride; i += 4 * SHUNTI_SORT_RUN)
        sort_runs(key + i);
    for (size_t i = 0; i < lists && stride > SHUNTI_SORT_RUN; i++)
        merge_runs(key + i * stride, stride, scratch);
}
