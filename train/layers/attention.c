// SPDX-License-Identifier: Apache-2.0
/*
 * Causal self-attention with rotary positions (Su et al., 2021). It works on
 * tiles of keys and queries, so that there is never an array of (T, T):
 * FlashAttention (Dao et al., 2022; with this order of loops Dao, 2023,
 * "FlashAttention-2").
 *
 * Forward handles up to QUERIES queries at a time. For each query it keeps the
 * largest score so far, the sum of the exponentials so far, and the sum of the
 * values with the exponentials as weights. Then it adds KEYS more keys. If one
 * of these has a larger score, the sums are rescaled. At the end the
 * log-sum-exp of each query is kept. From it, backward can compute the
 * probabilities of any tile alone. Their gradient needs sum(p dp) of each
 * query, which equals sum(y dy).
 *
 * A tile has keys as rows: (KEYS, QUERIES). So a query is a column, and maxima
 * and sums of 16 queries need no sum across a vector. Only the product that
 * sums over keys has a transposed first matrix. q and dy are transposed once
 * for all keys. Scores are in units of ln 2, by a factor of q, because exp2()
 * takes fewer steps than exp(). Tiles above the diagonal are skipped. In tiles
 * on the diagonal, strips of STRIP keys skip the part above the diagonal.
 *
 * Several heads of q may share keys and values (Ainslie et al., 2023, "GQA").
 * Each of these heads reads the same keys and values, which are not copied.
 */
#include "train/layers/layers.h"

#include "src/kernels/elementwise.h"
#include "train/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* KEYS is a multiple of QUERIES, so that each query sees the first key of each
 * tile. Up to LONG positions a tile has half as many queries, because less work
 * above the diagonal is then wasted. With more positions, longer products over
 * queries gain more. */
enum { QUERIES = 128, KEYS = 256, STRIP = 32, LONG = 512 };

#define LOG2_E 1.44269504f

int rope_create(struct rope *rope, size_t T, size_t W, double theta)
{
    size_t half = W / 2;

    rope->cosine = malloc(T * half * sizeof(float));
    rope->sine = malloc(T * half * sizeof(float));
    if (!rope->cosine || !rope->sine) {
        rope_destroy(rope);
        return train_error("out of memory");
    }
    for (size_t t = 0; t < T; t++) {
        for (size_t i = 0; i < half; i++) {
            double angle = (double)t * pow(theta, -(double)i / (double)half);
            rope->cosine[t * half + i] = (float)cos(angle);
            rope->sine[t * half + i] = (float)sin(angle);
        }
    }
    return 0;
}

void rope_destroy(struct rope *rope)
{
    free(rope->cosine);
    free(rope->sine);
    rope->cosine = rope->sine = NULL;
}

/* Rotates q and k of every row. sign -1 rotates back. */
static void turn(const struct rope *rope, const struct attention_shape *a,
                 float sign, float scale_q, float scale_k, float *qkv)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    const size_t W = a->W, half = W / 2, ld = attention_width(a);

    for (size_t r = 0; r < a->B * a->T; r++, qkv += ld) {
        const float *cosine = rope->cosine + r % a->T * half;
        const float *sine = rope->sine + r % a->T * half;
        kern->rotate(a->H, W, cosine, sine, sign, scale_q, qkv);
        kern->rotate(a->KV, W, cosine, sine, sign, scale_k, qkv + a->H * W);
    }
}

size_t attention_work(size_t W)
{
    /* q and dy, transposed; p and dp; four numbers for each query */
    return (2 * W + 2 * KEYS + 4) * QUERIES;
}

/* Queries [i, i + m) of a head; n: columns of their tile. */
struct queries {
    size_t i, m, n;
};

static size_t tile_of(size_t T)
{
    return T > LONG ? QUERIES : QUERIES / 2;
}

static struct queries queries_from(size_t i, size_t T)
{
    const size_t m = T - i < tile_of(T) ? T - i : tile_of(T);

    return (struct queries){i, m, (m + 15) / 16 * 16};
}

/* x (m, W) -> t (W, n); columns of t behind m are zeros */
static void turn_in(const struct queries *of, size_t W, const float *x,
                    size_t ld, float *t)
{
    if (of->m < of->n)
        memset(t, 0, W * of->n * sizeof(float));
    shunti_elementwise()->transpose(of->m, W, x, ld, t, of->n);
}

/* Returns how many keys from j on (and before `end`) are handled at once.
 * *query: the first query that sees any of these keys. */
static size_t piece(const struct queries *of, size_t j, size_t end,
                    size_t *query)
{
    size_t most = j < of->i ? of->i - j : STRIP;

    *query = j < of->i ? 0 : j - of->i;
    return end - j < most ? end - j : most;
}

/* s (keys, n) = x t, for keys [j, end) of x. s: scores, or dp */
static void score(struct shunti_gemm *gemm, const struct queries *of, size_t j,
                  size_t end, size_t W, const float *x, size_t ld,
                  const float *t, float *s)
{
    size_t rows, f;

    for (; j < end; j += rows, s += rows * of->n) {
        rows = piece(of, j, end, &f);
        shunti_gemm_nn(gemm, rows, of->n - f, W, x + j * ld, ld, t + f, of->n,
                       SHUNTI_GEMM_SET, s + f, of->n);
    }
}

/* y (m, W) += s^T x, for keys [j, end) of x. The call with key 0 sets y. */
static void gather(struct shunti_gemm *gemm, const struct queries *of, size_t j,
                   size_t end, size_t W, const float *s, const float *x,
                   size_t ld, float *y, size_t ldy)
{
    size_t rows, f;

    for (; j < end; j += rows, s += rows * of->n) {
        rows = piece(of, j, end, &f);
        shunti_gemm_tn(gemm, of->m - f, W, rows, s + f, of->n, x + j * ld, ld,
                       j ? SHUNTI_GEMM_ADD : SHUNTI_GEMM_SET, y + f * ldy, ldy);
    }
}

/* dx += s y, for keys [j, end) of dx. The first queries that see a key are
 * those of the key's own tile. For these queries, the first head that shares
 * the key sets dx; all other calls add to dx. */
static void scatter(struct shunti_gemm *gemm, const struct queries *of,
                    size_t j, size_t end, size_t W, const float *s,
                    const float *y, size_t ldy, bool first, float *dx,
                    size_t ld)
{
    size_t rows, f;

    for (; j < end; j += rows, s += rows * of->n) {
        rows = piece(of, j, end, &f);
        shunti_gemm_nn(gemm, rows, W, of->m - f, s + f, of->n, y + f * ldy, ldy,
                       first && j >= of->i ? SHUNTI_GEMM_SET : SHUNTI_GEMM_ADD,
                       dx + j * ld, ld);
    }
}

/* The arrays of one head of one sequence. */
struct head {
    const float *q, *k, *v; /* rows of ld */
    size_t ld, D;
};

static size_t end_of(size_t j, const struct queries *of)
{
    const size_t end = of->i + of->m;

    return end - j < KEYS ? end : j + KEYS;
}

static void attend(struct shunti_gemm *gemm, const struct attention_shape *a,
                   const struct head *h, float *lse, float *y, float *work)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    const size_t T = a->T, W = a->W, D = h->D, ld = h->ld;
    float *qt = work;                /* (W, QUERIES) */
    float *s = qt + W * QUERIES;     /* (KEYS, QUERIES) */
    float *top = s + KEYS * QUERIES; /* (QUERIES) */
    float *sum = top + QUERIES, *factor = sum + QUERIES;

    for (size_t i = 0; i < T; i += tile_of(T)) {
        const struct queries of = queries_from(i, T);
        float *out = y + i * D;

        turn_in(&of, W, h->q + i * ld, ld, qt);
        for (size_t r = 0; r < of.n; r++) {
            top[r] = -INFINITY;
            sum[r] = 0;
        }
        for (size_t j = 0, end; j < i + of.m; j = end) {
            end = end_of(j, &of);
            score(gemm, &of, j, end, W, h->k, ld, qt, s);
            kern->softmax_tile(end - j, of.n, (ptrdiff_t)j - (ptrdiff_t)i, s,
                               top, sum, factor);
            if (j)
                kern->scale_rows(of.m, W, factor, out, D);
            gather(gemm, &of, j, end, W, s, h->v, ld, out, D);
        }
        for (size_t r = 0; r < of.m; r++) {
            factor[r] = 1.0f / sum[r];
            lse[i + r] = top[r] + log2f(sum[r]);
        }
        kern->scale_rows(of.m, W, factor, out, D);
    }
}

static void attend_backward(struct shunti_gemm *gemm,
                            const struct attention_shape *a,
                            const struct head *h, const float *dy,
                            const float *y, const float *lse, bool first,
                            float *dq, float *dk, float *dv, float *work)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    const size_t T = a->T, W = a->W, D = h->D, ld = h->ld;
    float *qt = work, *dyt = qt + W * QUERIES; /* (W, QUERIES) */
    float *p = dyt + W * QUERIES;              /* (KEYS, QUERIES) */
    float *dp = p + KEYS * QUERIES;            /* (KEYS, QUERIES) */
    float *of_row = dp + KEYS * QUERIES, *delta = of_row + QUERIES;

    memset(of_row, 0, 2 * QUERIES * sizeof(float));
    for (size_t i = 0; i < T; i += tile_of(T)) {
        const struct queries of = queries_from(i, T);
        const float *q = h->q + i * ld;

        turn_in(&of, W, q, ld, qt);
        turn_in(&of, W, dy + i * D, D, dyt);
        kern->row_dots(of.m, W, y + i * D, dy + i * D, D, delta);
        memcpy(of_row, lse + i, of.m * sizeof(float));
        for (size_t j = 0, end; j < i + of.m; j = end) {
            end = end_of(j, &of);
            score(gemm, &of, j, end, W, h->k, ld, qt, p);
            score(gemm, &of, j, end, W, h->v, ld, dyt, dp);
            kern->softmax_tile_backward(end - j, of.n,
                                        (ptrdiff_t)j - (ptrdiff_t)i, of_row,
                                        delta, p, dp);
            scatter(gemm, &of, j, end, W, p, dy + i * D, D, first, dv, ld);
            scatter(gemm, &of, j, end, W, dp, q, ld, first, dk, ld);
            gather(gemm, &of, j, end, W, dp, h->k, ld, dq + i * ld, ld);
        }
    }
}

/* Offsets of q, k and v of head h of sequence b. */
static void places(const struct attention_shape *a, size_t b, size_t h,
                   size_t at[3])
{
    const size_t row = b * a->T * attention_width(a);
    const size_t kv = h / (a->H / a->KV);

    at[0] = row + h * a->W;
    at[1] = row + (a->H + kv) * a->W;
    at[2] = at[1] + a->KV * a->W;
}

void attention(struct shunti_gemm *gemm, const struct rope *rope,
               const struct attention_shape *a, float *qkv, float *lse,
               float *y, float *work)
{
    const size_t T = a->T, D = a->H * a->W;

    turn(rope, a, 1.0f, LOG2_E / sqrtf((float)a->W), 1.0f, qkv);
    for (size_t b = 0; b < a->B; b++)
        for (size_t h = 0; h < a->H; h++) {
            size_t at[3];

            places(a, b, h, at);
            const struct head head = {qkv + at[0], qkv + at[1], qkv + at[2],
                                      attention_width(a), D};
            attend(gemm, a, &head, lse + (b * a->H + h) * T,
                   y + b * T * D + h * a->W, work);
        }
}

void attention_backward(struct shunti_gemm *gemm, const struct rope *rope,
                        const struct attention_shape *a, const float *dy,
                        const float *qkv, const float *lse, const float *y,
                        float *dqkv, float *work)
{
    const size_t T = a->T, D = a->H * a->W;

    for (size_t b = 0; b < a->B; b++)
        for (size_t h = 0; h < a->H; h++) {
            const size_t of = b * T * D + h * a->W;
            size_t at[3];

            places(a, b, h, at);
            const struct head head = {qkv + at[0], qkv + at[1], qkv + at[2],
                                      attention_width(a), D};
            attend_backward(gemm, a, &head, dy + of, y + of,
                            lse + (b * a->H + h) * T, h % (a->H / a->KV) == 0,
                            dqkv + at[0], dqkv + at[1], dqkv + at[2], work);
        }
    /* dq lacks the scale of q. dk has a factor LOG2_E too much. */
    turn(rope, a, -1.0f, 1.0f / sqrtf((float)a->W), 1.0f / LOG2_E, dqkv);
}
