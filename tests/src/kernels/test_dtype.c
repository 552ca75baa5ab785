// SPDX-License-Identifier: Apache-2.0
/*
 * Narrow floating-point formats, compared with searches for the nearest value
 * in double precision.
 */

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#include "src/kernels/dtype.h"

TestSuite(dtype, .timeout = 60);

/* A format, whose finite non-negative values ascend with their codes. */
struct format {
    const char *name;
    int codes; /* number of codes of finite values >= 0 */
    /* the least value that is not rounded to the largest finite one */
    double over;
    unsigned sign; /* the bit of the sign */
    float (*wide)(unsigned code);
    unsigned (*narrow)(float value);
};

static float wide_f16(unsigned code)
{
    return shunti_f16_to_f32((uint16_t)code);
}

static unsigned narrow_f16(float value)
{
    return shunti_f32_to_f16(value);
}

static float wide_bf16(unsigned code)
{
    return shunti_bf16_to_f32((uint16_t)code);
}

static unsigned narrow_bf16(float value)
{
    return shunti_f32_to_bf16(value);
}

static float wide_fp8(unsigned code)
{
    return shunti_fp8_to_f32((uint8_t)code);
}

static unsigned narrow_fp8(float value)
{
    return shunti_f32_to_fp8(value);
}

static const struct format formats[] = {
    {"f16", 0x7c00, 65520.0, 0x8000, wide_f16, narrow_f16},
    {"bf16", 0x7f80, 0x1.ffp127, 0x8000, wide_bf16, narrow_bf16},
    {"fp8", 0x7f, INFINITY, 0x80, wide_fp8, narrow_fp8},
};

/* The value of a code by the format's definition, with these numbers of
 * mantissa bits and this bias of the exponent. */
static double by_definition(unsigned code, int mantissa_bits, int bias)
{
    unsigned exponent = code >> mantissa_bits;
    unsigned mantissa = code & ((1u << mantissa_bits) - 1);

    if (exponent == 0)
        return ldexp(mantissa, 1 - bias - mantissa_bits);
    return ldexp((1u << mantissa_bits) + mantissa,
                 (int)exponent - bias - mantissa_bits);
}

Test(dtype, values)
{
    for (unsigned c = 0; c < 0x7c00; c++)
        cr_assert_eq((double)wide_f16(c), by_definition(c, 10, 15), "%x", c);
    for (unsigned c = 0; c < 0x7f80; c++)
        cr_assert_eq((double)wide_bf16(c), by_definition(c, 7, 127), "%x", c);
    for (unsigned c = 0; c < 0x7f; c++)
        cr_assert_eq((double)wide_fp8(c), by_definition(c, 3, 7), "%x", c);
    cr_assert_eq(wide_fp8(0x7e), 448.0f);
    cr_assert(isnan(wide_fp8(0x7f)) && isnan(wide_fp8(0xff)));
    cr_assert(isinf(wide_f16(0x7c00)) && isinf(wide_bf16(0x7f80)));
    cr_assert(isnan(wide_f16(0x7c01)) && isnan(wide_bf16(0x7f81)));
}

static unsigned nearest(const struct format *f, double x)
{
    int low = 0, high = f->codes - 1;
    double below, above;

    /* here wide(low) <= x < wide(high), or x is larger than all values */
    while (high - low > 1) {
        int middle = (low + high) / 2;

        if ((double)f->wide((unsigned)middle) <= x)
            low = middle;
        else
            high = middle;
    }
    below = x - (double)f->wide((unsigned)low);
    above = (double)f->wide((unsigned)high) - x;
    if (below != above)
        return (unsigned)(below < above ? low : high);
    return (unsigned)(low % 2 == 0 ? low : high);
}

Test(dtype, rounding)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        const struct format *f = &formats[i];

        for (uint32_t bits = 0; bits < 0x7f800000; bits += 4099) {
            float x = shunti_f32_from_bits(bits);
            unsigned want;

            if ((double)x >= f->over)
                continue;
            want = nearest(f, (double)x);
            cr_assert_eq(f->narrow(x), want, "%s: %a -> %x, not %x", f->name,
                         (double)x, f->narrow(x), want);
            cr_assert_eq(f->narrow(-x), want | f->sign, "%s: %a", f->name,
                         -(double)x);
        }
        /* Check every value itself, and every midpoint between two values. */
        for (int c = 0; c + 1 < f->codes; c++) {
            float a = f->wide((unsigned)c), b = f->wide((unsigned)c + 1);
            float middle = a + (b - a) / 2;

            cr_assert_eq(f->narrow(a), (unsigned)c, "%s %x", f->name, c);
            if ((double)middle == ((double)a + (double)b) / 2)
                cr_assert_eq(f->narrow(middle),
                             (unsigned)(c % 2 == 0 ? c : c + 1), "%s %x",
                             f->name, c);
        }
    }
}

Test(dtype, extremes)
{
    cr_assert_eq(narrow_f16(65519.0f), 0x7bff);
    cr_assert_eq(narrow_f16(65520.0f), 0x7c00);
    cr_assert_eq(narrow_f16(-INFINITY), 0xfc00);
    cr_assert_eq(narrow_bf16(0x1.fep127f), 0x7f7f);
    cr_assert_eq(narrow_bf16(0x1.fffffep127f), 0x7f80);
    cr_assert_eq(narrow_fp8(1e9f), 0x7e);
    cr_assert_eq(narrow_fp8(-1e9f), 0xfe);
    cr_assert_eq(narrow_fp8(INFINITY) & 0x7f, 0x7f);
    for (uint32_t bits = 0x7f800001; bits < 0x80000000; bits += 8191) {
        float nan = shunti_f32_from_bits(bits);

        cr_assert(isnan(wide_f16(narrow_f16(nan))), "%x", bits);
        cr_assert(isnan(wide_bf16(narrow_bf16(nan))), "%x", bits);
        cr_assert(isnan(wide_fp8(narrow_fp8(nan))), "%x", bits);
    }
}

Test(dtype, sizes)
{
    static const size_t sizes[] = {0, 1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 0};

    for (int d = 0; d < 13; d++)
        cr_assert_eq(shunt_dtype_size((enum shunt_dtype)d), sizes[d], "%d", d);
    cr_assert_eq(shunt_dtype_size((enum shunt_dtype) - 1), 0);
}
