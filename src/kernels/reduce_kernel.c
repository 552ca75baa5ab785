// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions by vector instructions. meson.build compiles this file once for
 * each instruction set; the loops are plain C that the compiler turns into
 * vectors of that set.
 *
 * Arrays are reduced in blocks whose partial results stay in the first-level
 * cache. So every source is read once and the result written once, for any
 * number of sources.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(KERNEL_NEON)
#include <arm_neon.h>
#endif

#include "src/kernels/dtype.h"
#include "src/kernels/reduce.h"

/* Size of a block of partial results. */
#define BLOCK_BYTES 4096

/* Promises the compiler that no iteration of a loop reads what an earlier one
 * wrote. The compiler cannot know it, because dst may be one of the sources. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define IS_NAN(x) 0

#define ELEMENT int8_t
#define UNSIGNED uint8_t
#define COMBINE combine_i8
#define PASS pass_i8
#define REDUCE reduce_i8
#include "src/kernels/reduce_type.h"

#define ELEMENT uint8_t
#define UNSIGNED uint8_t
#define COMBINE combine_u8
#define PASS pass_u8
#define REDUCE reduce_u8
#include "src/kernels/reduce_type.h"

#define ELEMENT int32_t
#define UNSIGNED uint32_t
#define COMBINE combine_i32
#define PASS pass_i32
#define REDUCE reduce_i32
#include "src/kernels/reduce_type.h"

#define ELEMENT uint32_t
#define UNSIGNED uint32_t
#define COMBINE combine_u32
#define PASS pass_u32
#define REDUCE reduce_u32
#include "src/kernels/reduce_type.h"

#define ELEMENT int64_t
#define UNSIGNED uint64_t
#define COMBINE combine_i64
#define PASS pass_i64
#define REDUCE reduce_i64
#include "src/kernels/reduce_type.h"

#define ELEMENT uint64_t
#define UNSIGNED uint64_t
#define COMBINE combine_u64
#define PASS pass_u64
#define REDUCE reduce_u64
#include "src/kernels/reduce_type.h"

#undef IS_NAN
#define IS_NAN(x) __builtin_isnan(x)

#define ELEMENT float
#define UNSIGNED float
#define COMBINE combine_f32
#define PASS pass_f32
#define REDUCE reduce_f32
#include "src/kernels/reduce_type.h"

#define ELEMENT double
#define UNSIGNED double
#define COMBINE combine_f64
#define PASS pass_f64
#define REDUCE reduce_f64
#include "src/kernels/reduce_type.h"

/* -- f16 and bf16: widened block by block ---------------------------------- */

enum { HALF_BLOCK = BLOCK_BYTES / sizeof(float) };

static void widen_bf16(float *restrict wide, const unsigned char *src,
                       size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint16_t half;

        memcpy(&half, src + 2 * i, 2);
        wide[i] = shunti_bf16_to_f32(half);
    }
}

static void narrow_bf16(unsigned char *restrict dst, const float *restrict wide,
                        size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint16_t half = shunti_f32_to_bf16(wide[i]);

        memcpy(dst + 2 * i, &half, 2);
    }
}

static void widen_f16(float *restrict wide, const unsigned char *src,
                      size_t len)
{
    size_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= len; i += 8) {
        __m128i half = _mm_loadu_si128((const void *)(src + 2 * i));

        _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(half));
    }
#elif defined(KERNEL_NEON)
    for (; i + 4 <= len; i += 4) {
        float16x4_t half;

        memcpy(&half, src + 2 * i, 8);
        vst1q_f32(wide + i, vcvt_f32_f16(half));
    }
#endif
    for (; i < len; i++) {
        uint16_t half;

        memcpy(&half, src + 2 * i, 2);
        wide[i] = shunti_f16_to_f32(half);
    }
}

static void narrow_f16(unsigned char *restrict dst, const float *restrict wide,
                       size_t len)
{
    size_t i = 0;

#if defined(__F16C__)
    for (; i + 8 <= len; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(wide + i),
                                       _MM_FROUND_TO_NEAREST_INT);

        _mm_storeu_si128((void *)(dst + 2 * i), half);
    }
#elif defined(KERNEL_NEON)
    for (; i + 4 <= len; i += 4) {
        float16x4_t half = vcvt_f16_f32(vld1q_f32(wide + i));

        memcpy(dst + 2 * i, &half, 8);
    }
#endif
    for (; i < len; i++) {
        uint16_t half = shunti_f32_to_f16(wide[i]);

        memcpy(dst + 2 * i, &half, 2);
    }
}

/* Reduce block by block: widen() every source to f32, and narrow() the
 * result. */
static void reduce_half(unsigned char *dst, const void *const *srcs, int n,
                        size_t count, enum shunt_op op, int divisor,
                        void (*widen)(float *restrict, const unsigned char *,
                                      size_t),
                        void (*narrow)(unsigned char *restrict,
                                       const float *restrict, size_t))
{
    float sum[HALF_BLOCK], next[HALF_BLOCK];

    for (size_t done = 0; done < count; done += HALF_BLOCK) {
        size_t len = count - done < HALF_BLOCK ? count - done : HALF_BLOCK;

        widen(sum, (const unsigned char *)srcs[0] + 2 * done, len);
        for (int k = 1; k < n; k++) {
            const void *const pair[] = {sum, next};
            bool last = k == n - 1; /* only the last step divides */

            widen(next, (const unsigned char *)srcs[k] + 2 * done, len);
            reduce_f32((unsigned char *)sum, pair, 2, len,
                       op == SHUNT_AVG && !last ? SHUNT_SUM : op, divisor);
        }
        narrow(dst + 2 * done, sum, len);
    }
}

static void reduce_f16(unsigned char *dst, const void *const *srcs, int n,
                       size_t count, enum shunt_op op, int divisor)
{
    reduce_half(dst, srcs, n, count, op, divisor, widen_f16, narrow_f16);
}

static void reduce_bf16(unsigned char *dst, const void *const *srcs, int n,
                        size_t count, enum shunt_op op, int divisor)
{
    reduce_half(dst, srcs, n, count, op, divisor, widen_bf16, narrow_bf16);
}

/* -- the table ------------------------------------------------------------- */

static void (*const reduce[])(unsigned char *dst, const void *const *srcs,
                              int n, size_t count, enum shunt_op op,
                              int divisor) = {
    [SHUNT_I8] = reduce_i8,   [SHUNT_U8] = reduce_u8,
    [SHUNT_I32] = reduce_i32, [SHUNT_U32] = reduce_u32,
    [SHUNT_I64] = reduce_i64, [SHUNT_U64] = reduce_u64,
    [SHUNT_F16] = reduce_f16, [SHUNT_BF16] = reduce_bf16,
    [SHUNT_F32] = reduce_f32, [SHUNT_F64] = reduce_f64,
};

static void run(void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op, int divisor)
{
    if (n > 1)
        reduce[dtype](dst, srcs, n, count, op, divisor);
    else if (dst != srcs[0]) /* one source: no sum, and the divisor is 1 */
        memcpy(dst, srcs[0], count * shunt_dtype_size(dtype));
}

const struct shunti_reduce_set KERNEL_TABLE = {
    .run = run,
};
