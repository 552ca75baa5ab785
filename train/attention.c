// SPDX-License-Identifier: Apache-2.0
/*
 * Causal self-attention with rotary positions (Su et al., 2021).
 *
 * For each sequence and head the queries are processed in blocks of BLOCK rows.
 * A block needs only the keys up to its own last row, which saves nearly half
 * of the work. A block's probabilities above the diagonal are zero.
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
    return W * T + BLOCK * T; /* k or v of a head, transposed; a block of dp */
}

void attention(struct shunti_gemm *gemm, const struct rope *rope, size_t B,
               size_t T, size_t D, size_t H, float *qkv, float *p, float *y,
               float *work)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    size_t W = D / H;
    float scale = 1.0f / sqrtf((float)W);
    float *kt = work; /* (W, T) */

    turn(rope, B, T, D, H, 1.0f, qkv);
    for (size_t bh = 0; bh < B * H; bh++, p += T * T) {
        size_t b = bh / H, h = bh % H;
        const float *q = qkv + b * T * 3 * D + h * W;
        const float *k = q + D, *v = q + 2 * D;
        float *out = y + b * T * D + h * W;

        kern->transpose(T, W, k, 3 * D, kt, T);
        for (size_t i = 0; i < T; i += BLOCK) {
            size_t m = T - i < BLOCK ? T - i : BLOCK; /* queries */
            size_t n = i + m;                         /* keys */
            float *s = p + i * T;
            shunti_gemm_nn(gemm, m, n, W, q + i * 3 * D, 3 * D, kt, T,
                           SHUNTI_GEMM_SET, s, T);
            for (size_t r = 0; r < m; r++) {
                kern->softmax(i + r + 1, scale, s + r * T);
                memset(s + r * T + i + r + 1, 0, (m - r - 1) * sizeof(float));
            }
            shunti_gemm_nn(gemm, m, W, n, s, T, v, 3 * D, SHUNTI_GEMM_SET,
                           out + i * D, D);
        }
    }
}

void attention_backward(struct shunti_gemm *gemm, const struct rope *rope,
                        size_t B, size_t T, size_t D, size_t H, const float *dy,
                        const float *qkv, const float *p, float *dqkv,
                        float *work)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    size_t W = D / H;
    float scale = 1.0f / sqrtf((float)W);
    float *vt = work;         /* (W, T) */
    float *dp = work + W * T; /* (BLOCK, T) */

    memset(dqkv, 0, B * T * 3 * D * sizeof(float));
    for (size_t bh = 0; bh < B * H; bh++, p += T * T) {
        size_t b = bh / H, h = bh % H, at = b * T * 3 * D + h * W;
        const float *q = qkv + at, *k = q + D, *v = q + 2 * D;
        float *dq = dqkv + at, *dk = dq + D, *dv = dq + 2 * D;
        const float *dout = dy + b * T * D + h * W;

        kern->transpose(T, W, v, 3 * D, vt, T);
        for (size_t i = 0; i < T; i += BLOCK) {
            size_t m = T - i < BLOCK ? T - i : BLOCK;
            size_t n = i + m;
            const float *s = p + i * T;
            /* y = p v */
            shunti_gemm_nn(gemm, m, n, W, dout + i * D, D, vt, T,
                           SHUNTI_GEMM_SET, dp, T);
            shunti_gemm_tn(gemm, n, W, m, s, T, dout + i * D, D,
                           SHUNTI_GEMM_ADD, dv, 3 * D);
            /* p = softmax(scale * s) */
            for (size_t r = 0; r < m; r++) {
                kern->softmax_backward(i + r + 1, scale, s + r * T, dp + r * T);
                memset(dp + r * T + i + r + 1, 0, (m - r - 1) * sizeof(float));
            }
            /* s = q k^T */
            shunti_gemm_nn(gemm, m, W, n, dp, T, k, 3 * D, SHUNTI_GEMM_SET,
                           dq + i * 3 * D, 3 * D);
            shunti_gemm_tn(gemm, n, W, m, dp, T, q + i * 3 * D, 3 * D,
                           SHUNTI_GEMM_ADD, dk, 3 * D);
        }
    }
    turn(rope, B, T, D, H, -1.0f, dqkv);
}
