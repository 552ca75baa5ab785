// SPDX-License-Identifier: Apache-2.0
/*
 * The k largest of some scores, compared with a plain search for each of them
 * among all that remain. The plain search is timed as well.
 */
#include "src/kernels/best.h"

#include <math.h>
#include <stdlib.h>

#include "tests/src/kernels/check.h"

enum { SCORES, BIAS, SCORE, NUMBER };
enum { MOST = 300, BENCH_ROWS = 512 };

struct offers {
    /* the scores are offered in two parts, of which the first has `cut` */
    size_t n, k, cut;
    const float *scores, *bias;
    float *score;
    int32_t *number;
};

static float score_of(const struct offers *o, size_t i)
{
    const float s = o->bias ? o->scores[i] + o->bias[i] : o->scores[i];

    return isnan(s) ? -INFINITY : s;
}

static size_t by_looking(const struct offers *o)
{
    const size_t found = o->k < o->n ? o->k : o->n;

    for (size_t j = 0; j < found; j++) {
        size_t best = o->n;

        for (size_t i = 0; i < o->n; i++) {
            bool taken = false;

            for (size_t t = 0; t < j; t++)
                taken |= o->number[t] == (int32_t)i + 7;
            if (!taken && (best == o->n || score_of(o, i) > score_of(o, best)))
                best = i;
        }
        o->score[j] = score_of(o, best);
        o->number[j] = (int32_t)best + 7;
    }
    return found;
}

static size_t run(int v, const struct offers *o)
{
    struct shunti_best best = {o->k, 0, o->score, o->number};

    if (v == REFERENCE)
        return by_looking(o);
    shunti_best_sets[v]->offer(&best, o->cut, o->scores, o->bias, 7);
    shunti_best_sets[v]->offer(&best, o->n - o->cut, o->scores + o->cut,
                               o->bias ? o->bias + o->cut : NULL,
                               7 + (int32_t)o->cut);
    return best.n;
}

/* Returns random scores. In half of the cases there are few values, so many are
 * equal. */
static float *numbers(struct random *r, int slot, size_t n)
{
    const bool few = random_below(r, 2);
    float *x = memory(r, slot, n * sizeof(*x), sizeof(*x));

    values(r, x, n, SHUNT_F32);
    for (size_t i = 0; few && i < n; i++)
        if (random_below(r, 9))
            x[i] = (float)random_below(r, 12) / 4 - 1;
    return x;
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    struct offers o = {.n = random_below(r, MOST), .k = 1 + random_below(r, 9)};
    float score[MOST];
    int32_t number[MOST];
    size_t found;

    (void)k;
    if (random_below(r, 8) == 0)
        o.k = 1 + random_below(r, MOST);
    o.cut = random_below(r, o.n + 1);
    o.scores = numbers(r, SCORES, o.n);
    o.bias = random_below(r, 2) ? numbers(r, BIAS, o.n) : NULL;
    o.score = score;
    o.number = number;
    found = run(REFERENCE, &o);
    o.score = memory(r, SCORE, o.k * sizeof(*score), sizeof(*score));
    o.number = memory(r, NUMBER, o.k * sizeof(*number), sizeof(*number));
    expect(run(v, &o) == found, "%zu of %zu are the %zu best", found, o.n, o.k);
    for (size_t j = 0; j < found; j++)
        expect(o.number[j] == number[j] && o.score[j] == score[j],
               "number %zu of the %zu best of %zu is %d, %g, not %d, %g", j,
               o.k, o.n, o.number[j], (double)o.score[j], number[j],
               (double)score[j]);
    expect_guards(SCORE);
    expect_guards(NUMBER);
}

/* `which` is 1000 n + k. Each call has many rows, because the CPU's branch
 * prediction would learn a few. */
static double once(const struct kernel *k, int v, bool prepare)
{
    static float *scores;
    const size_t n = (size_t)k->which / 1000;
    float score[MOST];
    int32_t number[MOST];
    struct offers o = {.n = n,
                       .cut = n,
                       .k = (size_t)k->which % 1000,
                       .score = score,
                       .number = number};

    if (prepare) {
        struct random r = {1};

        free(scores);
        scores = malloc(BENCH_ROWS * n * sizeof(*scores));
        if (!scores)
            abort();
        ordinary(&r, scores, BENCH_ROWS * n, SHUNT_F32);
    }
    for (size_t i = 0; i < BENCH_ROWS; i++) {
        o.scores = scores + i * n;
        run(v, &o);
    }
    return (double)(BENCH_ROWS * n * sizeof(*scores));
}

static const struct kernel kernels[] = {
    {.name = "2 of 64", .which = 64002},
    {.name = "8 of 64", .which = 64008},
    {.name = "2 of 128", .which = 128002},
    {.name = "8 of 128", .which = 128008},
    {.name = "2 of 256", .which = 256002},
    {.name = "8 of 256", .which = 256008},
    {.name = NULL},
};

const struct family family_best = {
    .name = "best",
    .kernels = kernels,
    .trials = 300,
    .variant = isa_variant,
    .trial = trial,
    .once = once,
};
