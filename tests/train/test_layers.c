// SPDX-License-Identifier: Apache-2.0
/*
 * Every layer's gradient against finite differences, over small shapes, with
 * one and with several shares; and what a gradient does not show.
 */
#include "kernels/elementwise.h"
#include "tests/train/gradient.h"
#include "train/error.h"
#include "train/layers.h"
#include "train/products.h"
#include "train/rows.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 15 }; /* floats of each array below */

/* Arrays of a layer under test. The value is <y, c> for a fixed random c, so
 * that its gradient in y is c. */
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

/* The shares' gradients (stride apart) added up, into the first. */
static struct grad shares(float *d, size_t n, size_t G)
{
    memset(d, 0, n * G * sizeof(*d));
    return (struct grad){d, n, G};
}

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

/* Finite differences of bf16 products say nothing: they are compared with the
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

    feed_forward(gemm, s->R, s->D, s->F, x, w, w2, t1, t2, SHUNTI_GEMM_SET, y);
    return value(s->R * s->D);
}

Test(layers, feed_forward_gradient)
{
    for (size_t i = 0; i < SHAPES; i++) {
        struct shape s = shapes[i];
        size_t n = s.D * 2 * s.F, n2 = s.F * s.D;
        struct grad g = shares(dw, n, s.G), g2 = shares(dw2, n2, s.G);
        feed_forward_value(&s);
        feed_forward_backward(gemm, s.R, s.D, s.F, c, x, w, w2, t1, t2, t3, t4,
                              SHUNTI_GEMM_SET, dx, g, g2);
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

/* The loss of uniform logits is log 256 whatever the target. */
Test(layers, cross_entropy_of_uniform_logits)
{
    for (size_t i = 0; i < 3 * VOCABULARY; i++)
        y[i] = 7.0f;
    cross_entropy(3, y, bytes, t1);
    for (size_t r = 0; r < 3; r++)
        cr_assert_float_eq(t1[r], 5.545177444479562, 1e-6);
}

/* --- attention ------------------------------------------------------------ */

struct attention_shape {
    size_t B, T, D, H;
    struct rope rope;
};

static struct attention_shape attention_shapes[] = {
    {1, 1, 4, 1, {0}},
    {2, 5, 8, 2, {0}},
    {1, 67, 12, 3, {0}},
    {1, 130, 8, 1, {0}},
};

static float kept[MANY];
static float work[MANY];

static double attention_value(void *context)
{
    const struct attention_shape *s = context;
    size_t R = s->B * s->T;

    memcpy(t1, x, R * 3 * s->D * sizeof(*x));
    attention(gemm, &s->rope, s->B, s->T, s->D, s->H, t1, kept, y, work);
    return value(R * s->D);
}

Test(layers, attention_gradient)
{
    for (size_t i = 0; i < 4; i++) {
        struct attention_shape *s = &attention_shapes[i];
        size_t R = s->B * s->T;
        cr_assert_eq(rope_create(&s->rope, s->T, s->D / s->H, 10000.0), 0);
        cr_assert_leq(attention_work(s->T, s->D / s->H), (size_t)MANY);
        /* What is not written must not be read either. */
        memset(kept, 0xff, sizeof(kept));
        memset(work, 0xff, sizeof(work));
        attention_value(s);
        attention_backward(gemm, &s->rope, s->B, s->T, s->D, s->H, c, t1, kept,
                           dx, work);
        gradient_check("qkv", attention_value, s, x, dx, R * 3 * s->D, 0.02,
                       1e-3);
        rope_destroy(&s->rope);
    }
}

/* Attention and its gradient with all probabilities of a head in one (T, T)
 * array: from rotated q, k and v (t1) y (t2) and, not turned back, dqkv (t3). */
static void unfused(const struct attention_shape *s)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    static float p[MANY], dp[MANY], kt[MANY], vt[MANY];
    const size_t T = s->T, D = s->D, W = D / s->H, block = 64;
    const float scale = 1.0f / sqrtf((float)W);

    memset(t3, 0, s->B * T * 3 * D * sizeof(*t3));
    for (size_t bh = 0; bh < s->B * s->H; bh++) {
        const size_t row = bh / s->H * T, at = row * 3 * D + bh % s->H * W;
        const float *q = t1 + at, *k = q + D, *v = k + D;
        const float *dout = c + row * D + bh % s->H * W;
        float *dq = t3 + at, *dk = dq + D, *dv = dk + D;

        kern->transpose(T, W, k, 3 * D, kt, T);
        kern->transpose(T, W, v, 3 * D, vt, T);
        shunti_gemm_nn(gemm, T, T, W, q, 3 * D, kt, T, SHUNTI_GEMM_SET, p, T);
        shunti_gemm_nn(gemm, T, T, W, dout, D, vt, T, SHUNTI_GEMM_SET, dp, T);
        for (size_t i = 0; i < T; i++) {
            kern->softmax(i + 1, scale, p + i * T);
            kern->softmax_backward(i + 1, scale, p + i * T, dp + i * T);
            memset(p + i * T + i + 1, 0, (T - i - 1) * sizeof(float));
            memset(dp + i * T + i + 1, 0, (T - i - 1) * sizeof(float));
        }
        shunti_gemm_nn(gemm, T, W, T, p, T, v, 3 * D, SHUNTI_GEMM_SET,
                       t2 + row * D + bh % s->H * W, D);
        shunti_gemm_nn(gemm, T, W, T, dp, T, k, 3 * D, SHUNTI_GEMM_SET, dq,
                       3 * D);
        /* Sums over rows are made block by block. */
        for (size_t i = 0; i < T; i += block) {
            const size_t m = T - i < block ? T - i : block;
            shunti_gemm_tn(gemm, T, W, m, p + i * T, T, dout + i * D, D,
                           SHUNTI_GEMM_ADD, dv, 3 * D);
            shunti_gemm_tn(gemm, T, W, m, dp + i * T, T, q + i * 3 * D, 3 * D,
                           SHUNTI_GEMM_ADD, dk, 3 * D);
        }
    }
}

/* The same bits, by the products of each library that there is. */
Test(layers, attention_without_its_matrix_has_the_same_bits)
{
    static const char *const products[] = {"naive", NULL};

    for (size_t g = 0; g < 2; g++) {
        shunti_gemm_destroy(gemm);
        cr_assert_eq(products_create(products[g], SHUNTI_GEMM_F32, &gemm), 0);
        for (size_t i = 0; i < 4; i++) {
            struct attention_shape *s = &attention_shapes[i];
            const size_t n = s->B * s->T * s->D, half = s->D / s->H / 2;

            cr_assert_eq(rope_create(&s->rope, s->T, s->D / s->H, 10000.0), 0);
            attention_value(s);
            attention_backward(gemm, &s->rope, s->B, s->T, s->D, s->H, c, t1,
                               kept, dx, work);
            unfused(s);
            for (size_t r = 0; r < s->B * s->T; r++)
                for (size_t h = 0; h < 2 * s->H; h++)
                    shunti_elementwise()->rotate(
                        2 * half, s->rope.cosine + r % s->T * half,
                        s->rope.sine + r % s->T * half, -1.0f,
                        t3 + r * 3 * s->D + h * 2 * half);
            cr_assert_eq(memcmp(y, t2, n * sizeof(*y)), 0, "y of shape %zu", i);
            cr_assert_eq(memcmp(dx, t3, 3 * n * sizeof(*dx)), 0,
                         "dqkv of shape %zu", i);
            rope_destroy(&s->rope);
        }
    }
}

/* What attention keeps, and its scratch, do not grow with the square of T. */
Test(layers, attention_has_no_array_of_all_pairs)
{
    struct model_config a = {.dim = 64,
                             .layers = 2,
                             .heads = 4,
                             .seq = 64,
                             .experts = 4,
                             .topk = 2,
                             .expert_hidden = 32};
    struct model_config b = a;

    b.seq = 4096;
    cr_assert_eq(rows_bytes(&a, 4096, 1), rows_bytes(&b, 4096, 1));
    cr_assert_eq(rows_bytes(&a, 8192, 1), 2 * rows_bytes(&a, 4096, 1));
    cr_assert_eq(attention_work(8192, 16), 2 * attention_work(4096, 16));
}

/* Against attention as it is defined, in f64. */
Test(layers, attention_by_definition)
{
    struct attention_shape s = {2, 70, 12, 2, {0}};
    size_t W = s.D / s.H, half = W / 2;

    cr_assert_eq(rope_create(&s.rope, s.T, W, 10000.0), 0);
    attention_value(&s);
    for (size_t b = 0; b < s.B; b++)
        for (size_t h = 0; h < s.H; h++)
            for (size_t i = 0; i < s.T; i++) {
                double score[70], sum = 0;
                for (size_t j = 0; j <= i; j++) {
                    /* turning q by i and k by j is turning q by i - j */
                    const float *q = x + (b * s.T + i) * 3 * s.D + h * W;
                    const float *k = x + (b * s.T + j) * 3 * s.D + s.D + h * W;
                    double dot = 0;
                    for (size_t u = 0; u < half; u++) {
                        double a = (double)(i - j) *
                                   pow(10000.0, -(double)u / (double)half);
                        double q0 = q[u] * cos(a) - q[half + u] * sin(a);
                        double q1 = q[u] * sin(a) + q[half + u] * cos(a);
                        dot += q0 * k[u] + q1 * k[half + u];
                    }
                    score[j] = exp(dot / sqrt((double)W));
                    sum += score[j];
                }
                for (size_t u = 0; u < W; u++) {
                    double want = 0;
                    for (size_t j = 0; j <= i; j++)
                        want +=
                            score[j] / sum *
                            x[(b * s.T + j) * 3 * s.D + 2 * s.D + h * W + u];
                    double got = y[(b * s.T + i) * s.D + h * W + u];
                    cr_assert_float_eq(got, want, 1e-4);
                }
            }
    rope_destroy(&s.rope);
}
