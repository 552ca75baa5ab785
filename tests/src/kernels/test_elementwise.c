// SPDX-License-Identifier: Apache-2.0
/*
 * Tests element-wise kernels by their definitions. check_elementwise.c compares
 * the instruction sets.
 */
#include "src/kernels/elementwise.h"
#include "tests/src/kernels/numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { MANY = 512 };

TestSuite(elementwise, .timeout = 60);

Test(elementwise, transpose_transposes)
{
    static float x[MANY], a[MANY];

    numbers_fill(1, MANY, 3.0, x);
    for (size_t m = 1; m < 20; m++)
        for (size_t n = 1; n < 20; n++) {
            memset(a, 0x55, sizeof(a));
            shunti_elementwise()->transpose(m, n, x, 23, a, 21);
            for (size_t i = 0; i < 20; i++)
                for (size_t j = 0; j < 20; j++)
                    if (i < m && j < n)
                        cr_assert_eq(a[j * 21 + i], x[i * 23 + j]);
                    else
                        cr_assert_eq(((uint32_t *)a)[j * 21 + i], 0x55555555u);
        }
}

/* Tests exp() through silu(x) * 1 and through softmax, over the whole range. */
Test(elementwise, exp_is_good_to_a_few_ulp)
{
    for (double v = -30; v < 30; v += 0.0137) {
        float in[2] = {(float)v, 1.0f}, out;
        shunti_elementwise_plain.swiglu(1, 1, in, &out);
        double want = in[0] / (1.0 + exp(-(double)in[0]));
        cr_assert(fabs(out - want) <= 6e-7 * fabs(want),
                  "silu(%g) is %.9g, "
                  "not %.9g",
                  v, out, want);
    }
}

Test(elementwise, extremes_stay_finite)
{
    float in[4] = {-1e30f, 1e30f, 1.0f, 1.0f}, out[2],
          p[3] = {1e30f, -1e30f, 0};
    shunti_elementwise()->swiglu(1, 2, in, out);
    cr_assert(out[0] == 0.0f || fabsf(out[0]) < 1e-6f, "%g", out[0]);
    cr_assert_eq(out[1], 1e30f);
    shunti_elementwise()->softmax(3, 1.0f, p);
    cr_assert_eq(p[0], 1.0f);
    cr_assert(p[1] < 1e-30f);
    float bad[3] = {0, NAN, 0};
    shunti_elementwise()->softmax(3, 1.0f, bad);
    cr_assert(isnan(bad[1]));
}

Test(elementwise, bf16_rounds_to_nearest_even)
{
    static const struct {
        uint32_t bits;
        uint16_t want;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
        {0x3f818000, 0x3f82}, {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80},
        {0x7f800001, 0x7fc0}, {0x80000000, 0x8000},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        float f;
        uint16_t got;
        memcpy(&f, &cases[i].bits, sizeof(f));
        shunti_elementwise()->to_bf16(1, &f, &got);
        cr_assert_eq(got, cases[i].want, "%08x gives %04x", cases[i].bits, got);

        uint32_t want = cases[i].want, bits, pair;
        float rounded;
        shunti_elementwise()->round_bf16(1, &f, &rounded);
        memcpy(&bits, &rounded, sizeof(bits));
        cr_assert_eq(bits, want << 16, "%08x gives %08x", cases[i].bits, bits);
        shunti_elementwise()->pair_bf16(1, &f, &f, &pair);
        cr_assert_eq(pair, want << 16 | want, "%08x gives %08x", cases[i].bits,
                     pair);
        shunti_elementwise()->pair_bf16(1, &f, NULL, &pair);
        cr_assert_eq(pair, want, "%08x gives %08x", cases[i].bits, pair);
    }
}
