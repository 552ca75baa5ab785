// SPDX-License-Identifier: Apache-2.0
/*
 * Row kernels on vectors.
 *
 * This file uses the compilers' vector extension, and meson.build compiles it
 * once for each instruction set. LANES is the number of floats in a register,
 * because compilers do badly with wider vectors. UNROLL is the number of
 * registers in a block of `sum`; three times as many, for three sums, must fit
 * in the register file.
 */
#include <stdbool.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(KERNEL_NEON)
#include <arm_neon.h>
#endif

#include "src/kernels/dtype.h"
#include "src/kernels/fp8.h"
#include "src/kernels/rows.h"

#define INLINE static inline __attribute__((always_inline))
#if defined(__AVX512F__)
#define LANES 16
#define UNROLL 8
#elif defined(__AVX2__)
#define LANES 8
#define UNROLL 4
#elif defined(KERNEL_NEON)
#define LANES 4
#define UNROLL 8
#else
#define LANES 4
#define UNROLL 4
#endif
/* Unrolls a loop over registers, which is useless otherwise. */
#define EACH(u, count) \
    _Pragma("GCC unroll 16") for (size_t u = 0; u < (count); u++)

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));
typedef uint8_t vb __attribute__((vector_size(LANES)));

/* The element type is a constant wherever the functions below are inlined. */
enum element { F32, BF16 };

INLINE size_t size_of(enum element type)
{
    return type == F32 ? 4 : 2;
}

/*
 * Widen LANES 16-bit numbers to the upper halves of words, and narrow the lower
 * halves. (gcc compiles __builtin_convertvector() of these through memory.)
 */
INLINE vu widen(const void *from)
{
#if LANES == 16 && defined(__AVX512F__)
    __m256i h = _mm256_loadu_si256(from);

    return (vu)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
#elif LANES == 8 && defined(__AVX2__)
    __m128i h = _mm_loadu_si128(from);

    return (vu)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
#elif LANES == 4 && defined(__SSE2__)
    __m128i h = _mm_loadl_epi64(from);

    return (vu)_mm_unpacklo_epi16(_mm_setzero_si128(), h);
#elif defined(KERNEL_NEON)
    uint16x4_t h;

    memcpy(&h, from, sizeof(h));
    return (vu)vshll_n_u16(h, 16);
#else
    vh h;

    memcpy(&h, from, sizeof(h));
    return __builtin_convertvector(h, vu) << 16;
#endif
}

INLINE void narrow(void *to, vu v)
{
#if LANES == 16 && defined(__AVX512F__)
    _mm256_storeu_si256(to, _mm512_cvtepi32_epi16((__m512i)v));
#elif LANES == 8 && defined(__AVX2__)
    __m256i w = (__m256i)(v & 0xffff);

    w = _mm256_permute4x64_epi64(_mm256_packus_epi32(w, w), 0xd8);
    _mm_storeu_si128(to, _mm256_castsi256_si128(w));
#elif LANES == 4 && defined(__SSE2__)
    /* After sign extension, the saturation of the packing changes nothing. */
    __m128i w = _mm_srai_epi32(_mm_slli_epi32((__m128i)v, 16), 16);

    _mm_storel_epi64(to, _mm_packs_epi32(w, w));
#elif defined(KERNEL_NEON)
    uint16x4_t h = vmovn_u32((uint32x4_t)v);

    memcpy(to, &h, sizeof(h));
#else
    vh h = __builtin_convertvector(v, vh);

    memcpy(to, &h, sizeof(h));
#endif
}

INLINE vf load(enum element type, const void *row, size_t i)
{
    const unsigned char *at = (const unsigned char *)row + i * size_of(type);

    if (type == F32) {
        vf v;

        memcpy(&v, at, sizeof(v));
        return v;
    } else {
        return (vf)widen(at);
    }
}

/* Load the last n < LANES elements of a row, followed by zeros. */
INLINE vf load_part(enum element type, const void *row, size_t i, size_t n)
{
    unsigned char part[LANES * 4] = {0};

    memcpy(part, (const unsigned char *)row + i * size_of(type),
           n * size_of(type));
    return load(type, part, 0);
}

INLINE vu select_bits(vi mask, vu a, vu b)
{
#if defined(KERNEL_NEON)
    return (vu)vbslq_u32((uint32x4_t)mask, (uint32x4_t)a, (uint32x4_t)b);
#else
    return ((vu)mask & a) | (~(vu)mask & b);
#endif
}

INLINE vf select_float(vi mask, vf a, vf b)
{
    return (vf)select_bits(mask, (vu)a, (vu)b);
}

INLINE void store(enum element type, void *row, size_t i, vf v)
{
    unsigned char *at = (unsigned char *)row + i * size_of(type);

    if (type == F32) {
        memcpy(at, &v, sizeof(v));
    } else {
        /* As shunti_f32_to_bf16(). */
        vu bits = (vu)v;
        vu rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        vu nan = bits >> 16 | 0x40;

        narrow(at, select_bits(v != v, nan, rounded));
    }
}

INLINE void store_part(enum element type, void *row, size_t i, size_t n, vf v)
{
    unsigned char part[LANES * 4];

    store(type, part, 0, v);
    memcpy((unsigned char *)row + i * size_of(type), part, n * size_of(type));
}

/* -- sum ------------------------------------------------------------------- */

/*
 * Sum columns i .. i + LANES * unroll; or i .. i + part if part > 0 (unroll 1).
 *
 * The rows of a token are far from each other, and the hardware's prefetcher
 * cannot predict the next token's rows. Explicit prefetches halve the time.
 */
INLINE void sum_block(enum element type, enum element out,
                      const struct shunti_rows_term *terms, size_t nterms,
                      const struct shunti_rows_term *next, size_t nnext,
                      const void *bias, void *y, size_t i, size_t unroll,
                      size_t part)
{
    vf rank[UNROLL], node[UNROLL] = {{0}}, total[UNROLL] = {{0}};
    bool have_node = false, have_total = bias != NULL;

    for (size_t t = 0; t < nnext; t++)
        for (size_t at = 0; at < unroll * LANES * size_of(type); at += 64)
            __builtin_prefetch((const unsigned char *)next[t].row +
                               i * size_of(type) + at);

#define LOAD(of, row) \
    (part ? load_part(of, row, i, part) : load(of, row, i + u * LANES))
/* For each register of a term's row: rank = how weight * row. `how` is the left
 * operand and its operator, or empty. */
#define TERM(term, how)                                             \
    do {                                                            \
        const void *row = (term).row;                               \
        float weight = (term).weight;                               \
                                                                    \
        if (type != F32 && (term).wide) {                           \
            EACH(u, unroll) rank[u] = how weight * LOAD(F32, row);  \
        } else {                                                    \
            EACH(u, unroll) rank[u] = how weight * LOAD(type, row); \
        }                                                           \
    } while (0)
    if (bias) {
        EACH(u, unroll) total[u] = LOAD(type, bias);
    }
    TERM(terms[0], );
    for (size_t t = 1; t < nterms; t++) {
        if (terms[t].op == SHUNTI_ROWS_ADD) {
            TERM(terms[t], rank[u] +);
            continue;
        }
        if (have_node) {
            EACH(u, unroll) node[u] = node[u] + rank[u];
        } else {
            EACH(u, unroll) node[u] = rank[u];
        }
        have_node = true;
        if (terms[t].op == SHUNTI_ROWS_NODE) {
            if (have_total) {
                EACH(u, unroll) total[u] = total[u] + node[u];
            } else {
                EACH(u, unroll) total[u] = node[u];
            }
            have_total = true;
            have_node = false;
        }
        TERM(terms[t], );
    }
    if (have_node) {
        EACH(u, unroll) rank[u] = node[u] + rank[u];
    }
    if (have_total) {
        EACH(u, unroll) rank[u] = total[u] + rank[u];
    }
    if (part) {
        store_part(out, y, i, part, rank[0]);
    } else {
        EACH(u, unroll) store(out, y, i + u * LANES, rank[u]);
    }
#undef TERM
#undef LOAD
}

INLINE void sum(enum element type, enum element out,
                const struct shunti_rows_term *terms, size_t nterms,
                const struct shunti_rows_term *next, size_t nnext,
                const void *bias, void *y, size_t n)
{
    size_t i = 0;

    if (nterms == 0) {
        if (!bias)
            memset(y, 0, n * size_of(out));
        else if (bias != y)
            memcpy(y, bias, n * size_of(type));
        return;
    }
    for (; i + UNROLL * LANES <= n; i += UNROLL * LANES)
        sum_block(type, out, terms, nterms, next, nnext, bias, y, i, UNROLL, 0);
    for (; i + LANES <= n; i += LANES)
        sum_block(type, out, terms, nterms, NULL, 0, bias, y, i, 1, 0);
    if (i < n)
        sum_block(type, out, terms, nterms, NULL, 0, bias, y, i, 1, n - i);
}

/* -- scale, dot ------------------------------------------------------------ */

INLINE void scale(enum element type, void *dst, const void *src, float weight,
                  size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        store(type, dst, i, weight * load(type, src, i));
    if (i < n)
        store_part(type, dst, i, n - i,
                   weight * load_part(type, src, i, n - i));
}

/* Element i is added to lane i % 64, which is in register i % 64 / LANES. */
INLINE float dot(enum element type, const void *a, const void *b,
                 const void *next, size_t n)
{
    vf reg[64 / LANES] = {{0}};
    float sums[LANES];
    size_t i = 0;

    for (; i + 64 <= n; i += 64) {
        for (size_t at = 0; at < 64 * size_of(type); at += 64)
            __builtin_prefetch((const unsigned char *)next + i * size_of(type) +
                               at);
        EACH(r, 64 / LANES)
        reg[r] += load(type, a, i + r * LANES) * load(type, b, i + r * LANES);
    }
    EACH(r, 64 / LANES)
    {
        size_t at = i + r * LANES;

        /* Lanes past the end add 0, which changes nothing, because a sum that
         * began with +0 is never -0. */
        if (at + LANES <= n)
            reg[r] += load(type, a, at) * load(type, b, at);
        else if (at < n)
            reg[r] +=
                load_part(type, a, at, n - at) * load_part(type, b, at, n - at);
    }
    /* Do not write this as a loop over the widths: a loop that is not unrolled
     * would keep all registers in memory, for the whole function. */
    EACH(r, 32 / LANES) reg[r] += reg[r + 32 / LANES];
    EACH(r, 16 / LANES) reg[r] += reg[r + 16 / LANES];
#if LANES <= 8
    EACH(r, 8 / LANES) reg[r] += reg[r + 8 / LANES];
#endif
#if LANES <= 4
    EACH(r, 4 / LANES) reg[r] += reg[r + 4 / LANES];
#endif
    memcpy(sums, &reg[0], sizeof(sums));
    for (size_t width = LANES / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            sums[j] += sums[j + width];
    return sums[0];
}

/* -- fp8 ------------------------------------------------------------------- */

INLINE vf magnitude(vf v)
{
    return (vf)((vu)v & 0x7fffffff);
}

/* Round v to the nearest e4m3 number, as shunti_f32_to_fp8() and back. */
INLINE vf through_e4m3(vf v)
{
    const vf most = (vf){0} + SHUNTI_FP8_MAX;
    vu sign = (vu)v & 0x80000000;
    vf a = magnitude(v);
    vu normal;
    vf small;

    a = select_float(a > most, most, a);
    normal = ((vu)a + 0x7ffff + ((vu)a >> 20 & 1)) & 0xfff00000;
    small = (a + 0x1p14f) - 0x1p14f;
    normal = select_bits(a < (vf){0} + 0x1p-6f, (vu)small, normal);
    normal = select_bits(v != v, (vu){0} + 0x7fc00000, normal);
    return (vf)(normal | sign);
}

/* The codes of shunti_f32_to_fp8(), one in each word. */
INLINE vu to_e4m3(vf v)
{
    const vf most = (vf){0} + SHUNTI_FP8_MAX;
    vu sign = (vu)v >> 24 & 0x80;
    vf a = magnitude(v);
    vu normal, small;

    a = select_float(a > most, most, a);
    normal = ((vu)a + 0x7ffff + ((vu)a >> 20 & 1) - 0x3c000000) >> 20;
    small = (vu)(a + 0x1p14f) - 0x46800000;
    normal = select_bits(a < (vf){0} + 0x1p-6f, small, normal);
    return select_bits(v != v, (vu){0} + 0x7f, normal) | sign;
}

/* The numbers of the codes, as shunti_fp8_to_f32(). */
INLINE vf from_e4m3(vu code)
{
    vu sign = (code & 0x80) << 24, magnitude = code & 0x7f;
    vu normal = (magnitude << 20) + (120u << 23);
    vf small = __builtin_convertvector((vi)magnitude, vf) * 0x1p-9f;

    normal = select_bits(magnitude < 8, (vu)small, normal);
    normal = select_bits(magnitude == 0x7f, (vu){0} + 0x7fc00000, normal);
    return (vf)(normal | sign);
}

/* The scale of the elements from `at` to `end`. */
INLINE float scale_of(enum element type, const void *src, size_t at, size_t end)
{
    vf most = (vf){0} + SHUNTI_FP8_AMAX_MIN;
    float lanes[LANES], amax;
    size_t i = at;

    for (; i + LANES <= end; i += LANES) {
        vf a = magnitude(load(type, src, i));

        most = select_float(a > most, a, most);
    }
    if (i < end) {
        vf a = magnitude(load_part(type, src, i, end - i));

        most = select_float(a > most, a, most);
    }
    memcpy(lanes, &most, sizeof(lanes));
    amax = lanes[0];
    for (size_t j = 1; j < LANES; j++)
        amax = lanes[j] > amax ? lanes[j] : amax;
    return amax / SHUNTI_FP8_MAX;
}

INLINE size_t slice_end(size_t at, size_t n)
{
    return n - at < SHUNTI_FP8_SLICE ? n : at + SHUNTI_FP8_SLICE;
}

INLINE void fp8(enum element type, void *dst, const void *src, size_t n)
{
    for (size_t at = 0; at < n; at += SHUNTI_FP8_SLICE) {
        size_t end = slice_end(at, n), i = at;
        float unit = scale_of(type, src, at, end);

        for (; i + LANES <= end; i += LANES)
            store(type, dst, i, through_e4m3(load(type, src, i) / unit) * unit);
        if (i < end)
            store_part(type, dst, i, end - i,
                       through_e4m3(load_part(type, src, i, end - i) / unit) *
                           unit);
    }
}

INLINE void pack(enum element type, void *packed, const void *src, size_t n)
{
    unsigned char *codes = packed, *scales = codes + n;

    for (size_t at = 0; at < n; at += SHUNTI_FP8_SLICE, scales += 4) {
        size_t end = slice_end(at, n), i = at;
        float unit = scale_of(type, src, at, end);
        vb bytes;

        for (; i + LANES <= end; i += LANES) {
            bytes =
                __builtin_convertvector(to_e4m3(load(type, src, i) / unit), vb);
            memcpy(codes + i, &bytes, LANES);
        }
        if (i < end) {
            bytes = __builtin_convertvector(
                to_e4m3(load_part(type, src, i, end - i) / unit), vb);
            memcpy(codes + i, &bytes, end - i);
        }
        memcpy(scales, &unit, 4);
    }
}

INLINE void unpack(enum element type, void *dst, const void *packed, size_t n)
{
    const unsigned char *codes = packed, *scales = codes + n;

    for (size_t at = 0; at < n; at += SHUNTI_FP8_SLICE, scales += 4) {
        size_t end = slice_end(at, n), i = at;
        vb bytes = {0};
        float unit;

        memcpy(&unit, scales, 4);
        for (; i + LANES <= end; i += LANES) {
            memcpy(&bytes, codes + i, LANES);
            store(type, dst, i,
                  from_e4m3(__builtin_convertvector(bytes, vu)) * unit);
        }
        if (i < end) {
            memcpy(&bytes, codes + i, end - i);
            store_part(type, dst, i, end - i,
                       from_e4m3(__builtin_convertvector(bytes, vu)) * unit);
        }
    }
}

/* -- the table ------------------------------------------------------------- */

static void sum_f32(const struct shunti_rows_term *terms, size_t nterms,
                    const struct shunti_rows_term *next, size_t nnext,
                    const void *bias, void *y, size_t n)
{
    sum(F32, F32, terms, nterms, next, nnext, bias, y, n);
}

static void sum_bf16(const struct shunti_rows_term *terms, size_t nterms,
                     const struct shunti_rows_term *next, size_t nnext,
                     const void *bias, void *y, size_t n)
{
    sum(BF16, BF16, terms, nterms, next, nnext, bias, y, n);
}

static void partial_f32(const struct shunti_rows_term *terms, size_t nterms,
                        const struct shunti_rows_term *next, size_t nnext,
                        void *y, size_t n)
{
    sum(F32, F32, terms, nterms, next, nnext, NULL, y, n);
}

static void partial_bf16(const struct shunti_rows_term *terms, size_t nterms,
                         const struct shunti_rows_term *next, size_t nnext,
                         void *y, size_t n)
{
    sum(BF16, F32, terms, nterms, next, nnext, NULL, y, n);
}

static void scale_f32(void *dst, const void *src, float weight, size_t n)
{
    scale(F32, dst, src, weight, n);
}

static void scale_bf16(void *dst, const void *src, float weight, size_t n)
{
    scale(BF16, dst, src, weight, n);
}

static float dot_f32(const void *a, const void *b, const void *next, size_t n)
{
    return dot(F32, a, b, next, n);
}

static float dot_bf16(const void *a, const void *b, const void *next, size_t n)
{
    return dot(BF16, a, b, next, n);
}

static void fp8_f32(void *dst, const void *src, size_t n)
{
    fp8(F32, dst, src, n);
}

static void fp8_bf16(void *dst, const void *src, size_t n)
{
    fp8(BF16, dst, src, n);
}

static void pack_f32(void *packed, const void *src, size_t n)
{
    pack(F32, packed, src, n);
}

static void unpack_f32(void *dst, const void *packed, size_t n)
{
    unpack(F32, dst, packed, n);
}

static void pack_bf16(void *packed, const void *src, size_t n)
{
    pack(BF16, packed, src, n);
}

static void unpack_bf16(void *dst, const void *packed, size_t n)
{
    unpack(BF16, dst, packed, n);
}

const struct shunti_rows_set KERNEL_TABLE = {
    .f32 = {sum_f32, partial_f32, scale_f32, dot_f32, fp8_f32, pack_f32,
            unpack_f32},
    .bf16 = {sum_bf16, partial_bf16, scale_bf16, dot_bf16, fp8_bf16, pack_bf16,
             unpack_bf16},
};
