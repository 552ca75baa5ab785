// SPDX-License-Identifier: Apache-2.0
/*
 * Element-wise kernels as elementwise.h defines them, one element after
 * another. Element i is added to lane i % 16, and the lanes are then added in
 * halves. The polynomial of exp() is that of Cephes; test_elementwise.c
 * compares it with libm.
 */
#include "tests/src/kernels/elementwise_ref.h"

#include <math.h>
#include <stdbool.h>

#include "src/kernels/dtype.h"

enum { LANES = 16 };

static float lanes_sum(float s[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            s[i] += s[i + width];
    return s[0];
}

static float exponential(float x)
{
    static const float c[] = {1.9875691500e-4f, 1.3981999507e-3f,
                              8.3334519073e-3f, 4.1665795894e-2f,
                              1.6666665459e-1f, 5.0000001201e-1f};
    const float magic = 0x1.8p23f;
    float z, n, r, p;

    if (x < -87)
        x = -87;
    if (x > 88)
        x = 88;
    z = x * 1.44269504f + magic;
    n = z - magic; /* x / ln 2, rounded */
    r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    p = c[0];
    for (int i = 1; i < 6; i++)
        p = p * r + c[i];
    p = p * (r * r) + r + 1;
    if (isnan(x))
        return x;
    return p * ldexpf(1, (int)n);
}

static void transpose(size_t m, size_t n, const float *a, size_t lda, float *b,
                      size_t ldb)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            b[j * ldb + i] = a[i * lda + j];
}

static void add(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

static double sum_squares(size_t n, const float *x)
{
    double s[LANES] = {0}, sum = 0;

    for (size_t i = 0; i < n; i++)
        s[i % LANES] += (double)x[i] * (double)x[i];
    for (int i = 0; i < LANES; i++)
        sum += s[i];
    return sum;
}

static void add_f64(size_t n, const float *x, double *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += (double)x[i];
}

static float sum(size_t n, const float *x)
{
    float s[LANES] = {0};

    for (size_t i = 0; i < n; i++)
        s[i % LANES] += x[i];
    return lanes_sum(s);
}

static float dot(size_t n, const float *x, const float *y)
{
    float s[LANES] = {0};

    for (size_t i = 0; i < n; i++)
        s[i % LANES] += x[i] * y[i];
    return lanes_sum(s);
}

static void rmsnorm(size_t rows, size_t n, float eps, const float *x,
                    const float *gain, float *y, float *inverse)
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * n;

        inverse[r] = 1 / sqrtf(dot(n, row, row) / (float)n + eps);
        for (size_t i = 0; i < n; i++)
            y[r * n + i] = row[i] * inverse[r] * gain[i];
    }
}

static void rmsnorm_backward(size_t rows, size_t n, const float *x,
                             const float *gain, const float *inverse,
                             const float *dy, float *dx, float *dgain)
{
    for (size_t r = 0; r < rows; r++) {
        float s[LANES] = {0}, inv = inverse[r], c;

        for (size_t i = 0; i < n; i++)
            s[i % LANES] += dy[r * n + i] * gain[i] * x[r * n + i];
        c = lanes_sum(s) / (float)n * (inv * inv * inv);
        for (size_t i = 0; i < n; i++) {
            float d = dy[r * n + i], v = x[r * n + i];

            dx[r * n + i] += d * gain[i] * inv - v * c;
            dgain[i] += d * v * inv;
        }
    }
}

static float softmax(size_t n, float scale, float *p)
{
    float top = p[0] * scale, s[LANES] = {0}, sum, inverse;

    for (size_t i = 0; i < n; i++)
        if (p[i] * scale > top)
            top = p[i] * scale;
    for (size_t i = 0; i < n; i++) {
        p[i] = exponential(p[i] * scale - top);
        s[i % LANES] += p[i];
    }
    sum = lanes_sum(s);
    inverse = 1 / sum;
    for (size_t i = 0; i < n; i++)
        p[i] *= inverse;
    return top + logf(sum);
}

static float log_sum_exp(size_t n, const float *x)
{
    float top = x[0], s[LANES] = {0};

    for (size_t i = 0; i < n; i++)
        if (x[i] > top)
            top = x[i];
    for (size_t i = 0; i < n; i++)
        s[i % LANES] += exponential(x[i] - top);
    return top + logf(lanes_sum(s));
}

static void softmax_backward(size_t n, float scale, const float *p, float *dp)
{
    float mean = dot(n, p, dp);

    for (size_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - mean) * scale;
}

static float power_of_two(float x)
{
    const float magic = 0x1.8p23f;
    float n, r, r2, by4, by2, by0;

    if (x < -126)
        x = -126;
    n = x + magic - magic; /* rounded */
    r = x - n;
    r2 = r * r;
    by4 = 1.535336188319500e-4f * r2 +
          (1.339887440266574e-3f * r + 9.618437357674640e-3f);
    by2 = by4 * r2 + (5.550332471162809e-2f * r + 2.402264791363012e-1f);
    by0 = by2 * r2 + 6.931472028550421e-1f * r + 1;
    return isnan(x) ? x : by0 * ldexpf(1, (int)n);
}

static void softmax_tile(size_t rows, size_t n, ptrdiff_t first, float *s,
                         float *top, float *sum, float *factor)
{
    for (size_t i = 0; i < n; i++) {
        float before = top[i];

        for (size_t r = 0; r < rows; r++)
            if ((ptrdiff_t)i >= first + (ptrdiff_t)r && s[r * n + i] > top[i])
                top[i] = s[r * n + i];
        factor[i] = power_of_two(before - top[i]);
        sum[i] *= factor[i];
        for (size_t r = 0; r < rows; r++) {
            float *p = &s[r * n + i];

            *p = (ptrdiff_t)i >= first + (ptrdiff_t)r
                     ? power_of_two(*p - top[i])
                     : 0;
            sum[i] += *p;
        }
    }
}

static void softmax_tile_backward(size_t rows, size_t n, ptrdiff_t first,
                                  const float *lse, const float *delta,
                                  float *p, float *dp)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            float *at = &p[r * n + i], *d = &dp[r * n + i];
            bool seen = (ptrdiff_t)i >= first + (ptrdiff_t)r;

            *at = seen ? power_of_two(*at - lse[i]) : 0;
            *d = seen ? *at * (*d - delta[i]) : 0;
        }
}

static void row_dots(size_t rows, size_t n, const float *x, const float *y,
                     size_t ld, float *to)
{
    for (size_t r = 0; r < rows; r++)
        to[r] = dot(n, x + r * ld, y + r * ld);
}

static void scale_rows(size_t rows, size_t n, const float *by, float *x,
                       size_t ld)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            x[r * ld + i] *= by[r];
}

static void sigmoid(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = 1 / (1 + exponential(-x[i]));
}

static void swiglu(size_t rows, size_t n, const float *x, float *y)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            float gate = x[2 * r * n + i], up = x[2 * r * n + n + i];

            y[r * n + i] = gate / (1 + exponential(-gate)) * up;
        }
}

static void swiglu_backward(size_t rows, size_t n, const float *x,
                            const float *dy, float *dx)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            float gate = x[2 * r * n + i], up = x[2 * r * n + n + i];
            float d = dy[r * n + i], s = 1 / (1 + exponential(-gate));
            float silu = gate * s;

            dx[2 * r * n + i] = d * up * (s + silu * (1 - s));
            dx[2 * r * n + n + i] = d * silu;
        }
}

static void rotate(size_t heads, size_t n, const float *cosine,
                   const float *sine, float sign, float scale, float *x)
{
    for (size_t h = 0; h < heads; h++)
        for (size_t i = 0; i < n / 2; i++) {
            float *first = &x[h * n + i], *second = first + n / 2;
            float a = *first, b = *second, s = sine[i] * sign;

            *first = (a * cosine[i] - b * s) * scale;
            *second = (a * s + b * cosine[i]) * scale;
        }
}

static void adamw(size_t n, const struct shunti_adamw *k, const float *grad,
                  float *w, float *m, float *v)
{
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * k->clip, mean, deviation;

        m[i] = k->beta1 * m[i] + (1 - k->beta1) * g;
        v[i] = k->beta2 * v[i] + (1 - k->beta2) * (g * g);
        mean = m[i] * k->correction1;
        deviation = sqrtf(v[i] * k->correction2);
        w[i] -= k->lr * (mean / (deviation + k->eps) + k->decay * w[i]);
    }
}

static void to_bf16(size_t n, const float *x, uint16_t *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = shunti_f32_to_bf16(x[i]);
}

static void from_bf16(size_t n, const uint16_t *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = shunti_bf16_to_f32(x[i]);
}

static void round_bf16(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = shunti_bf16_to_f32(shunti_f32_to_bf16(x[i]));
}

static void pair_bf16(size_t n, const float *x, const float *y, uint32_t *pairs)
{
    for (size_t i = 0; i < n; i++)
        pairs[i] = shunti_f32_to_bf16(x[i]) |
                   (y ? (uint32_t)shunti_f32_to_bf16(y[i]) << 16 : 0);
}

const struct shunti_elementwise elementwise_ref = {
    .transpose = transpose,
    .add = add,
    .add_f64 = add_f64,
    .sum = sum,
    .dot = dot,
    .sum_squares = sum_squares,
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .softmax = softmax,
    .log_sum_exp = log_sum_exp,
    .softmax_backward = softmax_backward,
    .softmax_tile = softmax_tile,
    .softmax_tile_backward = softmax_tile_backward,
    .row_dots = row_dots,
    .scale_rows = scale_rows,
    .sigmoid = sigmoid,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .rotate = rotate,
    .adamw = adamw,
    .to_bf16 = to_bf16,
    .from_bf16 = from_bf16,
    .round_bf16 = round_bf16,
    .pair_bf16 = pair_bf16,
};
