// SPDX-License-Identifier: Apache-2.0
/*
 * Products of a layer's experts, each of its own rows and matrix. They are
 * computed as a group, and by one BLAS call for each, and compared with one
 * product after the other. A group must have the same bits; a BLAS may add in
 * any order.
 */
#include "src/kernels/gemm/gemm.h"

#include <math.h>
#include <stdlib.h>

#if defined(SHUNTI_HAVE_CBLAS) || defined(TEST_GEMM_BLAS)
#include <cblas.h>
#define BLAS 1
#else
#define BLAS 0
#endif

#include "tests/src/kernels/check.h"

enum { GROUPED, SGEMM };
enum { A, B, GOT, WANT };
enum { MOST = 64 }; /* experts */

struct layer {
    size_t count, n, k, rows[MOST], total;
    const float *a; /* (total, k) */
    const float *b; /* (count, k, n) */
    float *c;       /* (total, n) */
};

static const char *variant(int v)
{
    return v == GROUPED ? "grouped" : v == SGEMM && BLAS ? "sgemm" : NULL;
}

static bool runs(const struct kernel *k, int v)
{
    (void)k;
    if (v == SGEMM) /* on one thread, like Shunt's kernels */
        return BLAS && shunti_gemm_blas.usable();
    return true;
}

static struct shunti_gemm *gemm(void)
{
    static struct shunti_gemm *made;

    if (!made && shunti_gemm_create(NULL, SHUNTI_GEMM_F32, abort, &made))
        abort();
    return made;
}

static void sgemm(size_t m, size_t n, size_t k, const float *a, const float *b,
                  float *c)
{
#if BLAS
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n,
                (int)k, 1.0f, a, (int)k, b, (int)n, 0.0f, c, (int)n);
#else
    (void)m, (void)n, (void)k, (void)a, (void)b, (void)c;
#endif
}

static void run(int v, const struct layer *l)
{
    struct shunti_gemm_item items[MOST];
    size_t row = 0;

    for (size_t e = 0; e < l->count; e++) {
        struct shunti_gemm_item i = {l->rows[e], l->a + row * l->k,
                                     l->b + e * l->k * l->n, l->c + row * l->n};

        items[e] = i;
        row += i.m;
        if (v == REFERENCE)
            shunti_gemm_nn(gemm(), i.m, l->n, l->k, i.a, l->k, i.b, l->n,
                           SHUNTI_GEMM_SET, i.c, l->n);
        else if (v == SGEMM && i.m > 0)
            sgemm(i.m, l->n, l->k, i.a, i.b, i.c);
    }
    if (v == GROUPED)
        shunti_gemm_grouped_nn(gemm(), items, l->count, l->n, l->k, l->k, l->n,
                               SHUNTI_GEMM_SET, l->n);
}

/* -- trials ---------------------------------------------------------------- */

static float *numbers(struct random *r, int slot, size_t count)
{
    float *x = memory(r, slot, count * sizeof(*x), sizeof(*x));

    ordinary(r, x, count, SHUNT_F32);
    return x;
}

/* Each of the two sums may be off by at most k + 2 roundings of its terms. */
static void expect_near(const struct layer *l, const float *want)
{
    size_t row = 0;

    for (size_t e = 0; e < l->count; e++)
        for (size_t i = 0; i < l->rows[e]; i++, row++)
            for (size_t j = 0; j < l->n; j++) {
                const float *b = l->b + e * l->k * l->n + j;
                double magnitude = 0, off;

                for (size_t p = 0; p < l->k; p++)
                    magnitude += fabs((double)l->a[row * l->k + p] *
                                      (double)b[p * l->n]);
                off = fabs((double)l->c[row * l->n + j] -
                           (double)want[row * l->n + j]);
                expect(off <= ldexp((double)l->k + 2, -23) * magnitude,
                       "expert %zu, row %zu, column %zu is off by %g", e, i, j,
                       off);
            }
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    struct layer l =
                     {
                         .count = random_below(r, 9),
                         .n = 1 + random_below(r, 150),
                         .k = 1 + random_below(r, 60),
                     },
                 one;

    (void)k;
    for (size_t e = 0; e < l.count; e++)
        l.total += l.rows[e] = random_below(r, 3) ? random_below(r, 40) : 0;
    l.a = numbers(r, A, l.total * l.k);
    l.b = numbers(r, B, l.count * l.k * l.n);
    l.c = numbers(r, GOT, l.total * l.n);
    one = l;
    one.c = numbers(r, WANT, l.total * l.n);
    run(v, &l);
    run(REFERENCE, &one);
    if (v == GROUPED)
        expect_same("products", l.c, one.c, l.total * l.n, SHUNT_F32);
    else
        expect_near(&l, one.c);
    expect_guards(GOT);
}

/* -- times ----------------------------------------------------------------- */

static float *fill(size_t count)
{
    struct random r = {1};
    float *x = aligned_alloc(64, count * sizeof(*x));

    if (!x)
        abort();
    ordinary(&r, x, count, SHUNT_F32);
    return x;
}

/* Multiplies 64 matrices of 2 MiB each, which is more than a cache holds.
 * `which` is the number of rows for each. If it is negative, each has a random
 * number of rows, with that mean. */
static double once(const struct kernel *k, int v, bool prepare)
{
    static struct layer l;

    if (prepare) {
        struct random r = {1};
        const size_t mean = (size_t)abs(k->which);

        free((float *)l.a);
        free((float *)l.b);
        free(l.c);
        l = (struct layer){
            .count = MOST, .n = 1024, .k = 512, .total = MOST * mean};
        for (size_t i = 0; i < l.total; i++)
            l.rows[k->which > 0 ? i / mean : random_below(&r, MOST)]++;
        l.a = fill(l.total * l.k);
        l.b = fill(l.count * l.k * l.n);
        l.c = fill(l.total * l.n);
    }
    run(v, &l);
    return 2.0 * (double)(l.total * l.n * l.k);
}

static const struct kernel kernels[] = {
    {"4 rows", 4, SHUNT_F32},          {"16 rows", 16, SHUNT_F32},
    {"about 16 rows", -16, SHUNT_F32}, {"64 rows", 64, SHUNT_F32},
    {"256 rows", 256, SHUNT_F32},      {.name = NULL},
};

const struct family family_experts = {
    .name = "experts",
    .kernels = kernels,
    .trials = 20,
    .variant = variant,
    .runs = runs,
    .trial = trial,
    .once = once,
    .flops = true,
};
