// SPDX-License-Identifier: Apache-2.0
/*
 * Checks gradients by finite differences.
 *
 * One array of a function is moved along a direction. The change of the
 * function's value is compared with <gradient, direction>. Two directions are
 * tried: a random one, and that of the gradient itself, which shows a wrong
 * scale that a random one might not show. The four-point stencil has an error
 * of O(step^4). So steps can be so large that the f32 rounding inside the
 * function does not matter.
 */
#ifndef TEST_GRADIENT_H
#define TEST_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

/* Returns the value in f64 for the current content of the arrays. */
typedef double gradient_function(void *context);

/* Fails the Criterion test unless the directional derivatives of `f` by x (n)
 * agree with those from `gradient` (n). They may differ by `tolerance` times
 * the gradient's norm. */
void gradient_check(const char *what, gradient_function *f, void *context,
                    float *x, const float *gradient, size_t n, double step,
                    double tolerance);

/* Test data that depends on the seed only: n normal numbers times scale. */
void gradient_fill(uint64_t seed, size_t n, double scale, float *x);

#endif
