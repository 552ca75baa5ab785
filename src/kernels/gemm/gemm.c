// SPDX-License-Identifier: Apache-2.0
/*
 * Splits matrix products into the fixed blocks that a backend computes; gemm.h
 * says why. Incomplete blocks are filled with zeros in scratch memory. For bf16
 * this file rounds the inputs, unless there is a tile that does everything.
 */
#include "src/kernels/gemm/gemm.h"

#include "src/kernels/elementwise.h"
#include "src/kernels/gemm/gemm_bf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* tn sums rows in blocks of these heights. The highest block that fits is next.
 * C is read and written once for each block. */
static const size_t heights[] = {256, 64, 16};
enum { LOWEST = 16 };

/* Rows that are rounded in one step: a multiple of every block, and of
 * heights[0]. */
enum { ROUNDED = 256 };

/* Up to this many rows, in nt, transposing B costs more than transposing A and
 * C. */
enum { FEW = 128 };

/* Rows of B that are a multiple of ALIAS floats apart fall into the same set of
 * a first-level cache, which holds only a few lines. So such rows are copied,
 * with SKEW more floats between them. */
enum { ALIAS = 1024, SKEW = 16 };

struct shunti_gemm {
    const struct shunti_gemm_backend *backend;
    enum shunti_gemm_compute compute;
    const struct shunti_bf16_tile *tile; /* NULL: the backend multiplies */
    struct shunti_bf16_scratch packed;   /* scratch memory of the tile */
    double flops;
    void (*no_memory)(void);

    float *scratch; /* one block of A and of C, or of A and B */
    size_t scratch_floats;
    float *turned; /* B transposed */
    size_t turned_floats;
    float *rounded_a, *rounded_b;
    size_t rounded_a_floats, rounded_b_floats;
};

static const struct shunti_gemm_backend *const backends[] = {
#ifdef SHUNTI_HAVE_XSMM
    &shunti_gemm_xsmm,
#endif
#ifdef SHUNTI_HAVE_CBLAS
    &shunti_gemm_blas,
#endif
    &shunti_gemm_naive,
};

static enum shunt_status create(const struct shunti_gemm_backend *backend,
                                enum shunti_gemm_compute compute,
                                const struct shunti_bf16_tile *tile,
                                void (*no_memory)(void),
                                struct shunti_gemm **gemm)
{
    *gemm = calloc(1, sizeof(**gemm));
    if (!*gemm)
        return SHUNT_ERR_MEMORY;
    (*gemm)->backend = backend;
    (*gemm)->compute = compute;
    (*gemm)->tile = tile;
    (*gemm)->no_memory = no_memory;
    (*gemm)->packed.no_memory = no_memory;
    return SHUNT_OK;
}

enum shunt_status shunti_gemm_create(const char *backend,
                                     enum shunti_gemm_compute compute,
                                     void (*no_memory)(void),
                                     struct shunti_gemm **gemm)
{
    bool tile = compute == SHUNTI_GEMM_BF16 && !backend;
    size_t n = sizeof(backends) / sizeof(backends[0]);

    for (size_t i = 0; i < n; i++) {
        if (backend && strcmp(backend, backends[i]->name) != 0)
            continue;
        if (backends[i]->usable())
            return create(backends[i], compute,
                          tile ? shunti_bf16_tile() : NULL, no_memory, gemm);
        if (backend)
            return SHUNT_ERR_UNSUPPORTED;
    }
    return SHUNT_ERR_INVALID;
}

const char *shunti_gemm_default(void)
{
    return backends[0]->name;
}

enum shunt_status
shunti_gemm_create_f32(const struct shunti_gemm_backend *backend,
                       void (*no_memory)(void), struct shunti_gemm **gemm)
{
    return create(backend, SHUNTI_GEMM_F32, NULL, no_memory, gemm);
}

enum shunt_status
shunti_gemm_create_bf16(const struct shunti_gemm_backend *backend,
                        const struct shunti_bf16_tile *tile,
                        void (*no_memory)(void), struct shunti_gemm **gemm)
{
    return create(backend, SHUNTI_GEMM_BF16, tile, no_memory, gemm);
}

void shunti_gemm_destroy(struct shunti_gemm *gemm)
{
    if (!gemm)
        return;
    shunti_bf16_scratch_free(&gemm->packed);
    free(gemm->scratch);
    free(gemm->turned);
    free(gemm->rounded_a);
    free(gemm->rounded_b);
    free(gemm);
}

const char *shunti_gemm_name(const struct shunti_gemm *gemm)
{
    return gemm->tile ? gemm->tile->name : gemm->backend->name;
}

const struct shunti_bf16_tile *shunti_gemm_tile(const struct shunti_gemm *gemm)
{
    return gemm->tile;
}

void shunti_gemm_describe(const struct shunti_gemm *gemm, char *to, size_t room)
{
    snprintf(to, room, "%s%s", shunti_gemm_name(gemm),
             gemm->tile                          ? ", in bf16"
             : gemm->compute == SHUNTI_GEMM_BF16 ? ", of inputs rounded to bf16"
                                                 : "");
}

double shunti_gemm_flops(const struct shunti_gemm *gemm)
{
    return gemm->flops;
}

/* Memory that grows to the largest product seen. */
static float *reserve(struct shunti_gemm *g, float **memory, size_t *have,
                      size_t floats)
{
    if (floats > *have) {
        free(*memory);
        *have = (floats + 1023) & ~(size_t)1023;
        *memory = aligned_alloc(64, *have * sizeof(float));
        if (!*memory)
            g->no_memory();
    }
    return *memory;
}

static void copy_rows(size_t rows, size_t n, const float *a, size_t lda,
                      float *b, size_t ldb)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(b + i * ldb, a + i * lda, n * sizeof(float));
}

static void nn(struct shunti_gemm *g, size_t m, size_t n, size_t k,
               const float *a, size_t lda, const float *b, size_t ldb,
               const float *next, enum shunti_gemm_beta beta, float *c,
               size_t ldc)
{
    size_t block = g->backend->block(n);
    size_t whole = m - m % block, rest = m % block;

    if (whole)
        g->backend->nn(whole, n, k, a, lda, b, ldb, rest ? NULL : next, beta, c,
                       ldc);
    if (!rest)
        return;
    a += whole * lda;
    c += whole * ldc;
    float *ta = reserve(g, &g->scratch, &g->scratch_floats, block * (k + n));
    float *tc = ta + block * k;
    copy_rows(rest, k, a, lda, ta, k);
    memset(ta + rest * k, 0, (block - rest) * k * sizeof(float));
    if (beta == SHUNTI_GEMM_ADD) {
        copy_rows(rest, n, c, ldc, tc, n);
        memset(tc + rest * n, 0, (block - rest) * n * sizeof(float));
    }
    g->backend->nn(block, n, k, ta, k, b, ldb, next, beta, tc, n);
    copy_rows(rest, n, tc, n, c, ldc);
}

/* Transpose rows into the first columns of a (n, block) matrix. Clears the
 * rest. */
static void turn_in(size_t rows, size_t block, size_t n, const float *a,
                    size_t lda, float *to)
{
    if (rows < block)
        memset(to, 0, n * block * sizeof(float));
    shunti_elementwise()->transpose(rows, n, a, lda, to, block);
}

/* nt for few rows: transposes A and C, instead of all of B. */
static void nt_few(struct shunti_gemm *g, size_t m, size_t n, size_t k,
                   const float *a, size_t lda, const float *b, size_t ldb,
                   enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    const struct shunti_gemm_backend *by = g->backend;
    const size_t block = by->nt_rows, most = 2 * by->nt_columns;
    const size_t blocks = (m + block - 1) / block;
    const bool copied = ldb % ALIAS == 0;
    float *ta = reserve(g, &g->scratch, &g->scratch_floats,
                        blocks * block * k + most * block + most * (k + SKEW));
    float *tc = ta + blocks * block * k, *some = tc + most * block;
    size_t columns;

    for (size_t i = 0; i < m; i += block)
        turn_in(m - i < block ? m - i : block, block, k, a + i * lda, lda,
                ta + i * k);
    for (size_t j = 0; j < n; j += columns, b += columns * ldb) {
        columns = n - j < most ? n - j : by->nt_columns;
        if (copied)
            copy_rows(columns, k, b, ldb, some, k + SKEW);
        for (size_t i = 0; i < m; i += block) {
            const size_t rows = m - i < block ? m - i : block;
            float *to = c + i * ldc + j;

            if (beta == SHUNTI_GEMM_ADD)
                turn_in(rows, block, columns, to, ldc, tc);
            by->nt(columns, k, ta + i * k, copied ? some : b,
                   copied ? k + SKEW : ldb, beta, tc);
            shunti_elementwise()->transpose(columns, rows, tc, block, to, ldc);
        }
    }
}

static void clear(size_t m, size_t n, float *c, size_t ldc)
{
    for (size_t i = 0; i < m; i++)
        memset(c + i * ldc, 0, n * sizeof(float));
}

/* C (m, n) += A (k, m)^T B (k, n) */
static void tn(struct shunti_gemm *g, size_t m, size_t n, size_t k,
               const float *a, size_t lda, const float *b, size_t ldb, float *c,
               size_t ldc)
{
    for (size_t i = 0; i < sizeof(heights) / sizeof(heights[0]); i++) {
        for (; k >= heights[i]; k -= heights[i]) {
            g->backend->tn(m, n, heights[i], a, lda, b, ldb, c, ldc);
            a += heights[i] * lda;
            b += heights[i] * ldb;
        }
    }
    if (k) {
        float *ta =
            reserve(g, &g->scratch, &g->scratch_floats, LOWEST * (m + n));
        float *tb = ta + LOWEST * m;
        copy_rows(k, m, a, lda, ta, m);
        memset(ta + k * m, 0, (LOWEST - k) * m * sizeof(float));
        copy_rows(k, n, b, ldb, tb, n);
        memset(tb + k * n, 0, (LOWEST - k) * n * sizeof(float));
        g->backend->tn(m, n, LOWEST, ta, m, tb, n, c, ldc);
    }
}

/* -- bf16 by rounding ------------------------------------------------------ */

static float *round_rows(struct shunti_gemm *g, float **memory, size_t *have,
                         size_t rows, size_t n, const float *x, size_t ld)
{
    float *y = reserve(g, memory, have, rows * n);

    for (size_t i = 0; i < rows; i++)
        shunti_elementwise()->round_bf16(n, x + i * ld, y + i * n);
    return y;
}

static float *round_a(struct shunti_gemm *g, size_t rows, size_t n,
                      const float *a, size_t lda)
{
    return round_rows(g, &g->rounded_a, &g->rounded_a_floats, rows, n, a, lda);
}

static float *round_b(struct shunti_gemm *g, size_t rows, size_t n,
                      const float *b, size_t ldb)
{
    return round_rows(g, &g->rounded_b, &g->rounded_b_floats, rows, n, b, ldb);
}

static void rounded_nn(struct shunti_gemm *g, size_t m, size_t n, size_t k,
                       const float *a, size_t lda, const float *b, size_t ldb,
                       enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    const float *rb = round_b(g, k, n, b, ldb);

    for (size_t i = 0; i < m; i += ROUNDED) {
        size_t some = m - i < ROUNDED ? m - i : ROUNDED;
        nn(g, some, n, k, round_a(g, some, k, a + i * lda, lda), k, rb, n, NULL,
           beta, c + i * ldc, ldc);
    }
}

static void rounded_tn(struct shunti_gemm *g, size_t m, size_t n, size_t k,
                       const float *a, size_t lda, const float *b, size_t ldb,
                       float *c, size_t ldc)
{
    for (size_t i = 0; i < k; i += ROUNDED) {
        size_t some = k - i < ROUNDED ? k - i : ROUNDED;
        tn(g, m, n, some, round_a(g, some, m, a + i * lda, lda), m,
           round_b(g, some, n, b + i * ldb, ldb), n, c, ldc);
    }
}

/* -- the interface --------------------------------------------------------- */

static void count(struct shunti_gemm *g, size_t m, size_t n, size_t k)
{
    g->flops += 2.0 * (double)m * (double)n * (double)k;
}

/* turned: B (n, k) must be transposed. next: as for a backend. */
static void by_rows(struct shunti_gemm *g, bool turned, size_t m, size_t n,
                    size_t k, const float *a, size_t lda, const float *b,
                    size_t ldb, const float *next, enum shunti_gemm_beta beta,
                    float *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    count(g, m, n, k);
    if (g->tile) {
        shunti_bf16_by_rows(g->tile, &g->packed, turned, m, n, k, a, lda, b,
                            ldb, next, beta, c, ldc);
        return;
    }
    if (turned && g->compute == SHUNTI_GEMM_F32 && g->backend->nt && m <= FEW &&
        n >= g->backend->nt_columns && k > 0) {
        nt_few(g, m, n, k, a, lda, b, ldb, beta, c, ldc);
        return;
    }
    if (turned) {
        float *bt = reserve(g, &g->turned, &g->turned_floats, k * n);

        shunti_elementwise()->transpose(n, k, b, ldb, bt, n);
        b = bt;
        ldb = n;
        next = NULL;
    }
    if (g->compute == SHUNTI_GEMM_BF16)
        rounded_nn(g, m, n, k, a, lda, b, ldb, beta, c, ldc);
    else
        nn(g, m, n, k, a, lda, b, ldb, next, beta, c, ldc);
}

void shunti_gemm_nn(struct shunti_gemm *g, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    by_rows(g, false, m, n, k, a, lda, b, ldb, NULL, beta, c, ldc);
}

void shunti_gemm_grouped_nn(struct shunti_gemm *g,
                            const struct shunti_gemm_item *items, size_t count,
                            size_t n, size_t k, size_t lda, size_t ldb,
                            enum shunti_gemm_beta beta, size_t ldc)
{
    const struct shunti_gemm_item *end = items + count, *next;

    for (const struct shunti_gemm_item *i = items; i < end; i = next) {
        for (next = i + 1; next < end && next->m == 0; next++)
            ;
        by_rows(g, false, i->m, n, k, i->a, lda, i->b, ldb,
                next < end ? next->b : NULL, beta, i->c, ldc);
    }
}

void shunti_gemm_nt(struct shunti_gemm *g, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    by_rows(g, true, m, n, k, a, lda, b, ldb, NULL, beta, c, ldc);
}

void shunti_gemm_tn(struct shunti_gemm *g, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    count(g, m, n, k);
    if (beta == SHUNTI_GEMM_SET)
        clear(m, n, c, ldc);
    if (g->tile)
        shunti_bf16_tn(g->tile, &g->packed, m, n, k, a, lda, b, ldb, c, ldc);
    else if (g->compute == SHUNTI_GEMM_BF16)
        rounded_tn(g, m, n, k, a, lda, b, ldb, c, ldc);
    else
        tn(g, m, n, k, a, lda, b, ldb, c, ldc);
}
