// SPDX-License-Identifier: Apache-2.0
/*
 * Causal self-attention with rotary positions (Su et al., 2021), without an array
 * of (T, T): for each sequence and head the queries are processed in blocks of
 * BLOCK rows, whose products, softmax and sum follow one another while they are
 * in the cache. A block needs only the keys up to its own last row, which saves
 * nearly half of the work. Its probabilities above the diagonal are zero.
 *
 * Of a row's probabilities two numbers are kept, from which backward makes them
 * again with the same bits (Dao et al., 2022, "FlashAttention", keep one, and
 * also cut the keys into blocks: then the sum must be corrected for each new
 * greatest score, and has other bits than that of the definition).
 */
#include "train/layers.h"

#include "kernels/elementwise.h"
#include "train/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 };

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

/* Rotates q and k of every row; sign -1 rotates them back. */
static void turn(const struct rope *rope, size_t B, size_t T, size_t D,
                 size_t H, float sign, float *qkv)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    size_t W = D / H, half = W / 2;

    for (size_t r = 0; r < B * T; r++) {
        const float *cosine = rope->cosine + r % T * half;
        const float *sine = rope->sine + r % T * half;
        for (size_t h = 0; h < 2 * H; h++) /* the heads of q, then those of k */
            kern->rotate(W, cosine, sine, sign, qkv + r * 3 * D + h * W);
    }
}

size_t attention_work(size_t T, size_t W)
{
    /* k and v of a head, transposed; p and dp of a block */
    return 2 * W * T + 2 * BLOCK * T;
}

/* Scores of the m queries from i on: s (m, T) = q k^T, up to the last of them. */
static void score(struct shunti_gemm *gemm, size_t i, size_t m, size_t T,
                  size_t W, const float *q, size_t ldq, const float *kt,
                  float *s)
{
    shunti_gemm_nn(gemm, m, i + m, W, q + i * ldq, ldq, kt, T, SHUNTI_GEMM_SET,
                   s, T);
}

/* Zero what row r of a block must not see. */
static void mask(size_t r, size_t i, size_t m, float *row)
{
    memset(row + i + r + 1, 0, (m - r - 1) * sizeof(float));
}

void attention(struct shunti_gemm *gemm, const struct rope *rope, size_t B,
               size_t T, size_t D, size_t H, float *qkv, float *kept, float *y,
               float *work)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    size_t W = D / H;
    float scale = 1.0f / sqrtf((float)W);
    float *kt = work;            /* (W, T) */
    float *p = work + 2 * W * T; /* (BLOCK, T) */

    turn(rope, B, T, D, H, 1.0f, qkv);
    for (size_t bh = 0; bh < B * H; bh++, kept += 2 * T) {
        size_t b = bh / H, h = bh % H;
        const float *q = qkv + b * T * 3 * D + h * W;
        const float *k = q + D, *v = q + 2 * D;
        float *out = y + b * T * D + h * W;

        kern->transpose(T, W, k, 3 * D, kt, T);
        for (size_t i = 0; i < T; i += BLOCK) {
            size_t m = T - i < BLOCK ? T - i : BLOCK; /* queries */

            score(gemm, i, m, T, W, q, 3 * D, kt, p);
            for (size_t r = 0; r < m; r++) {
                kern->softmax_keep(i + r + 1, scale, p + r * T,
                                   kept + 2 * (i + r));
                mask(r, i, m, p + r * T);
            }
            shunti_gemm_nn(gemm, m, W, i + m, p, T, v, 3 * D, SHUNTI_GEMM_SET,
                           out + i * D, D);
        }
    }
}

void attention_backward(struct shunti_gemm *gemm, const struct rope *rope,
                        size_t B, size_t T, size_t D, size_t H, const float *dy,
                        const float *qkv, const float *kept, float *dqkv,
                        float *work)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    size_t W = D / H;
    float scale = 1.0f / sqrtf((float)W);
    float *kt = work, *vt = kt + W * T; /* (W, T) */
    float *p = vt + W * T;              /* (BLOCK, T) */
    float *dp = p + BLOCK * T;          /* (BLOCK, T) */

    memset(dqkv, 0, B * T * 3 * D * sizeof(float));
    for (size_t bh = 0; bh < B * H; bh++, kept += 2 * T) {
        size_t b = bh / H, h = bh % H, at = b * T * 3 * D + h * W;
        const float *q = qkv + at, *k = q + D, *v = q + 2 * D;
        float *dq = dqkv + at, *dk = dq + D, *dv = dq + 2 * D;
        const float *dout = dy + b * T * D + h * W;

        kern->transpose(T, W, k, 3 * D, kt, T);
        kern->transpose(T, W, v, 3 * D, vt, T);
        for (size_t i = 0; i < T; i += BLOCK) {
            size_t m = T - i < BLOCK ? T - i : BLOCK;
            size_t n = i + m;

            score(gemm, i, m, T, W, q, 3 * D, kt, p);
            /* y = p v */
            shunti_gemm_nn(gemm, m, n, W, dout + i * D, D, vt, T,
                           SHUNTI_GEMM_SET, dp, T);
            /* p = softmax(scale * s) */
            for (size_t r = 0; r < m; r++) {
                float *row = p + r * T, *drow = dp + r * T;

                kern->softmax_again(i + r + 1, scale, kept + 2 * (i + r), row,
                                    drow);
                mask(r, i, m, row);
                mask(r, i, m, drow);
            }
            shunti_gemm_tn(gemm, n, W, m, p, T, dout + i * D, D,
                           SHUNTI_GEMM_ADD, dv, 3 * D);
            /* s = q k^T */
            shunti_gemm_nn(gemm, m, W, n, dp, T, k, 3 * D, SHUNTI_GEMM_SET,
                           dq + i * 3 * D, 3 * D);
            shunti_gemm_tn(gemm, n, W, m, dp, T, q + i * 3 * D, 3 * D,
                           SHUNTI_GEMM_ADD, dk, 3 * D);
        }
    }
    turn(rope, B, T, D, H, -1.0f, dqkv);
}
