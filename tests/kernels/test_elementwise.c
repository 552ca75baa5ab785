// SPDX-License-Identifier: Apache-2.0
//
// Every set of element-wise kernels gives the baseline's bits, and the baseline
// is right. Odd lengths, so that every tail is taken.
#include "kernels/elementwise.h"
#include "tests/kernels/numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { MANY = 4096 };

static float x[MANY], g[MANY], dy[MANY], a[MANY], b[MANY], c[MANY], d[MANY];
static float a2[MANY], b2[MANY], c2[MANY], d2[MANY];
static const size_t lengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void set_up(void)
{
    numbers_fill(1, MANY, 3.0, x);
    numbers_fill(2, MANY, 1.0, g);
    numbers_fill(3, MANY, 1.0, dy);
}

TestSuite(kernels, .init = set_up, .timeout = 60);

#define SAME(got, want)                                   \
    cr_assert(memcmp(got, want, sizeof(want)) == 0,       \
              "%s differs from the baseline, length %zu", \
              shunti_isa_name(isa), n)

static void compare(enum shunti_isa isa, size_t n)
{
    const struct shunti_elementwise *ref = &shunti_elementwise_plain;
    const struct shunti_elementwise *k = shunti_elementwise_sets[isa];
    struct shunti_adamw step = {1e-3f, 0.9f,  0.95f, 1.5f,
                                2.5f,  1e-8f, 0.1f,  0.5f};

    memset(a, 0, sizeof(a));
    memset(a2, 0, sizeof(a2));
    ref->rmsnorm(3, n, 1e-5f, x, g, a, b);
    k->rmsnorm(3, n, 1e-5f, x, g, a2, b2);
    SAME(a2, a);
    memset(c, 0, sizeof(c));
    memset(c2, 0, sizeof(c2));
    memset(d, 0, sizeof(d));
    memset(d2, 0, sizeof(d2));
    ref->rmsnorm_backward(3, n, x, g, b, dy, c, d);
    k->rmsnorm_backward(3, n, x, g, b, dy, c2, d2);
    SAME(c2, c);
    SAME(d2, d);

    memcpy(a, x, sizeof(x));
    memcpy(a2, x, sizeof(x));
    float l = ref->softmax(n, 0.3f, a), l2 = k->softmax(n, 0.3f, a2);
    cr_assert(memcmp(&l, &l2, sizeof(l)) == 0);
    SAME(a2, a);
    memcpy(b, dy, sizeof(dy));
    memcpy(b2, dy, sizeof(dy));
    ref->softmax_backward(n, 0.3f, a, b);
    k->softmax_backward(n, 0.3f, a, b2);
    SAME(b2, b);

    ref->swiglu(3, n, x, a);
    k->swiglu(3, n, x, a2);
    SAME(a2, a);
    ref->swiglu_backward(3, n, x, dy, b);
    k->swiglu_backward(3, n, x, dy, b2);
    SAME(b2, b);

    memcpy(a, x, sizeof(x));
    memcpy(a2, x, sizeof(x));
    ref->rotate(n & ~(size_t)1, g, dy, -1.0f, a);
    k->rotate(n & ~(size_t)1, g, dy, -1.0f, a2);
    SAME(a2, a);
    ref->add(n, dy, a);
    k->add(n, dy, a2);
    SAME(a2, a);
    double s = ref->sum_squares(n, x), s2 = k->sum_squares(n, x);
    cr_assert(memcmp(&s, &s2, sizeof(s)) == 0);

    for (size_t i = 0; i < MANY; i++)
        c[i] = c2[i] = fabsf(g[i]);
    memcpy(b, dy, sizeof(dy));
    memcpy(b2, dy, sizeof(dy));
    ref->adamw(n, &step, g, a, b, c);
    k->adamw(n, &step, g, a2, b2, c2);
    SAME(a2, a);
    SAME(b2, b);
    SAME(c2, c);

    uint16_t h[300] = {0}, h2[300] = {0};
    ref->to_bf16(n, x, h);
    k->to_bf16(n, x, h2);
    SAME(h2, h);
    ref->from_bf16(n, h, a);
    k->from_bf16(n, h, a2);
    SAME(a2, a);
    ref->round_bf16(n, x, a);
    k->round_bf16(n, x, a2);
    SAME(a2, a);
    uint32_t w[300] = {0}, w2[300] = {0};
    for (int one = 0; one < 2; one++) {
        ref->pair_bf16(n, x, one ? NULL : dy, w);
        k->pair_bf16(n, x, one ? NULL : dy, w2);
        SAME(w2, w);
    }

    memset(a, 0, sizeof(a));
    memset(a2, 0, sizeof(a2));
    ref->transpose(13, n, x, n + 1, a, 15);
    k->transpose(13, n, x, n + 1, a2, 15);
    SAME(a2, a);
}

Test(kernels, all_sets_give_the_same_bits)
{
    for (int i = SHUNTI_ISA_PLAIN + 1; i < SHUNTI_ISA_COUNT; i++)
        for (size_t j = 0; j < LENGTHS; j++)
            if (shunti_isa_runs((enum shunti_isa)i) &&
                3 * 2 * lengths[j] <= MANY)
                compare((enum shunti_isa)i, lengths[j]);
}

Test(kernels, transpose_transposes)
{
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

// exp() shows in silu(x) * 1, and in softmax, over the whole range.
Test(kernels, exp_is_good_to_a_few_ulp)
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

Test(kernels, extremes_stay_finite)
{
    float in[4] = {-1e30f, 1e30f, 1.0f, 1.0f}, out[2],
          p[3] = {1e30f, -1e30f, 0};
    shunti_elementwise()->swiglu(1, 2, in, out);
    cr_assert(out[0] == 0.0f || fabsf(out[0]) < 1e-6f, "%g", out[0]);
    cr_assert_eq(out[1], 1e30f);
    shunti_elementwise()->softmax(3, 1.0f, p);
    cr_assert_eq(p[0], 1.0f);
    cr_assert_lt(p[1], 1e-30f);
    float bad[3] = {0, NAN, 0};
    shunti_elementwise()->softmax(3, 1.0f, bad);
    cr_assert(isnan(bad[1]));
}

Test(kernels, bf16_rounds_to_nearest_even)
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
