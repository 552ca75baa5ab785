// SPDX-License-Identifier: Apache-2.0
/*
 * Attention by tiles, compared with its definition in f64, with lengths around
 * those of tiles; and its gradient, compared with finite differences.
 */
#include "tests/train/gradient.h"
#include "train/base/error.h"
#include "train/layers/layers.h"
#include "train/layers/products.h"
#include "train/memory/rows.h"
#include "train/parameters/layout.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1 << 16 }; /* floats of each array below */

/* x: q | k | v; the value is <y, c>, so that c is dy. */
static float x[MANY], turned[MANY], y[MANY], c[MANY], lse[MANY], dx[MANY];

struct run {
    struct attention_shape s;
    struct rope rope;
    struct shunti_gemm *gemm;
    float *work; /* exactly as large as attention_work() says */
};

static struct run run_of(struct attention_shape s, const char *products)
{
    struct run r = {.s = s};

    cr_assert_leq(s.B * s.T * attention_width(&s), (size_t)MANY);
    r.work = malloc(attention_work(s.W) * sizeof(*r.work));
    cr_assert_not_null(r.work);
    cr_assert_eq(rope_create(&r.rope, s.T, s.W, 10000.0), 0);
    cr_assert_eq(products_create(products, SHUNTI_GEMM_F32, &r.gemm), 0, "%s",
                 train_error_text());
    gradient_fill(1, MANY, 1.0, x);
    gradient_fill(2, MANY, 1.0, c);
    /* Memory that is not written must not be read, either. */
    memset(lse, 0xff, sizeof(lse));
    memset(r.work, 0xff, attention_work(s.W) * sizeof(*r.work));
    memset(y, 0xff, sizeof(y));
    memset(dx, 0xff, sizeof(dx));
    return r;
}

static void end(struct run *r)
{
    free(r->work);
    rope_destroy(&r->rope);
    shunti_gemm_destroy(r->gemm);
}

static void forward(struct run *r)
{
    memcpy(turned, x, sizeof(x));
    attention(r->gemm, &r->rope, &r->s, turned, lse, y, r->work);
}

static void backward(struct run *r)
{
    attention_backward(r->gemm, &r->rope, &r->s, c, turned, lse, y, dx,
                       r->work);
}

static double value(void *context)
{
    struct run *r = context;
    double sum = 0;

    forward(r);
    for (size_t i = 0; i < r->s.B * r->s.T * r->s.H * r->s.W; i++)
        sum += (double)y[i] * c[i];
    return sum;
}

Test(attention, gradient, .timeout = 60)
{
    static const struct attention_shape shapes[] = {
        {1, 1, 1, 1, 4},  {2, 5, 2, 2, 4},   {1, 17, 4, 2, 2},
        {1, 67, 3, 1, 4}, {1, 130, 1, 1, 8},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct run r = run_of(shapes[i], "naive");
        const size_t n = r.s.B * r.s.T * attention_width(&r.s);

        forward(&r);
        backward(&r);
        gradient_check("qkv", value, &r, x, dx, n, 0.02, 1e-3);
        end(&r);
    }
}

/* --- the definition --------------------------------------------------------- */

static double qkv[MANY], want_y[MANY], want_dx[MANY], p[1024], dp[1024];

/* Rotates the heads of q and k by the angles of each row; sign -1 rotates
 * back. */
static void rotate(const struct attention_shape *s, double sign, double *of)
{
    const size_t half = s->W / 2, width = attention_width(s);

    for (size_t row = 0; row < s->B * s->T; row++)
        for (size_t h = 0; h < s->H + s->KV; h++)
            for (size_t u = 0; u < half; u++) {
                double *at = of + row * width + h * s->W + u;
                const double angle = sign * (double)(row % s->T) *
                                     pow(10000, -(double)u / (double)half);
                const double a = at[0], b = at[half];

                at[0] = a * cos(angle) - b * sin(angle);
                at[half] = a * sin(angle) + b * cos(angle);
            }
}

static double dot(size_t n, const double *a, const double *b)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add(size_t n, double by, const double *a, double *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] += by * a[i];
}

/* Query i of head h in sequence b, by the definition. Returns the size of the
 * largest score. */
static double query(const struct attention_shape *s, size_t b, size_t h,
                    size_t i)
{
    const size_t W = s->W, width = attention_width(s), first = b * s->T * width;
    const size_t k = first + (s->H + h / (s->H / s->KV)) * W;
    const size_t v = k + s->KV * W, q = first + i * width + h * W;
    const size_t out = ((b * s->T + i) * s->H + h) * W;
    const double scale = 1 / sqrt((double)W);
    double top = -INFINITY, most = 0, sum = 0, mean = 0, dy[64];

    for (size_t u = 0; u < W; u++)
        dy[u] = c[out + u];
    for (size_t j = 0; j <= i; j++) {
        p[j] = scale * dot(W, qkv + q, qkv + k + j * width);
        top = fmax(top, p[j]);
        most = fmax(most, fabs(p[j]));
    }
    for (size_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - top);
    for (size_t j = 0; j <= i; j++) {
        p[j] /= sum;
        dp[j] = dot(W, dy, qkv + v + j * width);
        mean += p[j] * dp[j];
        add(W, p[j], qkv + v + j * width, want_y + out);
    }
    for (size_t j = 0; j <= i; j++) {
        const double ds = p[j] * (dp[j] - mean) * scale;

        add(W, p[j], dy, want_dx + v + j * width);
        add(W, ds, qkv + k + j * width, want_dx + q);
        add(W, ds, qkv + q, want_dx + k + j * width);
    }
    return most;
}

static double define(const struct attention_shape *s)
{
    double most = 0;

    for (size_t i = 0; i < MANY; i++) {
        qkv[i] = x[i];
        want_y[i] = want_dx[i] = 0;
    }
    rotate(s, 1, qkv);
    for (size_t b = 0; b < s->B; b++)
        for (size_t h = 0; h < s->H; h++)
            for (size_t i = 0; i < s->T; i++)
                most = fmax(most, query(s, b, h, i));
    rotate(s, -1, want_dx);
    return most;
}

/* The values must differ by at most `tolerance` times the largest of them. */
static void close_to(const char *what, const struct attention_shape *s,
                     size_t n, const float *got, const double *want,
                     double tolerance)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        cr_assert(fabs(got[i] - want[i]) <= tolerance * most,
                  "%s[%zu] of T %zu, H %zu, KV %zu, W %zu: %.9g, not %.9g",
                  what, i, s->T, s->H, s->KV, s->W, (double)got[i], want[i]);
}

/* Scores of size s have an error of some 2^-24 s in f32. Their exponentials
 * have the same relative error. */
static void by_definition(struct run *r)
{
    const struct attention_shape *s = &r->s;
    const size_t rows = s->B * s->T;

    forward(r);
    backward(r);
    const double tolerance = 0x1p-21 * (1 + define(s));
    close_to("y", s, rows * s->H * s->W, y, want_y, tolerance);
    close_to("dqkv", s, rows * attention_width(s), dx, want_dx, tolerance);
}

/* Lengths around those of tiles: 16, 32 and 64 queries, 128 from 513 positions
 * on, and 256 keys. */
static const size_t lengths[] = {1,  2,   15,  17,  31,  33,  63,  64,
                                 65, 100, 128, 255, 256, 257, 321, 513};

Test(attention, by_definition, .timeout = 60)
{
    static const char *const products[] = {"naive", NULL};

    for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(lengths[0]); i++) {
        const size_t T = lengths[i / 2];
        struct run r = run_of(
            (struct attention_shape){T < 65 ? 3 : 1, T, 2, 2, i % 3 ? 12 : 16},
            products[i % 2]);

        by_definition(&r);
        end(&r);
    }
}

/* All, some or no heads share keys and values. */
Test(attention, shared_heads_by_definition, .timeout = 60)
{
    for (size_t kv = 1; kv <= 6; kv++)
        for (size_t T = 33; 6 % kv == 0 && T <= 270; T += 237) {
            struct run r =
                run_of((struct attention_shape){2, T, 6, kv, 4}, NULL);

            by_definition(&r);
            end(&r);
        }
}

/* Each of 600 keys has a larger score than all before it, up to 200. So the
 * sums are rescaled all the time, and exp() of the scores alone would be
 * infinite. */
Test(attention, growing_scores, .timeout = 60)
{
    struct run r = run_of((struct attention_shape){1, 600, 1, 1, 4}, NULL);

    for (size_t t = 0; t < 600; t++) {
        float *q = x + t * 12, *k = q + 4;

        /* the slowest pair of elements, which is hardly rotated */
        q[0] = q[2] = k[0] = k[2] = 0;
        q[1] = 20;
        k[1] = (float)t / 30;
        q[3] = k[3] = 0.1f;
    }
    cr_assert_gt(define(&r.s), 150);
    by_definition(&r);
    end(&r);
}

/* y and dq must be those of a model in which each head has its own copy of keys
 * and values. */
Test(attention, shared_heads_are_repeated_heads)
{
    enum { T = 70, H = 4, KV = 2, W = 8, ROW = (H + 2 * KV) * W };
    static float once[MANY], one_y[MANY], one_dx[MANY];
    struct run r = run_of((struct attention_shape){1, T, H, KV, W}, NULL);

    memcpy(once, x, sizeof(x));
    forward(&r);
    backward(&r);
    memcpy(one_y, y, sizeof(y));
    memcpy(one_dx, dx, sizeof(dx));
    r.s.KV = H;
    for (size_t t = 0; t < T; t++)
        for (size_t part = 0; part < 3; part++)
            for (size_t h = 0; h < H; h++)
                memcpy(x + (t * 3 + part) * H * W + h * W,
                       once + t * ROW +
                           (part ? H + (part - 1) * KV + h / (H / KV) : h) * W,
                       W * sizeof(*x));
    forward(&r);
    backward(&r);
    cr_assert_eq(memcmp(y, one_y, T * H * W * sizeof(*y)), 0);
    for (size_t t = 0; t < T; t++)
        cr_assert_eq(
            memcmp(dx + t * 3 * H * W, one_dx + t * ROW, H * W * sizeof(*dx)),
            0, "dq of row %zu", t);
    end(&r);
}

/* The bits of a sequence must not depend on the sequences beside it. */
Test(attention, sequences_by_themselves)
{
    enum { B = 3, T = 77, H = 2, W = 6, ROW = 3 * H * W };
    static float all_y[MANY], all_dx[MANY], all_x[MANY], all_c[MANY];
    struct run r = run_of((struct attention_shape){B, T, H, H, W}, NULL);

    forward(&r);
    backward(&r);
    memcpy(all_y, y, sizeof(y));
    memcpy(all_dx, dx, sizeof(dx));
    memcpy(all_x, x, sizeof(x));
    memcpy(all_c, c, sizeof(c));
    r.s.B = 1;
    for (size_t b = 0; b < B; b++) {
        memcpy(x, all_x + b * T * ROW, T * ROW * sizeof(*x));
        memcpy(c, all_c + b * T * H * W, T * H * W * sizeof(*c));
        forward(&r);
        backward(&r);
        cr_assert_eq(memcmp(y, all_y + b * T * H * W, T * H * W * sizeof(*y)),
                     0);
        cr_assert_eq(memcmp(dx, all_dx + b * T * ROW, T * ROW * sizeof(*dx)),
                     0);
    }
    end(&r);
}

/* Kept memory must not grow with the square of T. The scratch,
 * attention_work(), must not depend on T at all. */
Test(attention, no_array_of_all_pairs)
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
    /* Shared keys and values must be stored only once. */
    b.kv_heads = 1;
    cr_assert_eq(rows_bytes(&a, 4096, 1) - rows_bytes(&b, 4096, 1),
                 4096 * sizeof(float) * (2 + 1) * 2 * 3 * 16);
}
