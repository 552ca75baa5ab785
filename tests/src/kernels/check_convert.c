// SPDX-License-Identifier: Apache-2.0
/*
 * Conversions of element types, compared with the formats' definitions in
 * double precision. test_dtype.c instead searches for the nearest value.
 */
#include <math.h>

#include "src/kernels/dtype.h"
#include "tests/src/kernels/check.h"

enum { COUNT = 512, SRC = 0 };

struct format {
    /* bits of the mantissa; the least exponent of a normal number */
    int mantissa, least;
    double most; /* the largest number */
    /* larger values become infinite; if false, they become the largest
     * number */
    bool infinite;
};

static struct format format_of(enum shunt_dtype dtype)
{
    switch (dtype) {
    case SHUNT_F16:
        return (struct format){10, -14, 65504, true};
    case SHUNT_BF16:
        return (struct format){7, -126, 0x1.fep127, true};
    default:
        return (struct format){3, -6, 448, false};
    }
}

/* `x` rounded to the nearest number of the format, ties to even. */
static double nearest(enum shunt_dtype dtype, double x)
{
    struct format f = format_of(dtype);
    double y;
    int exponent;

    if (isnan(x) || (isinf(x) && !f.infinite))
        return NAN;
    if (isinf(x) || x == 0)
        return x;
    exponent = ilogb(x) < f.least ? f.least : ilogb(x);
    y = ldexp(rint(ldexp(x, f.mantissa - exponent)), exponent - f.mantissa);
    if (fabs(y) > f.most)
        y = copysign(f.infinite ? INFINITY : f.most, x);
    return y;
}

/* Converts to the format and back. */
static float through(enum shunt_dtype dtype, float x)
{
    switch (dtype) {
    case SHUNT_F16:
        return shunti_f16_to_f32(shunti_f32_to_f16(x));
    case SHUNT_BF16:
        return shunti_bf16_to_f32(shunti_f32_to_bf16(x));
    default:
        return shunti_fp8_to_f32(shunti_f32_to_fp8(x));
    }
}

static void run(int v, enum shunt_dtype dtype, float *dst, const float *src,
                size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = v == REFERENCE ? (float)nearest(dtype, (double)src[i])
                                : through(dtype, src[i]);
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    float *src = memory(r, SRC, COUNT * sizeof(*src), 4);
    float got[COUNT], want[COUNT];

    values(r, src, COUNT, SHUNT_F32);
    run(REFERENCE, k->dtype, want, src, COUNT);
    run(v, k->dtype, got, src, COUNT);
    expect_same("there and back", got, want, COUNT, SHUNT_F32);
}

static double once(const struct kernel *k, int v, bool prepare)
{
    static float src[COUNT], dst[COUNT];

    if (prepare) {
        struct random r = {1};

        ordinary(&r, src, COUNT, SHUNT_F32);
    }
    run(v, k->dtype, dst, src, COUNT);
    __asm__ volatile("" : : "r"(dst) : "memory");
    return 8.0 * COUNT;
}

static const char *variant(int v)
{
    return v == 0 ? "plain" : NULL;
}

static bool runs(const struct kernel *k, int v)
{
    (void)k;
    return v == 0;
}

static const struct kernel kernels[] = {
    {.name = "f32 to f16 and back", .dtype = SHUNT_F16},
    {.name = "f32 to bf16 and back", .dtype = SHUNT_BF16},
    {.name = "f32 to fp8 and back", .dtype = SHUNT_FP8_E4M3},
    {.name = NULL},
};

const struct family family_convert = {
    .name = "convert",
    .kernels = kernels,
    .trials = 200,
    .variant = variant,
    .runs = runs,
    .trial = trial,
    .once = once,
    .digests = true,
};
