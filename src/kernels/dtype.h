// SPDX-License-Identifier: Apache-2.0
/*
 * Element types: names, and conversions between the narrow floating-point
 * formats and f32.
 *
 * All conversions to a narrower type round to the nearest, ties to even, and
 * keep a NaN a NaN. They state the formats by integer arithmetic, so that every
 * CPU gives the same bits; kernels with vector instructions are tested against
 * them.
 */
#ifndef SHUNTI_DTYPE_H
#define SHUNTI_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <shunt/coll.h>

/* shunt_dtype_size(), without a call. */
static inline size_t shunti_dtype_bytes(enum shunt_dtype dtype)
{
    static const unsigned char sizes[] = {
        [SHUNT_I8] = 1,  [SHUNT_U8] = 1,       [SHUNT_I32] = 4,
        [SHUNT_U32] = 4, [SHUNT_I64] = 8,      [SHUNT_U64] = 8,
        [SHUNT_F16] = 2, [SHUNT_BF16] = 2,     [SHUNT_F32] = 4,
        [SHUNT_F64] = 8, [SHUNT_FP8_E4M3] = 1,
    };

    /* Compared as unsigned: an enum may hold any integer, even below 0. */
    return (unsigned)dtype < sizeof(sizes) ? sizes[dtype] : 0;
}

/* The name of a type, such as "bf16". Valid for any argument. */
const char *shunti_dtype_name(enum shunt_dtype dtype);

bool shunti_op_valid(enum shunt_op op);

static inline uint32_t shunti_f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float shunti_f32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* -- bf16: 8 bits of exponent, 7 of mantissa; the upper half of an f32 ----- */

static inline float shunti_bf16_to_f32(uint16_t bits)
{
    return shunti_f32_from_bits((uint32_t)bits << 16);
}

static inline uint16_t shunti_f32_to_bf16(float value)
{
    uint32_t bits = shunti_f32_bits(value);
    /* Adding just under half a unit, and one more if the kept part is odd,
     * carries into the kept part exactly when the value must be rounded up. */
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    /* A NaN's payload may be in the lower half alone: set the quiet bit. */
    uint32_t nan = bits >> 16 | 0x40;

    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/* -- f16: IEEE binary16, 5 bits of exponent, 10 of mantissa ---------------- */

static inline float shunti_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t mantissa = half & 0x3ff;

    if (exponent == 0) /* zero, or subnormal: mantissa * 2^-24, exact in f32 */
        return shunti_f32_from_bits(
            sign | shunti_f32_bits((float)mantissa * 0x1p-24f));
    if (exponent == 0x1f) /* infinity, or NaN (made quiet) */
        return shunti_f32_from_bits(sign | 0x7f800000 | mantissa << 13 |
                                    (mantissa != 0 ? 0x400000 : 0));
    return shunti_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t shunti_f32_to_f16(float value)
{
    uint32_t bits = shunti_f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: subnormal */
        /* In the sum with 0.5 the last bit kept has the value 2^-24, the unit
         * of subnormals. So the addition rounds to it. */
        float sum = shunti_f32_from_bits(magnitude) + 0.5f;

        return (uint16_t)(sign | (shunti_f32_bits(sum) - 0x3f000000));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

/* -- fp8 e4m3: 4 bits of exponent (bias 7), 3 of mantissa; no infinity --------
 * The largest number is 448; S.1111.111 is the NaN ("FP8 Formats for Deep
 * Learning", Micikevicius et al. 2022). */

#define SHUNTI_FP8_MAX 448.0f

static inline float shunti_fp8_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24;
    uint32_t exponent = bits >> 3 & 0xf;
    uint32_t mantissa = bits & 7;

    if (exponent == 0) /* zero, or subnormal: mantissa * 2^-9 */
        return shunti_f32_from_bits(sign |
                                    shunti_f32_bits((float)mantissa * 0x1p-9f));
    if ((bits & 0x7f) == 0x7f)
        return shunti_f32_from_bits(sign | 0x7fc00000);
    return shunti_f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
}

/* Numbers beyond 448 saturate; infinities and NaNs become the NaN, so that an
 * overflow is seen and not hidden. */
static inline uint8_t shunti_f32_to_fp8(float value)
{
    uint32_t bits = shunti_f32_bits(value);
    uint32_t sign = bits >> 24 & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude >= 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (magnitude >= 0x43e00000)
        return (uint8_t)(sign | 0x7e);
    if (magnitude < 0x3c800000) { /* below 2^-6: subnormal */
        /* As in f16: near 2^14 the last bit kept has the value 2^-9. */
        float sum = shunti_f32_from_bits(magnitude) + 0x1p14f;

        return (uint8_t)(sign | (shunti_f32_bits(sum) - 0x46800000));
    }
    magnitude += 0x7ffff + (magnitude >> 20 & 1);
    return (uint8_t)(sign | ((magnitude - 0x3c000000) >> 20));
}

#endif
