// SPDX-License-Identifier: Apache-2.0
/*
 * The element-wise kernels; see elementwise.h. meson.build compiles this file
 * once for each instruction set: plain loops that gcc and clang turn into
 * vectors of that set. Sums run in LANES separate lanes, which are then added
 * in a fixed tree, so that a result does not depend on the width of vectors.
 *
 * exp() is the polynomial of Cephes (Moshier), 2 ulp: a libm call for each
 * element would cost more than the matrix products do.
 */
#include "src/kernels/elementwise.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* One number for each lane. With an array gcc would write the numbers to memory
 * and read them again in each step of a loop. */
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t choices __attribute__((vector_size(4 * LANES)));

/* All such functions are inlined, so no vector is passed as an argument. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE __attribute__((always_inline)) static inline

INLINE lanes load(const float *x)
{
    lanes v;

    memcpy(&v, x, sizeof(v));
    return v;
}

static inline float exp_(float x)
{
    /* Outside of this range the result is 0 (nearly) or infinite; NaN stays. */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;

    /* n = round(x / ln 2): adding `magic` shifts all fraction bits out. */
    const float magic = 12582912.0f;
    float z = x * 1.44269504f + magic;
    float n = z - magic;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;

    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;

    /* multiply by 2^n: n is in the low bits of z */
    uint32_t bits;
    memcpy(&bits, &z, sizeof(bits));
    bits = (bits - 0x4b400000u + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

static inline float lanes_sum(const float s[LANES])
{
    typedef float half __attribute__((vector_size(32)));
    typedef float quarter __attribute__((vector_size(16)));
    half low, high;
    memcpy(&low, s, sizeof(low));
    memcpy(&high, s + 8, sizeof(high));
    const half a = low + high;
    quarter c, d;
    memcpy(&c, &a, sizeof(c));
    memcpy(&d, (const char *)&a + sizeof(c), sizeof(d));
    const quarter b = c + d;
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* -- transpose ------------------------------------------------------------- */

typedef float v8 __attribute__((vector_size(32)));
#define SHUFFLE __builtin_shufflevector

static inline void transpose_8x8(const float *a, size_t lda, float *b,
                                 size_t ldb)
{
    v8 r[8], t[8];
    for (int i = 0; i < 8; i++)
        memcpy(&r[i], a + (size_t)i * lda, sizeof(v8));
    for (int i = 0; i < 8; i += 2) {
        t[i] = SHUFFLE(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        t[i + 1] = SHUFFLE(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = i; j < i + 2; j++) {
            r[j] = SHUFFLE(t[j], t[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            r[j + 2] = SHUFFLE(t[j], t[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    for (int i = 0; i < 4; i++) {
        t[i] = SHUFFLE(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = SHUFFLE(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    for (int i = 0; i < 8; i++)
        memcpy(b + (size_t)i * ldb, &t[i], sizeof(v8));
}

static void transpose(size_t m, size_t n, const float *a, size_t lda, float *b,
                      size_t ldb)
{
    size_t m8 = m - m % 8, n8 = n - n % 8;

    for (size_t i = 0; i < m8; i += 8)
        for (size_t j = 0; j < n8; j += 8)
            transpose_8x8(a + i * lda + j, lda, b + j * ldb + i, ldb);
    for (size_t i = 0; i < m; i++)
        for (size_t j = i < m8 ? n8 : 0; j < n; j++)
            b[j * ldb + i] = a[i * lda + j];
}

/* -- sums ------------------------------------------------------------------ */

static void add(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void add_f64(size_t n, const float *restrict x, double *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += (double)x[i];
}

static double sum_squares(size_t n, const float *x)
{
    double s[LANES] = {0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            s[j] += (double)x[i + j] * x[i + j];
    for (int j = 0; i < n; i++, j++)
        s[j] += (double)x[i] * x[i];
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += s[j];
    return sum;
}

static float sum_of(size_t n, const float *x)
{
    lanes sum = {0};
    float s[LANES];
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        sum += load(x + i);
    memcpy(s, &sum, sizeof(s));
    for (int j = 0; i < n; i++, j++)
        s[j] += x[i];
    return lanes_sum(s);
}

static inline float dot(size_t n, const float *x, const float *y)
{
    lanes sum = {0};
    float s[LANES];
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        sum += load(x + i) * load(y + i);
    memcpy(s, &sum, sizeof(s));
    for (int j = 0; i < n; i++, j++)
        s[j] += x[i] * y[i];
    return lanes_sum(s);
}

/* -- RMSNorm --------------------------------------------------------------- */

static void rmsnorm(size_t rows, size_t n, float eps, const float *restrict x,
                    const float *restrict gain, float *restrict y,
                    float *restrict inverse)
{
    for (size_t r = 0; r < rows; r++, x += n, y += n) {
        float inv = 1.0f / sqrtf(dot(n, x, x) / (float)n + eps);
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] * inv * gain[i];
        inverse[r] = inv;
    }
}

static void rmsnorm_backward(size_t rows, size_t n, const float *restrict x,
                             const float *restrict gain,
                             const float *restrict inverse,
                             const float *restrict dy, float *restrict dx,
                             float *restrict dgain)
{
    /* y = x g / rms:  dx = g dy / rms - x / rms^3 * mean(g dy x) */
    for (size_t r = 0; r < rows; r++, x += n, dy += n, dx += n) {
        float inv = inverse[r];
        lanes sum = {0};
        float s[LANES];
        size_t i = 0;
        for (; i + LANES <= n; i += LANES)
            sum += load(dy + i) * load(gain + i) * load(x + i);
        memcpy(s, &sum, sizeof(s));
        for (int j = 0; i < n; i++, j++)
            s[j] += dy[i] * gain[i] * x[i];
        float c = lanes_sum(s) / (float)n * (inv * inv * inv);
        for (i = 0; i < n; i++) {
            dx[i] += dy[i] * gain[i] * inv - x[i] * c;
            dgain[i] += dy[i] * x[i] * inv;
        }
    }
}

/* -- softmax --------------------------------------------------------------- */

/* The maximum of scale * p. */
INLINE float greatest(size_t n, float scale, const float *p)
{
    float s[LANES], top = p[0] * scale;
    lanes most = top + (lanes){0};
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        lanes v = load(p + i) * scale;
        choices larger = v > most;
        most = (lanes)((larger & (choices)v) | (~larger & (choices)most));
    }
    memcpy(s, &most, sizeof(s));
    for (; i < n; i++)
        s[0] = p[i] * scale > s[0] ? p[i] * scale : s[0];
    for (int j = 0; j < LANES; j++)
        top = s[j] > top ? s[j] : top;
    return top;
}

static float softmax(size_t n, float scale, float *p)
{
    const float top = greatest(n, scale, p);

    for (size_t i = 0; i < n; i++)
        p[i] = exp_(p[i] * scale - top);

    float total = sum_of(n, p);
    float inv = 1.0f / total;
    for (size_t i = 0; i < n; i++)
        p[i] *= inv;
    return top + logf(total);
}

static float log_sum_exp(size_t n, const float *x)
{
    const float top = greatest(n, 1.0f, x);
    lanes sum = {0};
    float s[LANES], e[LANES];
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++)
            e[j] = exp_(x[i + (size_t)j] - top);
        sum += load(e);
    }
    memcpy(s, &sum, sizeof(s));
    for (int j = 0; i < n; i++, j++)
        s[j] += exp_(x[i] - top);
    return top + logf(lanes_sum(s));
}

static void softmax_backward(size_t n, float scale, const float *restrict p,
                             float *restrict dp)
{
    float mean = dot(n, p, dp);

    for (size_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - mean) * scale;
}

static void sigmoid(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = 1.0f / (1.0f + exp_(-x[i]));
}

/* -- attention ------------------------------------------------------------- */

/* 2^x for x up to 127, in fewer steps than exp_(). Cephes' exp2f(), 2 ulp. The
 * polynomial is evaluated by halves (Estrin), which depend less on one
 * another. */
static inline float exp2_(float x)
{
    x = x < -126.0f ? -126.0f : x;

    const float magic = 12582912.0f; /* as in exp_() */
    float z = x + magic;
    float r = x - (z - magic), r2 = r * r;

    float high = 1.339887440266574e-3f * r + 9.618437357674640e-3f;
    float low = 5.550332471162809e-2f * r + 2.402264791363012e-1f;
    high = 1.535336188319500e-4f * r2 + high;
    low = high * r2 + low;
    float p = low * r2 + 6.931472028550421e-1f * r + 1.0f;

    uint32_t bits;
    memcpy(&bits, &z, sizeof(bits));
    bits = (bits - 0x4b400000u + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

INLINE void softmax_row(int32_t n, int32_t from, const float *restrict top,
                        float *restrict row, float *restrict sum)
{
    for (int32_t i = 0; i < n; i++) {
        float p = exp2_(row[i] - top[i]);
        p = i >= from ? p : 0.0f;
        row[i] = p;
        sum[i] += p;
    }
}

static void softmax_tile(size_t rows, size_t n, ptrdiff_t first,
                         float *restrict s, float *restrict top,
                         float *restrict sum, float *restrict factor)
{
    const int32_t columns = (int32_t)n;

    /* `factor` first holds the old value of `top`. */
    memcpy(factor, top, n * sizeof(float));
    for (size_t r = 0; r < rows; r++) {
        const int32_t from = (int32_t)(first + (ptrdiff_t)r);
        const float *row = s + r * n;
        for (int32_t i = from > 0 ? from : 0; i < columns; i++)
            top[i] = row[i] > top[i] ? row[i] : top[i];
    }
    for (int32_t i = 0; i < columns; i++) {
        factor[i] = exp2_(factor[i] - top[i]);
        sum[i] *= factor[i];
    }
    for (size_t r = 0; r < rows; r++) {
        const int32_t from = (int32_t)(first + (ptrdiff_t)r);
        if (from > 0)
            softmax_row(columns, from, top, s + r * n, sum);
        else
            softmax_row(columns, 0, top, s + r * n, sum);
    }
}

INLINE void softmax_row_backward(int32_t n, int32_t from,
                                 const float *restrict lse,
                                 const float *restrict delta, float *restrict p,
                                 float *restrict dp)
{
    for (int32_t i = 0; i < n; i++) {
        float is = exp2_(p[i] - lse[i]);
        float d = is * (dp[i] - delta[i]);
        p[i] = i >= from ? is : 0.0f;
        dp[i] = i >= from ? d : 0.0f;
    }
}

static void softmax_tile_backward(size_t rows, size_t n, ptrdiff_t first,
                                  const float *lse, const float *delta,
                                  float *p, float *dp)
{
    const int32_t columns = (int32_t)n;

    for (size_t r = 0; r < rows; r++, p += n, dp += n) {
        const int32_t from = (int32_t)(first + (ptrdiff_t)r);
        if (from > 0)
            softmax_row_backward(columns, from, lse, delta, p, dp);
        else
            softmax_row_backward(columns, 0, lse, delta, p, dp);
    }
}

static void row_dots(size_t rows, size_t n, const float *x, const float *y,
                     size_t ld, float *to)
{
    for (size_t r = 0; r < rows; r++)
        to[r] = dot(n, x + r * ld, y + r * ld);
}

static void scale_rows(size_t rows, size_t n, const float *restrict by,
                       float *restrict x, size_t ld)
{
    for (size_t r = 0; r < rows; r++, x += ld)
        for (size_t i = 0; i < n; i++)
            x[i] *= by[r];
}

/* -- SwiGLU ---------------------------------------------------------------- */

static void swiglu(size_t rows, size_t n, const float *restrict x,
                   float *restrict y)
{
    for (size_t r = 0; r < rows; r++, x += 2 * n, y += n)
        for (size_t i = 0; i < n; i++)
            y[i] = x[i] / (1.0f + exp_(-x[i])) * x[n + i];
}

static void swiglu_backward(size_t rows, size_t n, const float *restrict x,
                            const float *restrict dy, float *restrict dx)
{
    for (size_t r = 0; r < rows; r++, x += 2 * n, dy += n, dx += 2 * n)
        for (size_t i = 0; i < n; i++) {
            float s = 1.0f / (1.0f + exp_(-x[i]));
            float silu = x[i] * s;
            dx[i] = dy[i] * x[n + i] * (s + silu * (1.0f - s));
            dx[n + i] = dy[i] * silu;
        }
}

/* -- rotary positions ------------------------------------------------------ */

static void rotate(size_t heads, size_t n, const float *restrict cosine,
                   const float *restrict sine, float sign, float scale,
                   float *restrict x)
{
    size_t half = n / 2;

    for (size_t h = 0; h < heads; h++, x += n)
        for (size_t i = 0; i < half; i++) {
            float a = x[i], b = x[half + i], s = sine[i] * sign;
            x[i] = (a * cosine[i] - b * s) * scale;
            x[half + i] = (a * s + b * cosine[i]) * scale;
        }
}

/* -- AdamW ----------------------------------------------------------------- */

static void adamw(size_t n, const struct shunti_adamw *step,
                  const float *restrict grad, float *restrict w,
                  float *restrict m, float *restrict v)
{
    const struct shunti_adamw k = *step;

    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * k.clip;
        m[i] = k.beta1 * m[i] + (1.0f - k.beta1) * g;
        v[i] = k.beta2 * v[i] + (1.0f - k.beta2) * (g * g);
        float mean = m[i] * k.correction1;
        float deviation = __builtin_sqrtf(v[i] * k.correction2);
        w[i] -= k.lr * (mean / (deviation + k.eps) + k.decay * w[i]);
    }
}

/* -- bf16 ------------------------------------------------------------------ */

/* The upper half of the result is x in bf16; the lower half is anything. */
static inline uint32_t bf16_in_f32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    /* A NaN must not be rounded into an infinity. */
    return (bits & 0x7fffffffu) > 0x7f800000u
               ? bits | 0x400000u
               : bits + 0x7fffu + ((bits >> 16) & 1u);
}

static void to_bf16(size_t n, const float *restrict x, uint16_t *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (uint16_t)(bf16_in_f32(x[i]) >> 16);
}

static void round_bf16(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bf16_in_f32(x[i]) & 0xffff0000u;
        memcpy(&y[i], &bits, sizeof(bits));
    }
}

static void pair_bf16(size_t n, const float *restrict x,
                      const float *restrict y, uint32_t *restrict pairs)
{
    if (y)
        for (size_t i = 0; i < n; i++)
            pairs[i] =
                bf16_in_f32(x[i]) >> 16 | (bf16_in_f32(y[i]) & 0xffff0000u);
    else
        for (size_t i = 0; i < n; i++)
            pairs[i] = bf16_in_f32(x[i]) >> 16;
}

static void from_bf16(size_t n, const uint16_t *restrict x, float *restrict y)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(&y[i], &bits, sizeof(bits));
    }
}

const struct shunti_elementwise KERNEL_TABLE = {
    .transpose = transpose,
    .add = add,
    .add_f64 = add_f64,
    .sum = sum_of,
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
