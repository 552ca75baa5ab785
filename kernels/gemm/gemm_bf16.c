// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of bf16: rounds both inputs, packs them into words of two
// neighbours in k, and cuts the product into tiles (gemm_bf16.h).
//
//     b    in panels of TILE_COLUMNS columns, each (pairs, columns); the last is
//          filled up with zeros to whole vectors
//     a    nn, nt: (rows, pairs), CHUNK rows at a time;
//          tn: in panels of TILE_ROWS rows, each (pairs, TILE_ROWS)
//
// An odd k is filled up with zeros. Packing is done for each product: of the
// same weights that is twice in a step (forward, and gradient of the input),
// and a word is packed for some hundred rows that are multiplied by it.
#include "kernels/gemm/gemm_bf16.h"

#include "kernels/elementwise.h"
#include "train/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 20 * TILE_ROWS, // rows of A that stay in the second-level cache
    DEPTH = 256,            // rows of A and B that tn packs at once; even
};

// -- the tile -----------------------------------------------------------------

static const struct bf16_tile *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
#ifdef TRAIN_TILE_AVX512
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bf16"))
        chosen = &bf16_tile_avx512;
#endif
}

const struct bf16_tile *bf16_tile(void)
{
    pthread_once(&once, choose);
    return chosen;
}

void bf16_tile_stand_in(const struct bf16_tile *tile)
{
    pthread_once(&once, choose);
    chosen = tile;
}

// -- packing ------------------------------------------------------------------

// As reserve() of gemm.c: bounded by the model's shapes.
static uint32_t *room(struct bf16_packed *packed, size_t words)
{
    if (words > packed->room) {
        free(packed->words);
        packed->room = (words + 1023) & ~(size_t)1023;
        packed->words = aligned_alloc(64, packed->room * sizeof(uint32_t));
        if (!packed->words)
            train_out_of_memory();
    }
    return packed->words;
}

void bf16_scratch_free(struct bf16_scratch *s)
{
    free(s->a.words);
    free(s->b.words);
    free(s->rows.words);
}

static size_t pairs_of(size_t k)
{
    return (k + 1) / 2;
}

// Of a panel whose first column is j of n: how many there are, and with zeros.
static size_t columns_of(size_t n, size_t j)
{
    return n - j < TILE_COLUMNS ? n - j : TILE_COLUMNS;
}

static size_t width_of(size_t columns)
{
    return (columns + TILE_LANES - 1) / TILE_LANES * TILE_LANES;
}

// The next row of k, of which an odd k lacks the last.
static const float *second(const float *x, size_t ld, size_t p, size_t k)
{
    return 2 * p + 1 < k ? x + (2 * p + 1) * ld : NULL;
}

// x (rows, k) -> words (rows, pairs)
static void pack_rows(size_t rows, size_t k, const float *x, size_t ld,
                      uint32_t *words)
{
    size_t pairs = pairs_of(k);

    for (size_t i = 0; i < rows; i++, words += pairs) {
        if (k % 2)
            words[pairs - 1] = 0;
        kernels()->to_bf16(k, x + i * ld, (uint16_t *)words);
    }
}

// b (k, n) -> panels
static uint32_t *pack_b(struct bf16_scratch *s, size_t n, size_t k,
                        const float *b, size_t ldb)
{
    size_t pairs = pairs_of(k);
    uint32_t *words = room(&s->b, pairs * width_of(n)), *to = words;

    for (size_t j = 0; j < n; j += TILE_COLUMNS) {
        size_t columns = columns_of(n, j), width = width_of(columns);
        for (size_t p = 0; p < pairs; p++, to += width) {
            kernels()->pair_bf16(columns, b + 2 * p * ldb + j,
                                 second(b + j, ldb, p, k), to);
            memset(to + columns, 0, (width - columns) * sizeof(*to));
        }
    }
    return words;
}

// b (n, k), to be transposed -> panels
static uint32_t *pack_b_turned(struct bf16_scratch *s, size_t n, size_t k,
                               const float *b, size_t ldb)
{
    size_t pairs = pairs_of(k);
    uint32_t *words = room(&s->b, pairs * width_of(n));
    uint32_t *rows = room(&s->rows, TILE_LANES * pairs);

    for (size_t j = 0; j < n; j += TILE_LANES) {
        size_t panel = j / TILE_COLUMNS * TILE_COLUMNS;
        size_t width = width_of(columns_of(n, panel));
        size_t columns = n - j < TILE_LANES ? n - j : TILE_LANES;
        uint32_t *to = words + panel * pairs + (j - panel);

        pack_rows(columns, k, b + j * ldb, ldb, rows);
        memset(rows + columns * pairs, 0,
               (TILE_LANES - columns) * pairs * sizeof(*rows));
        for (size_t p = 0; p < pairs; p++, to += width)
            for (size_t i = 0; i < TILE_LANES; i++)
                memcpy(to + i, rows + i * pairs + p, sizeof(*to));
    }
    return words;
}

// a (k, m), to be transposed -> panels of rows
static uint32_t *pack_a_turned(struct bf16_scratch *s, size_t m, size_t k,
                               const float *a, size_t lda)
{
    size_t pairs = pairs_of(k), panels = (m + TILE_ROWS - 1) / TILE_ROWS;
    uint32_t *words = room(&s->a, panels * TILE_ROWS * pairs);
    uint32_t *row = room(&s->rows, panels * TILE_ROWS);

    memset(row + m, 0, (panels * TILE_ROWS - m) * sizeof(*row));
    for (size_t p = 0; p < pairs; p++) {
        kernels()->pair_bf16(m, a + 2 * p * lda, second(a, lda, p, k), row);
        for (size_t i = 0; i < panels; i++)
            memcpy(words + (i * pairs + p) * TILE_ROWS, row + i * TILE_ROWS,
                   TILE_ROWS * sizeof(*words));
    }
    return words;
}

// -- multiplying --------------------------------------------------------------

// A tile whose last vector is not full goes by way of one that is.
static void multiply(const struct bf16_tile *tile, size_t rows, size_t columns,
                     size_t pairs, const uint32_t *a, size_t a_row,
                     size_t a_pair, const uint32_t *b, bool add, float *c,
                     size_t ldc)
{
    size_t width = width_of(columns), vectors = width / TILE_LANES;
    float full[TILE_ROWS * TILE_COLUMNS];

    if (width == columns) {
        tile->multiply(rows, vectors, pairs, a, a_row, a_pair, b, add, c, ldc);
        return;
    }
    memset(full, 0, sizeof(full));
    for (size_t i = 0; add && i < rows; i++)
        memcpy(full + i * width, c + i * ldc, columns * sizeof(*c));
    tile->multiply(rows, vectors, pairs, a, a_row, a_pair, b, add, full, width);
    for (size_t i = 0; i < rows; i++)
        memcpy(c + i * ldc, full + i * width, columns * sizeof(*c));
}

// C (m, n) [+]= rows a (m, k) times panels b
static void by_rows(const struct bf16_tile *tile, struct bf16_scratch *s,
                    size_t m, size_t n, size_t k, const float *a, size_t lda,
                    const uint32_t *b, bool add, float *c, size_t ldc)
{
    size_t pairs = pairs_of(k);
    uint32_t *words = room(&s->a, CHUNK * pairs);

    for (size_t i = 0; i < m; i += CHUNK) {
        size_t some = m - i < CHUNK ? m - i : CHUNK;
        pack_rows(some, k, a + i * lda, lda, words);
        for (size_t j = 0; j < n; j += TILE_COLUMNS)
            for (size_t r = 0; r < some; r += TILE_ROWS)
                multiply(tile, some - r < TILE_ROWS ? some - r : TILE_ROWS,
                         columns_of(n, j), pairs, words + r * pairs, pairs, 1,
                         b + j * pairs, add, c + (i + r) * ldc + j, ldc);
    }
}

void bf16_nn(const struct bf16_tile *tile, struct bf16_scratch *s, size_t m,
             size_t n, size_t k, const float *a, size_t lda, const float *b,
             size_t ldb, enum gemm_beta beta, float *c, size_t ldc)
{
    by_rows(tile, s, m, n, k, a, lda, pack_b(s, n, k, b, ldb), beta == GEMM_ADD,
            c, ldc);
}

void bf16_nt(const struct bf16_tile *tile, struct bf16_scratch *s, size_t m,
             size_t n, size_t k, const float *a, size_t lda, const float *b,
             size_t ldb, enum gemm_beta beta, float *c, size_t ldc)
{
    by_rows(tile, s, m, n, k, a, lda, pack_b_turned(s, n, k, b, ldb),
            beta == GEMM_ADD, c, ldc);
}

void bf16_tn(const struct bf16_tile *tile, struct bf16_scratch *s, size_t m,
             size_t n, size_t k, const float *a, size_t lda, const float *b,
             size_t ldb, float *c, size_t ldc)
{
    while (k > 0) {
        size_t some = k < DEPTH ? k : DEPTH, pairs = pairs_of(some);
        const uint32_t *wa = pack_a_turned(s, m, some, a, lda);
        const uint32_t *wb = pack_b(s, n, some, b, ldb);

        for (size_t j = 0; j < n; j += TILE_COLUMNS)
            for (size_t i = 0; i < m; i += TILE_ROWS)
                multiply(tile, m - i < TILE_ROWS ? m - i : TILE_ROWS,
                         columns_of(n, j), pairs, wa + i * pairs, 1, TILE_ROWS,
                         wb + j * pairs, true, c + i * ldc + j, ldc);
        a += some * lda;
        b += some * ldb;
        k -= some;
    }
}
