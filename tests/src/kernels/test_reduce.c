// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions of numbers that need no reference. check_reduce.c has the others.
 */

#include <criterion/criterion.h>
#include <stdint.h>

#include "src/kernels/reduce.h"

TestSuite(reduce, .timeout = 120);

/* Compares with results that were computed by hand. */
Test(reduce, by_hand)
{
    const int8_t a[] = {100, -128, -7, 3}, b[] = {100, -1, 2, 5};
    const void *const ints[] = {a, b};
    const float x[] = {1.0f, -0.0f, 0.0f, 2.5f};
    const float y[] = {__builtin_nanf(""), 0.0f, -0.0f, -2.0f};
    const void *const floats[] = {x, y};
    const uint16_t h[] = {0x3f80}, tiny[] = {0x3b80}; /* 1, 2^-8 */
    const void *const halves[] = {h, tiny, tiny};
    int8_t i8[4];
    float f[4];
    uint16_t bf[1];

    shunti_reduce(i8, ints, 2, 4, SHUNT_I8, SHUNT_SUM, 2);
    cr_assert(i8[0] == -56 && i8[1] == 127 && i8[2] == -5 && i8[3] == 8);
    shunti_reduce(i8, ints, 2, 4, SHUNT_I8, SHUNT_AVG, 2);
    cr_assert(i8[0] == -28 && i8[1] == 63 && i8[2] == -2 && i8[3] == 4);
    shunti_reduce(i8, ints, 2, 4, SHUNT_I8, SHUNT_PROD, 2);
    cr_assert(i8[0] == 16 && i8[1] == -128 && i8[2] == -14 && i8[3] == 15);
    shunti_reduce(i8, ints, 2, 4, SHUNT_I8, SHUNT_MIN, 2);
    cr_assert(i8[0] == 100 && i8[1] == -128 && i8[2] == -7 && i8[3] == 3);

    shunti_reduce(f, floats, 2, 4, SHUNT_F32, SHUNT_MIN, 2);
    cr_assert(f[0] != f[0] && __builtin_signbit(f[1]) &&
              !__builtin_signbit(f[2]) && f[3] == -2.0f);
    shunti_reduce(f, floats, 2, 4, SHUNT_F32, SHUNT_MAX, 2);
    cr_assert(f[0] != f[0] && f[3] == 2.5f);
    shunti_reduce(f, floats, 2, 4, SHUNT_F32, SHUNT_AVG, 2);
    cr_assert(f[3] == 0.25f);

    /* The sum is rounded once. Two terms of 2^-8 are one unit in the last place
     * of 1.0. A single one is half a unit, and would be rounded to even, which
     * drops it. */
    shunti_reduce(bf, halves, 3, 1, SHUNT_BF16, SHUNT_SUM, 3);
    cr_assert_eq(bf[0], 0x3f81);
}

/* There are more ranks than an i8 can count. */
Test(reduce, many_sources)
{
    enum { N = 300 };
    const int8_t a[] = {1, 0, -1};
    const void *srcs[N];
    int8_t sum[3];

    for (int k = 0; k < N; k++)
        srcs[k] = a;
    shunti_reduce(sum, srcs, N, 3, SHUNT_I8, SHUNT_AVG, N);
    cr_assert(sum[0] == 0 && sum[1] == 0 && sum[2] == 0);
    shunti_reduce(sum, srcs, N, 3, SHUNT_I8, SHUNT_SUM, N);
    cr_assert(sum[0] == 300 - 256 && sum[2] == 256 - 300);
}
