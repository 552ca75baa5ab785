// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products of bf16: rounds both inputs, packs them into words of two
 * neighbors in k, and cuts the product into tiles (gemm_bf16.h).
 *
 *     b    in panels of SHUNTI_TILE_COLUMNS columns, each (pairs, columns); the
 *          last is filled up with zeros to whole vectors
 *     a    nn, nt: (rows, pairs), CHUNK rows at a time;
 *          tn: in panels of SHUNTI_TILE_ROWS rows, each (pairs, rows)
 *
 * An odd k is filled up with zeros. Packing is done for each product. The same
 * weights are packed twice in a step: forward, and for the gradient of the
 * input. The costs are small, since some hundred rows are multiplied by each
 * word.
 */
#include "src/kernels/gemm/gemm_bf16.h"

#include "src/kernels/elementwise.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK =
        20 *
        SHUNTI_TILE_ROWS, /* rows of A that stay in the second-level cache */
    DEPTH = 128,          /* rows of A and B that tn packs at once; even */
};

/* -- the tile -------------------------------------------------------------- */

static const struct shunti_bf16_tile *stand_in;
static bool stands_in;

const struct shunti_bf16_tile *shunti_bf16_tile(void)
{
    if (stands_in)
        return stand_in;
#ifdef SHUNTI_HAVE_BF16_TILE
    if (shunti_cpu_has_bf16())
        return &shunti_bf16_tile_avx512;
#endif
    return NULL;
}

void shunti_bf16_tile_stand_in(const struct shunti_bf16_tile *tile)
{
    stand_in = tile;
    stands_in = true;
}

/* -- packing --------------------------------------------------------------- */

/* Convert with the tile's instruction, if it has one. */
static void to_bf16(const struct shunti_bf16_tile *tile, size_t n,
                    const float *x, uint16_t *y)
{
    if (tile->to_bf16)
        tile->to_bf16(n, x, y);
    else
        shunti_elementwise()->to_bf16(n, x, y);
}

static void pair_bf16(const struct shunti_bf16_tile *tile, size_t n,
                      const float *x, const float *y, uint32_t *pairs)
{
    if (tile->pair_bf16)
        tile->pair_bf16(n, x, y, pairs);
    else
        shunti_elementwise()->pair_bf16(n, x, y, pairs);
}

/* As reserve() of gemm.c. */
static uint32_t *room(struct shunti_bf16_scratch *s,
                      struct shunti_bf16_packed *packed, size_t words)
{
    if (words > packed->room) {
        free(packed->words);
        packed->room = (words + 1023) & ~(size_t)1023;
        packed->words = aligned_alloc(64, packed->room * sizeof(uint32_t));
        if (!packed->words)
            s->no_memory();
    }
    return packed->words;
}

void shunti_bf16_scratch_free(struct shunti_bf16_scratch *s)
{
    free(s->a.words);
    free(s->b.words);
    free(s->rows.words);
}

static size_t pairs_of(size_t k)
{
    return (k + 1) / 2;
}

/* Columns of the panel whose first column is j of n: without the zeros that
 * fill it up, and with them. */
static size_t columns_of(size_t n, size_t j)
{
    return n - j < SHUNTI_TILE_COLUMNS ? n - j : SHUNTI_TILE_COLUMNS;
}

static size_t width_of(size_t columns)
{
    return (columns + SHUNTI_TILE_LANES - 1) / SHUNTI_TILE_LANES *
           SHUNTI_TILE_LANES;
}

/* The second row of pair p, or NULL if an odd k ends before it. */
static const float *second(const float *x, size_t ld, size_t p, size_t k)
{
    return 2 * p + 1 < k ? x + (2 * p + 1) * ld : NULL;
}

/* x (rows, k) -> words (rows, pairs) */
static void pack_rows(const struct shunti_bf16_tile *tile, size_t rows,
                      size_t k, const float *x, size_t ld, uint32_t *words)
{
    size_t pairs = pairs_of(k);

    for (size_t i = 0; i < rows; i++, words += pairs) {
        if (k % 2)
            words[pairs - 1] = 0;
        to_bf16(tile, k, x + i * ld, (uint16_t *)words);
    }
}

/* b (k, n) -> panels */
static uint32_t *pack_b(const struct shunti_bf16_tile *tile,
                        struct shunti_bf16_scratch *s, size_t n, size_t k,
                        const float *b, size_t ldb)
{
    size_t pairs = pairs_of(k);
    uint32_t *words = room(s, &s->b, pairs * width_of(n));

    for (size_t p = 0; p < pairs; p++) {
        for (size_t j = 0; j < n; j += SHUNTI_TILE_COLUMNS) {
            size_t columns = columns_of(n, j), width = width_of(columns);
            uint32_t *to = words + j * pairs + p * width;
            pair_bf16(tile, columns, b + 2 * p * ldb + j,
                      second(b + j, ldb, p, k), to);
            if (width > columns)
                memset(to + columns, 0, (width - columns) * sizeof(*to));
        }
    }
    return words;
}

/* b (n, k), to be transposed -> panels */
static uint32_t *pack_b_turned(const struct shunti_bf16_tile *tile,
                               struct shunti_bf16_scratch *s, size_t n,
                               size_t k, const float *b, size_t ldb)
{
    size_t pairs = pairs_of(k);
    uint32_t *words = room(s, &s->b, pairs * width_of(n));
    uint32_t *rows = room(s, &s->rows, SHUNTI_TILE_LANES * pairs);

    for (size_t j = 0; j < n; j += SHUNTI_TILE_LANES) {
        size_t panel = j / SHUNTI_TILE_COLUMNS * SHUNTI_TILE_COLUMNS;
        size_t width = width_of(columns_of(n, panel));
        size_t columns = n - j < SHUNTI_TILE_LANES ? n - j : SHUNTI_TILE_LANES;
        uint32_t *to = words + panel * pairs + (j - panel);

        pack_rows(tile, columns, k, b + j * ldb, ldb, rows);
        memset(rows + columns * pairs, 0,
               (SHUNTI_TILE_LANES - columns) * pairs * sizeof(*rows));
        for (size_t p = 0; p < pairs; p++, to += width)
            for (size_t i = 0; i < SHUNTI_TILE_LANES; i++)
                memcpy(to + i, rows + i * pairs + p, sizeof(*to));
    }
    return words;
}

/* Distance from one panel of a to the next, in words. The distance is a cache
 * line more than a panel. Otherwise the words of one pair, in all panels, would
 * fall into the same few sets of a cache. */
static size_t a_stride(size_t pairs)
{
    return pairs * SHUNTI_TILE_ROWS + SHUNTI_TILE_LANES;
}

/* a (k, m), to be transposed -> panels of rows */
static uint32_t *pack_a_turned(const struct shunti_bf16_tile *tile,
                               struct shunti_bf16_scratch *s, size_t m,
                               size_t k, const float *a, size_t lda)
{
    size_t pairs = pairs_of(k),
           panels = (m + SHUNTI_TILE_ROWS - 1) / SHUNTI_TILE_ROWS;
    uint32_t *words = room(s, &s->a, panels * a_stride(pairs));
    uint32_t *row = room(s, &s->rows, panels * SHUNTI_TILE_ROWS);

    memset(row + m, 0, (panels * SHUNTI_TILE_ROWS - m) * sizeof(*row));
    for (size_t p = 0; p < pairs; p++) {
        pair_bf16(tile, m, a + 2 * p * lda, second(a, lda, p, k), row);
        for (size_t i = 0; i < panels; i++)
            memcpy(words + i * a_stride(pairs) + p * SHUNTI_TILE_ROWS,
                   row + i * SHUNTI_TILE_ROWS,
                   SHUNTI_TILE_ROWS * sizeof(*words));
    }
    return words;
}

/* -- multiplying ----------------------------------------------------------- */

/* Multiply a tile. If the last vector of columns is not full, compute into a
 * buffer of full vectors, and copy the result. */
static void multiply(const struct shunti_bf16_tile *tile, size_t rows,
                     size_t columns, size_t pairs, const uint32_t *a,
                     size_t a_row, size_t a_pair, const uint32_t *b, bool add,
                     float *c, size_t ldc)
{
    size_t width = width_of(columns), vectors = width / SHUNTI_TILE_LANES;
    float full[SHUNTI_TILE_ROWS * SHUNTI_TILE_COLUMNS];

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

/* The rows of a (rows, m) and b (rows, n) that are packed next. A part of them
 * is prefetched with each tile, so that they arrive while tiles are
 * multiplied. */
struct ahead {
    const float *a, *b;
    size_t lda, ldb;
    size_t of_a, of_b; /* cache lines of a row of a, and of b */
    size_t rows, line; /* rows left to fetch; next line to fetch of the first of
                          them */
    size_t each;       /* lines to fetch with each tile */
};

static size_t lines_of(size_t n)
{
    return (n + SHUNTI_TILE_LANES - 1) / SHUNTI_TILE_LANES;
}

static struct ahead look_ahead(size_t tiles, size_t rows, size_t m,
                               const float *a, size_t lda, size_t n,
                               const float *b, size_t ldb)
{
    const size_t of_a = lines_of(m), of_b = lines_of(n);

    return (struct ahead){.a = a,
                          .b = b,
                          .lda = lda,
                          .ldb = ldb,
                          .of_a = of_a,
                          .of_b = of_b,
                          .rows = of_a + of_b ? rows : 0,
                          .each = rows * (of_a + of_b) / tiles + 1};
}

static void fetch_some(struct ahead *h)
{
    for (size_t i = 0; i < h->each && h->rows > 0; i++) {
        __builtin_prefetch(h->line < h->of_a
                               ? h->a + h->line * SHUNTI_TILE_LANES
                               : h->b + (h->line - h->of_a) * SHUNTI_TILE_LANES,
                           0, 2);
        if (++h->line == h->of_a + h->of_b) {
            h->line = 0;
            h->rows--;
            h->a += h->lda;
            h->b += h->ldb;
        }
    }
}

static size_t tiles_of(size_t m, size_t n)
{
    return (m + SHUNTI_TILE_ROWS - 1) / SHUNTI_TILE_ROWS *
           ((n + SHUNTI_TILE_COLUMNS - 1) / SHUNTI_TILE_COLUMNS);
}

/* C (m, n) [+]= rows a (m, k) times panels b. `later` is prefetched
 * meanwhile. */
static void by_rows(const struct shunti_bf16_tile *tile,
                    struct shunti_bf16_scratch *s, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const uint32_t *b, bool add,
                    float *c, size_t ldc, struct ahead later)
{
    size_t pairs = pairs_of(k);
    uint32_t *words = room(s, &s->a, CHUNK * pairs);

    for (size_t i = 0; i < m; i += CHUNK) {
        size_t some = m - i < CHUNK ? m - i : CHUNK;
        size_t next = m - i - some < CHUNK ? m - i - some : CHUNK;
        const float *then = next ? a + (i + CHUNK) * lda : a;
        struct ahead ahead =
            look_ahead(tiles_of(some, n), next, k, then, lda, 0, then, 0);

        pack_rows(tile, some, k, a + i * lda, lda, words);
        for (size_t j = 0; j < n; j += SHUNTI_TILE_COLUMNS)
            for (size_t r = 0; r < some; r += SHUNTI_TILE_ROWS) {
                fetch_some(&ahead);
                fetch_some(&later);
                multiply(tile,
                         some - r < SHUNTI_TILE_ROWS ? some - r
                                                     : SHUNTI_TILE_ROWS,
                         columns_of(n, j), pairs, words + r * pairs, pairs, 1,
                         b + j * pairs, add, c + (i + r) * ldc + j, ldc);
            }
    }
}

void shunti_bf16_by_rows(const struct shunti_bf16_tile *tile,
                         struct shunti_bf16_scratch *s, bool turned, size_t m,
                         size_t n, size_t k, const float *a, size_t lda,
                         const float *b, size_t ldb, const float *next,
                         enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    const uint32_t *words = turned ? pack_b_turned(tile, s, n, k, b, ldb)
                                   : pack_b(tile, s, n, k, b, ldb);
    const struct ahead later =
        look_ahead(tiles_of(m, n), next ? k : 0, n, next, ldb, 0, next, 0);

    by_rows(tile, s, m, n, k, a, lda, words, beta == SHUNTI_GEMM_ADD, c, ldc,
            later);
}

void shunti_bf16_tn(const struct shunti_bf16_tile *tile,
                    struct shunti_bf16_scratch *s, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    float *c, size_t ldc)
{
    while (k > 0) {
        size_t some = k < DEPTH ? k : DEPTH, pairs = pairs_of(some);
        const uint32_t *wa = pack_a_turned(tile, s, m, some, a, lda);
        const uint32_t *wb = pack_b(tile, s, n, some, b, ldb);
        const size_t next = k - some < DEPTH ? k - some : DEPTH;
        struct ahead ahead =
            look_ahead(tiles_of(m, n), next, m, next ? a + some * lda : NULL,
                       lda, n, next ? b + some * ldb : NULL, ldb);

        for (size_t j = 0; j < n; j += SHUNTI_TILE_COLUMNS)
            for (size_t i = 0; i < m; i += SHUNTI_TILE_ROWS) {
                fetch_some(&ahead);
                multiply(tile,
                         m - i < SHUNTI_TILE_ROWS ? m - i : SHUNTI_TILE_ROWS,
                         columns_of(n, j), pairs,
                         wa + i / SHUNTI_TILE_ROWS * a_stride(pairs), 1,
                         SHUNTI_TILE_ROWS, wb + j * pairs, true,
                         c + i * ldc + j, ldc);
            }
        k -= some;
        if (k > 0) {
            a += some * lda;
            b += some * ldb;
        }
    }
}
