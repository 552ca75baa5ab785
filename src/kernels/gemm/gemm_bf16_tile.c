// SPDX-License-Identifier: Apache-2.0
/*
 * The tile of gemm_bf16.h with VDPBF16PS (AVX512-BF16), which multiplies 32
 * pairs of bf16 and adds them up in 16 sums of f32:
 *
 *     sum += a[1] * b[1];  sum += a[0] * b[0]
 *
 * According to Intel's manual each line is one multiply-add, rounded once and
 * to the nearest, whatever MXCSR says. Denormal inputs count as zero, and so do
 * denormal sums. A tile holds 24 sums in registers, which is more than the
 * instruction's latency times its throughput. For each pair of bf16 in k, a
 * tile of 6 rows and 4 vectors of columns loads 10 times and multiplies 24
 * times.
 *
 * The tests compile this source with SIMDe (TILE_SIMDE), which implements every
 * intrinsic in plain C, so that it runs on CPUs that lack the instruction.
 */
#include "src/kernels/gemm/gemm_bf16.h"

#include <string.h>

#ifdef TILE_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#else
#include <immintrin.h>
#endif

#ifndef TILE
#define TILE shunti_bf16_tile_avx512
#define TILE_NAME "avx512bf16"
#endif

static inline __m512bh load(const uint32_t *words)
{
    return (__m512bh)_mm512_loadu_si512(words);
}

/* Copy a word to all lanes. */
static inline __m512bh spread(const uint32_t *word)
{
    int both;

    memcpy(&both, word, sizeof(both)); /* the two halves were written one by
                                          one */
    return (__m512bh)_mm512_set1_epi32(both);
}

/* Unrolls loops over registers. They must be unrolled early, so that the sums
 * are in registers all the time, and not in an array on the stack. */
#ifdef __clang__
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 24")
#endif
#define EACH(i, count) UNROLLED for (size_t i = 0; i < (count); i++)

/* Inlined once for each number of rows and vectors. */
__attribute__((always_inline)) static inline void
tile(size_t rows, size_t vectors, size_t pairs, const uint32_t *a, size_t a_row,
     size_t a_pair, const uint32_t *b, bool add, float *c, size_t ldc)
{
    enum { LANES = SHUNTI_TILE_LANES };
    __m512 sum[SHUNTI_TILE_ROWS][SHUNTI_TILE_VECTORS];

    EACH(i, rows)
    {
        const float *from = c + i * ldc;
        if (add) {
            EACH(j, vectors) sum[i][j] = _mm512_loadu_ps(from + j * LANES);
        } else {
            EACH(j, vectors) sum[i][j] = _mm512_setzero_ps();
        }
    }
    for (size_t p = 0; p < pairs; p++, a += a_pair) {
        __m512bh w[SHUNTI_TILE_VECTORS];
        EACH(j, vectors) w[j] = load(b + j * LANES);
        b += vectors * LANES;
        EACH(i, rows)
        {
            __m512bh x = spread(a + i * a_row);
            EACH(j, vectors) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, w[j]);
        }
    }
    EACH(i, rows)
    {
        float *to = c + i * ldc;
        EACH(j, vectors) _mm512_storeu_ps(to + j * LANES, sum[i][j]);
    }
}

#define TILE_OF(rows, vectors)                                        \
    case (vectors)*8 + (rows):                                        \
        tile(rows, vectors, pairs, a, a_row, a_pair, b, add, c, ldc); \
        break;
#define TILES_OF(vectors) \
    TILE_OF(1, vectors)   \
    TILE_OF(2, vectors)   \
    TILE_OF(3, vectors)   \
    TILE_OF(4, vectors)   \
    TILE_OF(5, vectors)   \
    TILE_OF(6, vectors)

static void multiply(size_t rows, size_t vectors, size_t pairs,
                     const uint32_t *a, size_t a_row, size_t a_pair,
                     const uint32_t *b, bool add, float *c, size_t ldc)
{
    switch (vectors * 8 + rows) {
        TILES_OF(1)
        TILES_OF(2)
        TILES_OF(3)
        TILES_OF(4)
    }
}

#ifndef TILE_SIMDE /* SIMDe lacks the intrinsic that rounds */

/* A mask of the lowest `left` lanes, or of all 16 if left >= 16. */
static inline __mmask16 lanes(size_t left)
{
    return left < SHUNTI_TILE_LANES ? (__mmask16)((1u << left) - 1) : 0xffff;
}

static void to_bf16(size_t n, const float *x, uint16_t *y)
{
    size_t i = 0;

    for (; n - i >= 2 * SHUNTI_TILE_LANES; i += 2 * SHUNTI_TILE_LANES)
        _mm512_storeu_si512(y + i,
                            (__m512i)_mm512_cvtne2ps_pbh(
                                _mm512_loadu_ps(x + i + SHUNTI_TILE_LANES),
                                _mm512_loadu_ps(x + i)));
    for (; i < n; i += SHUNTI_TILE_LANES) {
        __mmask16 some = lanes(n - i);
        _mm256_mask_storeu_epi16(
            y + i, some,
            (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x + i)));
    }
}

/* Interleave the 16 numbers of `low` and of `high`. */
static inline __m512i in_pairs(__m512 low, __m512 high)
{
    static const uint16_t in_turn[2 * SHUNTI_TILE_LANES] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
    };

    return _mm512_permutexvar_epi16(_mm512_loadu_si512(in_turn),
                                    (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

/* Use masks only where they are needed: with masks, Zen 5 reads memory outside
 * of the caches at half the speed. */
static void pair_bf16(size_t n, const float *x, const float *y, uint32_t *pairs)
{
    size_t i = 0;

    if (y)
        for (; n - i >= SHUNTI_TILE_LANES; i += SHUNTI_TILE_LANES)
            _mm512_storeu_si512(pairs + i, in_pairs(_mm512_loadu_ps(x + i),
                                                    _mm512_loadu_ps(y + i)));
    for (; i < n; i += SHUNTI_TILE_LANES) {
        __mmask16 some = lanes(n - i);
        __m512 high =
            y ? _mm512_maskz_loadu_ps(some, y + i) : _mm512_setzero_ps();

        _mm512_mask_storeu_epi32(
            pairs + i, some,
            in_pairs(_mm512_maskz_loadu_ps(some, x + i), high));
    }
}

#endif

/* As in peak_kernel.c: the values do not change. */
static double peak(size_t rounds, float *sink)
{
    enum { SUMS = SHUNTI_TILE_ROWS * SHUNTI_TILE_VECTORS };
    const uint32_t half = 0x3f003f00, none = 0;
    __m512bh factor = spread(&half), zero = spread(&none);
    __m512 sum[SUMS];
    float all[SHUNTI_TILE_LANES];

    EACH(i, SUMS) sum[i] = _mm512_set1_ps(*sink * (float)(i + 1));
    for (size_t r = 0; r < rounds; r++) {
        EACH(i, SUMS) sum[i] = _mm512_dpbf16_ps(sum[i], factor, zero);
    }
    EACH(i, SUMS - 1) sum[0] = _mm512_add_ps(sum[0], sum[i + 1]);
    _mm512_storeu_ps(all, sum[0]);
    *sink = all[0] / (SUMS * (SUMS + 1) / 2);
    return 4.0 * SHUNTI_TILE_LANES * SUMS * (double)rounds;
}

const struct shunti_bf16_tile TILE = {
    .name = TILE_NAME,
    .multiply = multiply,
#ifndef TILE_SIMDE
    .to_bf16 = to_bf16,
    .pair_bf16 = pair_bf16,
#endif
    .peak = peak,
};
