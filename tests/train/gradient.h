// SPDX-License-Identifier: Apache-2.0
/*
 * Checks gradients against finite differences.
 *
 * A function of several arrays is moved along a direction in one of them, and
 * the change of its value is held against <gradient, direction>. Two directions
 * are tried: a random one, and the gradient's own (which shows a wrong scale
 * that a random direction might hide). The four-point stencil has an error of
 * O(step^4), so that steps can be large enough to drown the f32 rounding of the
 * function's inside.
 */
#ifndef TEST_GRADIENT_H
#define TEST_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

/* The value in f64 for the arrays as they are now. */
typedef double gradient_function(void *context);

/* Fails the Criterion test unless the directional derivatives of `f` in `x` (n)
 * agree with those of `gradient` (n) within `tolerance`, relative to the
 * gradient's norm. */
void gradient_check(const char *what, gradient_function *f, void *context,
                    float *x, const float *gradient, size_t n, double step,
                    double tolerance);

/* Deterministic test data: n normal numbers times scale. */
void gradient_fill(uint64_t seed, size_t n, double scale, float *x);

#endif
