// SPDX-License-Identifier: Apache-2.0
//
// The reduction kernels and copies: every variant of every instruction set that
// this processor has, against the plain reference, over random shapes.

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "tests/collectives/random.h"
#include "tests/collectives/reduce_ref.h"

TestSuite(reduce, .timeout = 120);

enum { MAX_N = 9, MAX_COUNT = 5000, GUARD = 64 };

static unsigned char sources[MAX_N][MAX_COUNT * 8 + 2 * GUARD];
static unsigned char got[MAX_COUNT * 8 + 2 * GUARD];
static unsigned char want[MAX_COUNT * 8 + 2 * GUARD];

static void one_shape(enum shunti_isa isa, uint64_t seed)
{
    struct random r = {seed};
    enum shunt_dtype dtype =
        (enum shunt_dtype)(SHUNT_I8 + random_below(&r, SHUNT_F64));
    enum shunt_op op = (enum shunt_op)(SHUNT_SUM + random_below(&r, 5));
    int n = 1 + (int)random_below(&r, MAX_N);
    size_t count = random_below(&r, 4) ? random_below(&r, 80)
                                       : random_below(&r, MAX_COUNT + 1);
    size_t bytes = count * shunt_dtype_size(dtype);
    size_t at = GUARD / 2 + random_below(&r, GUARD / 2);
    const void *srcs[MAX_N];
    unsigned char *dst = got + at;
    size_t differs;

    for (int k = 0; k < n; k++) {
        unsigned char *src = sources[k] + random_below(&r, GUARD);

        random_elements(&r, src, count, dtype);
        srcs[k] = src;
    }
    memset(want, 0xa5, sizeof(want));
    reduce_ref(want + at, srcs, n, count, dtype, op, n);
    memset(got, 0xa5, sizeof(got));
    if (random_below(&r, 2)) { // in place of one of them
        int k = (int)random_below(&r, (uint64_t)n);

        memcpy(dst, srcs[k], bytes);
        srcs[k] = dst;
    }
    shunti_reduce_sets[isa]->run(dst, srcs, n, count, dtype, op, n);
    differs = reduce_compare(dst, want + at, count, dtype);
    cr_assert_eq(differs, count,
                 "%s: seed %llu: dtype %d op %d n %d count %zu: element %zu",
                 shunti_isa_name(isa), (unsigned long long)seed, dtype, op, n,
                 count, differs);
    for (size_t i = 0; i < sizeof(got); i++)
        if (i < at || i >= at + bytes)
            cr_assert_eq(got[i], 0xa5, "%s: seed %llu: wrote at %zu",
                         shunti_isa_name(isa), (unsigned long long)seed, i);
}

Test(reduce, all_variants)
{
    int tested = 0;

    for (int i = 0; i < SHUNTI_ISA_COUNT; i++) {
        if (!shunti_isa_runs((enum shunti_isa)i))
            continue;
        tested++;
        for (uint64_t seed = 1; seed <= 4000; seed++)
            one_shape((enum shunti_isa)i, seed);
    }
    cr_assert_geq(tested, 1);
}

// What the definition says, in numbers that need no reference.
Test(reduce, by_hand)
{
    const int8_t a[] = {100, -128, -7, 3}, b[] = {100, -1, 2, 5};
    const void *const ints[] = {a, b};
    const float x[] = {1.0f, -0.0f, 0.0f, 2.5f};
    const float y[] = {__builtin_nanf(""), 0.0f, -0.0f, -2.0f};
    const void *const floats[] = {x, y};
    const uint16_t h[] = {0x3f80}, tiny[] = {0x3b80}; // 1, 2^-8
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

    // Rounded once: twice 2^-8 is a whole unit of 1.0, each alone is half of
    // one and would round to even, that is, vanish.
    shunti_reduce(bf, halves, 3, 1, SHUNT_BF16, SHUNT_SUM, 3);
    cr_assert_eq(bf[0], 0x3f81);
}

// More ranks than an i8 can count.
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

Test(reduce, copies)
{
    static const size_t sizes[] = {0,      1,      63,      64,      255,
                                   256,    257,    4096,    4097,    65536 + 7,
                                   524287, 524288, 3000001, 17 << 20};
    struct random r = {7};
    unsigned char *from = malloc((17 << 20) + 256);
    unsigned char *to = malloc((17 << 20) + 256);

    cr_assert(from && to);
    for (size_t i = 0; i < (17 << 20) + 256; i++)
        from[i] = (unsigned char)random_next(&r);
    for (int trial = 0; trial < 60; trial++) {
        size_t n = sizes[(size_t)trial % (sizeof(sizes) / sizeof(*sizes))];
        size_t s = random_below(&r, 128), d = 1 + random_below(&r, 127);

        for (int stream = 0; stream < 2; stream++) {
            memset(to, 0xa5, n + 256);
            if (stream) {
                shunti_copy_stream(to + d, from + s, n);
                shunti_copy_fence();
            } else {
                shunti_copy(to + d, from + s, n);
            }
            cr_assert_eq(memcmp(to + d, from + s, n), 0, "%zu %zu %zu", n, s,
                         d);
            cr_assert(to[d - 1] == 0xa5 && to[d + n] == 0xa5);
        }
    }
    free(from);
    free(to);
}
