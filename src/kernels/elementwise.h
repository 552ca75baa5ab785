// SPDX-License-Identifier: Apache-2.0
/*
 * Element-wise kernels of training: all operations of the model except matrix
 * products.
 *
 * All instruction sets give the same bits: there is no contraction, sums are
 * made in sixteen fixed lanes, and exp() is not that of libm. (A NaN stays a
 * NaN; which of its bits survive is unspecified.)
 */
#ifndef SHUNTI_ELEMENTWISE_H
#define SHUNTI_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

#include "src/kernels/cpu.h"

struct shunti_adamw {
    float lr;
    float beta1, beta2;
    float correction1, correction2; /* 1 / (1 - beta^t) */
    float eps;
    float decay; /* 0 for parameters without decay */
    float clip;  /* gradients are multiplied by this first */
};

struct shunti_elementwise {
    /* b (n, m) = a (m, n) transposed; lda, ldb: elements between rows. */
    void (*transpose)(size_t m, size_t n, const float *a, size_t lda, float *b,
                      size_t ldb);
    /* y (n) += x (n) */
    void (*add)(size_t n, const float *x, float *y);
    /* y (n) += x (n), with y in f64. */
    void (*add_f64)(size_t n, const float *x, double *y);
    /* Sums of x (n), and of x (n) * y (n). */
    float (*sum)(size_t n, const float *x);
    float (*dot)(size_t n, const float *x, const float *y);
    /* Sum of squares, in f64. */
    double (*sum_squares)(size_t n, const float *x);

    /* y (rows, n) = x / rms(x) * gain. inverse (rows): 1 / rms(x), for the
     * backward pass. */
    void (*rmsnorm)(size_t rows, size_t n, float eps, const float *x,
                    const float *gain, float *y, float *inverse);
    /* Gradients of rmsnorm: dx (rows, n) += and dgain (n) +=. */
    void (*rmsnorm_backward)(size_t rows, size_t n, const float *x,
                             const float *gain, const float *inverse,
                             const float *dy, float *dx, float *dgain);

    /* p (n): softmax of scale * p, in place.
     * Returns log(sum(exp(scale * p))). */
    float (*softmax)(size_t n, float scale, float *p);
    /* log(sum(exp(x))). */
    float (*log_sum_exp)(size_t n, const float *x);
    /* dp (n): gradient of softmax, in place, from p and d(loss)/dp. */
    void (*softmax_backward)(size_t n, float scale, const float *p, float *dp);

    /* Some rows of the softmax of each column of scores, in place: s (rows, n)
     * = 2^(s - top). top (n) becomes the greatest score so far, and the results
     * are added to sum (n). factor (n) = 2^(old top - new top): earlier results
     * must be multiplied by this factor. The function multiplies sum, and the
     * caller all else. At the start top is -INFINITY and sum 0. Row r has the
     * columns from first + r on; s is 0 in the columns before. */
    void (*softmax_tile)(size_t rows, size_t n, ptrdiff_t first, float *s,
                         float *top, float *sum, float *factor);
    /* The backward pass of softmax_tile: computes p (rows, n) = 2^(p - lse)
     * again from the scores in p, for p - lse up to 127. Then dp = p * (dp -
     * delta). */
    void (*softmax_tile_backward)(size_t rows, size_t n, ptrdiff_t first,
                                  const float *lse, const float *delta,
                                  float *p, float *dp);
    /* to (rows) = sum of x * y of each row; ld: elements between rows. */
    void (*row_dots)(size_t rows, size_t n, const float *x, const float *y,
                     size_t ld, float *to);
    /* x (rows, n) *= by (rows) */
    void (*scale_rows)(size_t rows, size_t n, const float *by, float *x,
                       size_t ld);

    /* y (n) = 1 / (1 + exp(-x)); y may be x. */
    void (*sigmoid)(size_t n, const float *x, float *y);

    /* y (rows, n) = silu(gate) * up; x (rows, 2 n) = gate | up. */
    void (*swiglu)(size_t rows, size_t n, const float *x, float *y);
    /* dx (rows, 2 n) from dy (rows, n) and x. */
    void (*swiglu_backward)(size_t rows, size_t n, const float *x,
                            const float *dy, float *dx);

    /* x (heads, n): in each head rotate the pairs (x[i], x[i + n/2]), i < n/2,
     * by the angles with these cosines and sines, and multiply by `scale`. sign
     * = -1 rotates in the other direction, for the gradient. */
    void (*rotate)(size_t heads, size_t n, const float *cosine,
                   const float *sine, float sign, float scale, float *x);

    /* One AdamW step on w (n) with its moments m, v (n). */
    void (*adamw)(size_t n, const struct shunti_adamw *step, const float *grad,
                  float *w, float *m, float *v);

    /* Convert to bf16 (round to nearest even), and back. */
    void (*to_bf16)(size_t n, const float *x, uint16_t *y);
    void (*from_bf16)(size_t n, const uint16_t *x, float *y);
    /* y (n) = x (n), rounded to bf16 and kept in f32. */
    void (*round_bf16)(size_t n, const float *x, float *y);
    /* pairs (n): bf16 of x (n) in the low half, of y (n) in the high half.
     * y may be NULL: zeros. */
    void (*pair_bf16)(size_t n, const float *x, const float *y,
                      uint32_t *pairs);
};

/* The kernels for this CPU. */
const struct shunti_elementwise *shunti_elementwise(void);

extern const struct shunti_elementwise shunti_elementwise_plain;
extern const struct shunti_elementwise shunti_elementwise_neon;
extern const struct shunti_elementwise shunti_elementwise_avx2;
extern const struct shunti_elementwise shunti_elementwise_avx512;

/* Indexed by enum shunti_isa; NULL for sets of another architecture. */
extern const struct shunti_elementwise
    *const shunti_elementwise_sets[SHUNTI_ISA_COUNT];

#endif
