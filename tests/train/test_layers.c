// SPDX-License-Identifier: Apache-2.0
/*
 * The gradient of every layer, compared with finite differences, for small
 * shapes, with one and with several shares; and properties that a gradient does
 * not show.
 */
#include "src/kernels/elementwise.h"
#include "tests/train/gradient.h"
#include "train/base/error.h"
#include "train/layers/layers.h"
#include "train/layers/products.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 15 }; /* floats of each array below */

/* Arrays of the layer under test. The function's value is <y, c> for a fixed
 * random c, so that its gradient by y is c. */
static float x[MANY], w[MANY], w2[MANY], y[MANY], c[MANY], aux[MANY];
static float dx[MANY], dw[MANY], dw2[MANY], t1[MANY], t2[MANY], t3[MANY];
static float t4[MANY];
static uint8_t bytes[MANY];
static struct shunti_gemm *gemm;

struct shape {
    size_t R, D, F, G;
};

static const struct shape shapes[] = {
    {1, 4, 6, 1},    {3, 16, 8, 1},  {6, 17, 33, 2},
    {32, 24, 16, 4}, {70, 8, 40, 1},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void set_up(void)
{
    cr_assert_eq(products_create("naive", SHUNTI_GEMM_F32, &gemm), 0, "%s",
                 train_error_text());
    gradient_fill(1, MANY, 1.0, x);
    gradient_fill(2, MANY, 0.5, w);
    gradient_fill(3, MANY, 0.5, w2);
    gradient_fill(4, MANY, 1.0, c);
    for (size_t i = 0; i < MANY; i++)
        bytes[i] = (uint8_t)(i * 37 + i / 5);
}

static void tear_down(void)
{
    shunti_gemm_destroy(gemm);
}

TestSuite(layers, .init = set_up, .fini = tear_down, .timeout = 60);

static double value(size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)y[i] * c[i];
    return sum;
}

/* Clears the gradients of G shares of n numbers each, which begin at d. */
static struct grad shares(float *d, size_t n, size_t G)
{
    memset(d, 0, n * G * sizeof(*d));
    return (struct grad){d, n, G};
}

/* Adds the gradients of the other shares to that of the first share. */
static void fold(struct grad g, size_t n)
{
    for (size_t s = 1; s < g.shares; s++)
        for (size_t i = 0; i < n; i++)
            g.data[i] += g.data[s * g.stride + i];
}

static double linear_value(void *context)
{
    const struct shape *s = context;

    linear(gemm, s->R, s->D, s->F, x, w, SHUNTI_GEMM_SET, y);
    return value(s->R * s->F);
}

Test(layers, unknown_product_is_an_error)
{
    struct shunti_gemm *other = NULL;

    cr_assert_eq(products_create("cublas", SHUNTI_GEMM_F32, &other), -1);
    cr_assert(strstr(train_error_text(), "cublas"));
}

Test(layers, linear_gradient)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        size_t n = s.D * s.F;
        struct grad g = shares(dw, n, s.G);
        linear_backward(gemm, s.R, s.D, s.F, c, x, w, SHUNTI_GEMM_SET, dx, g);
        fold(g, n);
        gradient_check("x", linear_value, &s, x, dx, s.R * s.D, 0.1, 1e-4);
        gradient_check("w", linear_value, &s, w, dw, n, 0.1, 1e-4);
    }
}

/* Finite differences cannot test bf16 products. So they are compared with the
 * definition. got (R, F): sums over k of a (R, k) b (k, F), in bf16, with
 * strides. */
static void by_definition(const char *what, const float *got, size_t R,
                          size_t F, size_t k, const float *a, size_t a_row,
                          size_t a_k, const float *b, size_t b_k, size_t b_col)
{
    for (size_t i = 0; i < R; i++)
        for (size_t j = 0; j < F; j++) {
            double sum = 0, magnitude = 0;
            for (size_t p = 0; p < k; p++) {
                float in[2] = {a[i * a_row + p * a_k], b[p * b_k + j * b_col]};
                float r[2];
                shunti_elementwise_plain.round_bf16(2, in, r);
                sum += (double)r[0] * r[1];
                magnitude += fabs((double)r[0] * r[1]);
            }
            cr_assert(fabs(got[i * F + j] - sum) <=
                          ldexp((double)k + 1, -24) * magnitude,
                      "%s (%zu, %zu) is %.9g, not %.9g", what, i, j,
                      got[i * F + j], sum);
        }
}

Test(layers, linear_of_bf16)
{
    struct shunti_gemm *bf16;

    cr_assert_eq(products_create(NULL, SHUNTI_GEMM_BF16, &bf16), 0);
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        size_t n = s.D * s.F, share = s.R / s.G;
        struct grad g = shares(dw, n, s.G);
        linear(bf16, s.R, s.D, s.F, x, w, SHUNTI_GEMM_SET, y);
        by_definition("y", y, s.R, s.F, s.D, x, s.D, 1, w, s.F, 1);
        linear_backward(bf16, s.R, s.D, s.F, c, x, w, SHUNTI_GEMM_SET, dx, g);
        by_definition("dx", dx, s.R, s.D, s.F, c, s.F, 1, w, 1, s.F);
        for (size_t k = 0; k < s.G; k++)
            by_definition("dw", dw + k * n, s.D, s.F, share,
                          x + k * share * s.D, 1, s.D, c + k * share * s.F, s.F,
                          1);
    }
    shunti_gemm_destroy(bf16);
}

static double embedding_value(void *context)
{
    const struct shape *s = context;

    embedding(s->R, s->D, bytes, w, y);
    return value(s->R * s->D);
}

Test(layers, embedding_gradient)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        size_t n = VOCABULARY * s.D;
        struct grad g = shares(dw, n, s.G);
        embedding_backward(s.R, s.D, c, bytes, g);
        fold(g, n);
        gradient_check("table", embedding_value, &s, w, dw, n, 0.1, 1e-4);
    }
}

static double rmsnorm_value(void *context)
{
    const struct shape *s = context;

    rmsnorm(s->R, s->D, x, w, y, aux);
    return value(s->R * s->D);
}

Test(layers, rmsnorm_gradient)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        struct grad g = shares(dw, s.D, s.G);
        rmsnorm_value(&s);
        memset(dx, 0, s.R * s.D * sizeof(*dx));
        rmsnorm_backward(s.R, s.D, c, x, w, aux, dx, g);
        fold(g, s.D);
        gradient_check("x", rmsnorm_value, &s, x, dx, s.R * s.D, 0.02, 1e-3);
        gradient_check("gain", rmsnorm_value, &s, w, dw, s.D, 0.05, 1e-3);
    }
}

Test(layers, rmsnorm_backward_adds)
{
    struct grad g = {dw, 16, 1};

    rmsnorm(3, 16, x, w, y, aux);
    memset(dw, 0, sizeof(dw));
    memset(dx, 0, sizeof(dx));
    rmsnorm_backward(3, 16, c, x, w, aux, dx, g);
    memcpy(t1, dx, sizeof(dx));
    rmsnorm_backward(3, 16, c, x, w, aux, dx, g);
    for (size_t i = 0; i < 48; i++)
        cr_assert_float_eq(dx[i], 2 * t1[i], 1e-5);
}

static double feed_forward_value(void *context)
{
    const struct shape *s = context;

    feed_forward_hidden(gemm, s->R, s->D, s->F, x, w, t1, t2);
    linear(gemm, s->R, s->F, s->D, t2, w2, SHUNTI_GEMM_SET, y);
    return value(s->R * s->D);
}

Test(layers, feed_forward_gradient)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        size_t n = s.D * 2 * s.F, n2 = s.F * s.D;
        struct grad g = shares(dw, n, s.G), g2 = shares(dw2, n2, s.G);
        feed_forward_value(&s);
        feed_forward_backward_hidden(gemm, s.R, s.D, s.F, c, w2, t1, t3, t4);
        linear_backward_input(gemm, s.R, s.D, 2 * s.F, t4, w, SHUNTI_GEMM_SET,
                              dx);
        feed_forward_backward_weights(gemm, s.R, s.D, s.F, c, x, t2, t4, g, g2);
        fold(g, n);
        fold(g2, n2);
        gradient_check("x", feed_forward_value, &s, x, dx, s.R * s.D, 0.02,
                       1e-3);
        gradient_check("gate_up", feed_forward_value, &s, w, dw, n, 0.02, 1e-3);
        gradient_check("down", feed_forward_value, &s, w2, dw2, n2, 0.02, 1e-3);
    }
}

static double cross_entropy_value(void *context)
{
    const struct shape *s = context;
    double sum = 0;

    memcpy(y, x, s->R * VOCABULARY * sizeof(*x));
    cross_entropy(s->R, y, bytes, t1);
    for (size_t r = 0; r < s->R; r++)
        sum += t1[r];
    return sum;
}

Test(layers, cross_entropy_gradient)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        cross_entropy_value(&s);
        memcpy(dx, y, s.R * VOCABULARY * sizeof(*y));
        cross_entropy_backward(s.R, dx, bytes, 1.0f);
        gradient_check("logits", cross_entropy_value, &s, x, dx,
                       s.R * VOCABULARY, 0.05, 1e-3);
    }
}

/* Equal logits must have a loss of log 256 for any target. */
Test(layers, cross_entropy_of_uniform_logits)
{
    for (size_t i = 0; i < 3 * VOCABULARY; i++)
        y[i] = 7.0f;
    cross_entropy(3, y, bytes, t1);
    for (size_t r = 0; r < 3; r++)
        cr_assert_float_eq(t1[r], 5.545177444479562, 1e-6);
}
