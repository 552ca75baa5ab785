// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products by each backend and each tile, compared with the definition
 * in f64. Sums may be off by the roundings of f32 additions. test_gemm.c checks
 * that the bits of a row do not depend on the other rows.
 */
#include "src/kernels/gemm/gemm.h"

#include <math.h>
#include <stdlib.h>

#include "src/kernels/cpu.h"
#include "src/kernels/gemm/gemm_bf16.h"
#include "tests/src/kernels/check.h"
#include "tests/src/kernels/elementwise_ref.h"
#include "tests/src/kernels/emulated_tile.h"

enum { NN, NT, TN };
enum { A, B, C };
enum { MOST = 90, BENCH = 192 };

struct product {
    size_t m, n, k, lda, ldb, ldc;
    enum shunti_gemm_beta beta;
    const float *a, *b;
    float *c;
};

/* -- variants: backends, and for bf16 also tiles --------------------------- */

static const struct shunti_gemm_backend *const backends[] = {
    &shunti_gemm_naive,
#if defined(SHUNTI_HAVE_CBLAS) || defined(TEST_GEMM_BLAS)
    &shunti_gemm_blas,
#endif
#ifdef SHUNTI_HAVE_XSMM
    &shunti_gemm_xsmm,
#endif
};
enum { BACKENDS = sizeof(backends) / sizeof(backends[0]) };

static const struct shunti_bf16_tile *const tiles[] = {
#ifdef TEST_SIMDE
    &shunti_bf16_tile_emulated,
#endif
#ifdef SHUNTI_HAVE_BF16_TILE
    &shunti_bf16_tile_avx512,
#endif
    NULL,
};
enum { TILES = sizeof(tiles) / sizeof(tiles[0]) - 1 };

static const char *tile_variant(int v)
{
    return v < TILES ? tiles[v]->name : NULL;
}

static bool tile_runs(const struct kernel *k, int v)
{
    (void)k;
#ifdef SHUNTI_HAVE_BF16_TILE
    if (tiles[v] == &shunti_bf16_tile_avx512)
        return shunti_cpu_has_bf16();
#endif
    return tiles[v] != NULL;
}

static const char *variant(int v)
{
    return v < BACKENDS ? backends[v]->name : tile_variant(v - BACKENDS);
}

static bool runs(const struct kernel *k, int v)
{
    if (v < BACKENDS)
        return backends[v]->usable();
    return k->dtype == SHUNT_BF16 && tile_runs(k, v - BACKENDS);
}

static struct shunti_gemm *gemm_of(const struct kernel *k, int v)
{
    static struct shunti_gemm *made[2][BACKENDS + TILES];
    bool bf16 = k->dtype == SHUNT_BF16;
    struct shunti_gemm **gemm = &made[bf16][v];
    enum shunt_status st = SHUNT_OK;

    if (*gemm)
        return *gemm;
    if (!bf16)
        st = shunti_gemm_create_f32(backends[v], abort, gemm);
    else if (v < BACKENDS)
        st = shunti_gemm_create_bf16(backends[v], NULL, abort, gemm);
    else
        st = shunti_gemm_create_bf16(&shunti_gemm_naive, tiles[v - BACKENDS],
                                     abort, gemm);
    if (st != SHUNT_OK)
        abort();
    return *gemm;
}

/* -- the definition -------------------------------------------------------- */

/* The value that a product uses for an input. By definition bf16 has 8
 * significant bits; rint() rounds ties to even. */
static double as_input(const struct kernel *k, float x)
{
    int exponent;
    double part = frexp((double)x, &exponent);

    return k->dtype == SHUNT_BF16 ? ldexp(rint(ldexp(part, 8)), exponent - 8)
                                  : (double)x;
}

static double term(const struct kernel *k, const struct product *p, size_t i,
                   size_t j, size_t l)
{
    float a = k->which == TN ? p->a[l * p->lda + i] : p->a[i * p->lda + l];
    float b = k->which == NT ? p->b[j * p->ldb + l] : p->b[l * p->ldb + j];

    return as_input(k, a) * as_input(k, b);
}

/* The sum is made by f32 additions in any order, of products that are rounded
 * or not. So no term takes part in more than k + 2 roundings, each of 2^-24. */
static void compare(const struct kernel *k, const struct product *p,
                    const float *before)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            size_t at = i * p->ldc + j;
            double sum = p->beta == SHUNTI_GEMM_ADD ? (double)before[at] : 0;
            double magnitude = fabs(sum);

            for (size_t l = 0; l < p->k; l++) {
                sum += term(k, p, i, j, l);
                magnitude += fabs(term(k, p, i, j, l));
            }
            expect(fabs((double)p->c[at] - sum) <=
                       ldexp((double)p->k + 2, -24) * magnitude,
                   "(%zu, %zu) of (%zu, %zu, %zu) is %.9g, not %.9g", i, j,
                   p->m, p->n, p->k, (double)p->c[at], sum);
        }
}

/* -- trials and times ------------------------------------------------------ */

static void run(const struct kernel *k, int v, const struct product *p)
{
    void (*f)(struct shunti_gemm *, size_t, size_t, size_t, const float *,
              size_t, const float *, size_t, enum shunti_gemm_beta, float *,
              size_t) = k->which == NN   ? shunti_gemm_nn
                        : k->which == NT ? shunti_gemm_nt
                                         : shunti_gemm_tn;

    f(gemm_of(k, v == REFERENCE ? 0 : v), p->m, p->n, p->k, p->a, p->lda, p->b,
      p->ldb, p->beta, p->c, p->ldc);
}

static float *matrix(struct random *r, int slot, size_t rows, size_t columns,
                     size_t ld)
{
    size_t n = rows ? (rows - 1) * ld + columns : 0;
    float *x = memory(r, slot, n * sizeof(*x), sizeof(*x));

    ordinary(r, x, n, SHUNT_F32);
    return x;
}

static void make_product(struct random *r, const struct kernel *k,
                         struct product *p)
{
    size_t a_rows = k->which == TN ? p->k : p->m;
    size_t a_columns = k->which == TN ? p->m : p->k;
    size_t b_rows = k->which == NT ? p->n : p->k;
    size_t b_columns = k->which == NT ? p->k : p->n;

    p->lda = a_columns + random_below(r, 5);
    p->ldb = b_columns + random_below(r, 5);
    p->ldc = p->n + random_below(r, 5);
    p->a = matrix(r, A, a_rows, a_columns, p->lda);
    p->b = matrix(r, B, b_rows, b_columns, p->ldb);
    p->c = matrix(r, C, p->m, p->n, p->ldc);
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    static float before[MOST * (MOST + 5)];
    struct product p = {
        .m = 1 + random_below(r, random_below(r, 4) ? 20 : MOST),
        .n = 1 + random_below(r, random_below(r, 4) ? 40 : MOST),
        .k = 1 + random_below(r, random_below(r, 4) ? 40 : MOST),
        .beta = random_below(r, 2) ? SHUNTI_GEMM_ADD : SHUNTI_GEMM_SET,
    };
    size_t all;

    make_product(r, k, &p);
    all = (p.m - 1) * p.ldc + p.n;
    if (p.beta == SHUNTI_GEMM_SET) /* the old values must have no effect */
        for (size_t i = 0; i < all; i++)
            p.c[i] = NAN;
    memcpy(before, p.c, all * sizeof(*before));
    run(k, v, &p);
    compare(k, &p, before);
    /* elements beside the matrix are unchanged */
    for (size_t i = 0; i < all; i++)
        if (i % p.ldc >= p.n)
            expect(memcmp(&p.c[i], &before[i], sizeof(*before)) == 0,
                   "wrote beside the matrix at (%zu, %zu)", i / p.ldc,
                   i % p.ldc);
    expect_guards(C);
}

static double once(const struct kernel *k, int v, bool prepare)
{
    static struct product p;

    if (prepare) {
        struct random r = {1};

        p = (struct product){.m = BENCH, .n = BENCH, .k = BENCH};
        make_product(&r, k, &p);
    }
    run(k, v, &p);
    return 2.0 * BENCH * BENCH * BENCH;
}

static const struct kernel kernels[] = {
    {"nn f32", NN, SHUNT_F32},
    {"nt f32", NT, SHUNT_F32},
    {"tn f32", TN, SHUNT_F32},
    {"nn bf16", NN, SHUNT_BF16},
    {"nt bf16", NT, SHUNT_BF16},
    {"tn bf16", TN, SHUNT_BF16},
    {.name = NULL},
};

const struct family family_gemm = {
    .name = "gemm",
    .kernels = kernels,
    .trials = 25,
    .variant = variant,
    .runs = runs,
    .trial = trial,
    .once = once,
    .flops = true,
};

/* -- how a tile rounds ------------------------------------------------------ */

enum { TO_BF16, PAIR_BF16 };

struct rounding_case {
    size_t n;
    const float *x, *y;
    void *out;
};

static bool rounding_runs(const struct kernel *k, int v)
{
    return tile_runs(k, v) && tiles[v]->to_bf16;
}

static void rounding_run(int which, int v, const struct rounding_case *c)
{
    const struct shunti_elementwise *e = &elementwise_ref;

    if (which == TO_BF16)
        (v == REFERENCE ? e->to_bf16 : tiles[v]->to_bf16)(c->n, c->x, c->out);
    else
        (v == REFERENCE ? e->pair_bf16 : tiles[v]->pair_bf16)(c->n, c->x, c->y,
                                                              c->out);
}

/* Returns the numbers of x (n), with zeros in the place of denormals. */
static const float *flushed(struct random *r, int slot, const float *x,
                            size_t n)
{
    float *to = memory(r, slot, n * sizeof(*to), sizeof(*to));

    for (size_t i = 0; i < n; i++)
        to[i] = fpclassify(x[i]) == FP_SUBNORMAL ? copysignf(0, x[i]) : x[i];
    return to;
}

static void rounding_trial(const struct kernel *k, int v, struct random *r)
{
    enum { X, Y, GOT, WANT, X_FLUSHED, Y_FLUSHED };
    size_t n = 1 + random_below(r, 200);
    bool pairs = k->which == PAIR_BF16;
    size_t element = pairs ? sizeof(uint32_t) : sizeof(uint16_t);
    float *x = memory(r, X, n * sizeof(*x), sizeof(*x));
    float *y = memory(r, Y, n * sizeof(*y), sizeof(*y));
    struct rounding_case c = {.n = n, .x = x}, ref;

    values(r, x, n, SHUNT_F32);
    values(r, y, n, SHUNT_F32);
    if (pairs && random_below(r, 4))
        c.y = y;
    ref = c;
    ref.x = flushed(r, X_FLUSHED, x, n);
    if (c.y)
        ref.y = flushed(r, Y_FLUSHED, y, n);
    c.out = memory(r, GOT, n * element, element);
    ref.out = memory(r, WANT, n * element, element);
    rounding_run(k->which, v, &c);
    rounding_run(k->which, REFERENCE, &ref);
    expect_same("output", c.out, ref.out, n, pairs ? SHUNT_U32 : SHUNT_BF16);
    expect_guards(GOT);
}

/* Rounds 64 numbers at a time, as packing a matrix does. */
static double rounding_once(const struct kernel *k, int v, bool prepare)
{
    enum { N = SHUNTI_TILE_COLUMNS, TIMES = 16 };
    static float x[N], y[N];
    static uint32_t out[N];
    struct rounding_case c = {.n = N, .x = x, .y = y, .out = out};

    if (prepare) {
        struct random r = {1};

        ordinary(&r, x, N, SHUNT_F32);
        ordinary(&r, y, N, SHUNT_F32);
    }
    for (int i = 0; i < TIMES; i++)
        rounding_run(k->which, v, &c);
    return (k->which == PAIR_BF16 ? 12.0 : 6.0) * N * TIMES;
}

static const struct kernel rounding_kernels[] = {
    {.name = "to_bf16", .which = TO_BF16},
    {.name = "pair_bf16", .which = PAIR_BF16},
    {.name = NULL},
};

const struct family family_rounding = {
    .name = "tile",
    .kernels = rounding_kernels,
    .trials = 300,
    .variant = tile_variant,
    .runs = rounding_runs,
    .trial = rounding_trial,
    .once = rounding_once,
};

/* -- a tile by itself, bit for bit ----------------------------------------- */

struct tile_case {
    size_t rows, vectors, pairs, ldc;
    size_t a_row, a_pair;
    const uint32_t *a, *b;
    bool add;
    float *c;
};

static float half_of(uint32_t word, int half)
{
    uint32_t bits = half ? word & 0xffff0000 : word << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The order in which the two products of a pair are added. */
enum order { ODD_FIRST, EVEN_FIRST, BOTH_AT_ONCE, ORDERS };

static float add_pair(float sum, uint32_t a, uint32_t b, enum order order)
{
    float even = half_of(a, 0) * half_of(b, 0); /* exact */
    float odd = half_of(a, 1) * half_of(b, 1);

    switch (order) {
    case ODD_FIRST:
        return (sum + odd) + even;
    case EVEN_FIRST:
        return (sum + even) + odd;
    default:
        return sum + (even + odd);
    }
}

/* The definition of a tile. The instruction takes denormals as zero, but the
 * inputs here have none. */
static void tile_ref(const struct tile_case *t, enum order order)
{
    for (size_t i = 0; i < t->rows; i++)
        for (size_t j = 0; j < t->vectors * SHUNTI_TILE_LANES; j++) {
            float sum = t->add ? t->c[i * t->ldc + j] : 0;

            for (size_t p = 0; p < t->pairs; p++)
                sum = add_pair(sum, t->a[i * t->a_row + p * t->a_pair],
                               t->b[p * t->vectors * SHUNTI_TILE_LANES + j],
                               order);
            t->c[i * t->ldc + j] = sum;
        }
}

static void tile_run(int v, const struct tile_case *t)
{
    if (v == REFERENCE)
        tile_ref(t, ODD_FIRST);
    else
        tiles[v]->multiply(t->rows, t->vectors, t->pairs, t->a, t->a_row,
                           t->a_pair, t->b, t->add, t->c, t->ldc);
}

/* By Intel's manual, the CPU's instruction adds the odd element first. SIMDe
 * has whatever order is best for the compiler, but the same order for all
 * sums. */
static bool emulated(int v)
{
#ifdef TEST_SIMDE
    return v != REFERENCE && tiles[v] == &shunti_bf16_tile_emulated;
#else
    (void)v;
    return false;
#endif
}

static void make_tile(struct random *r, struct tile_case *t)
{
    size_t columns = t->vectors * SHUNTI_TILE_LANES;
    size_t a_words = t->rows * t->pairs, b_words = t->pairs * columns;
    uint32_t *a = memory(r, A, a_words * sizeof(*a), sizeof(*a));
    uint32_t *b = memory(r, B, b_words * sizeof(*b), 64);

    if (random_below(r, 2)) {
        t->a_row = t->pairs;
        t->a_pair = 1;
    } else {
        t->a_row = 1;
        t->a_pair = t->rows;
    }
    ordinary(r, a, 2 * a_words, SHUNT_BF16);
    ordinary(r, b, 2 * b_words, SHUNT_BF16);
    t->a = a;
    t->b = b;
    t->ldc = columns + random_below(r, 5);
}

static void tile_trial(const struct kernel *k, int v, struct random *r)
{
    enum { WANT = C + 1 };
    struct tile_case t = {
        .rows = 1 + random_below(r, SHUNTI_TILE_ROWS),
        .vectors = 1 + random_below(r, SHUNTI_TILE_VECTORS),
        .pairs = random_below(r, 40),
        .add = random_below(r, 2),
    };
    static float before[SHUNTI_TILE_ROWS * (SHUNTI_TILE_COLUMNS + 5)];
    struct tile_case ref;
    size_t n;

    (void)k;
    make_tile(r, &t);
    n = (t.rows - 1) * t.ldc + t.vectors * SHUNTI_TILE_LANES;
    t.c = memory(r, C, n * sizeof(float), sizeof(float));
    ordinary(r, t.c, n, SHUNT_F32);
    ref = t;
    ref.c = memory(r, WANT, n * sizeof(float), sizeof(float));
    memcpy(before, t.c, n * sizeof(float));
    tile_run(v, &t);
    for (int order = ODD_FIRST; order < (emulated(v) ? ORDERS : EVEN_FIRST);
         order++) {
        memcpy(ref.c, before, n * sizeof(float));
        tile_ref(&ref, (enum order)order);
        if (memcmp(t.c, ref.c, n * sizeof(float)) == 0)
            break;
    }
    expect_same("sums", t.c, ref.c, n, SHUNT_F32);
    expect_guards(C);
}

static double tile_once(const struct kernel *k, int v, bool prepare)
{
    enum { PAIRS = 128 };
    static struct tile_case t;

    (void)k;
    if (prepare) {
        struct random r = {1};

        t = (struct tile_case){.rows = SHUNTI_TILE_ROWS,
                               .vectors = SHUNTI_TILE_VECTORS,
                               .pairs = PAIRS};
        make_tile(&r, &t);
        t.c = memory(&r, C, t.rows * t.ldc * sizeof(float), 64);
    }
    tile_run(v, &t);
    return 4.0 * SHUNTI_TILE_ROWS * SHUNTI_TILE_COLUMNS * PAIRS;
}

static const struct kernel tile_kernels[] = {{.name = "bf16"}, {.name = NULL}};

const struct family family_tile = {
    .name = "tile",
    .kernels = tile_kernels,
    .trials = 100,
    .variant = tile_variant,
    .runs = tile_runs,
    .trial = tile_trial,
    .once = tile_once,
    .flops = true,
};
