// SPDX-License-Identifier: Apache-2.0
/* Finite differences along a direction; see gradient.h. */
#include "tests/train/gradient.h"

#include "train/workload/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double at(gradient_function *f, void *context, float *x,
                 const float *origin, const double *direction, size_t n,
                 double step)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(origin[i] + step * direction[i]);
    return f(context);
}

void gradient_check(const char *what, gradient_function *f, void *context,
                    float *x, const float *gradient, size_t n, double step,
                    double tolerance)
{
    float *origin = malloc(n * sizeof(*origin));
    double *d = malloc(n * sizeof(*d));
    double norm = 0;

    memcpy(origin, x, n * sizeof(*x));
    for (size_t i = 0; i < n; i++)
        norm += (double)gradient[i] * gradient[i];
    norm = sqrt(norm);
    cr_assert(norm > 0 && isfinite(norm), "%s: gradient's norm is %g", what,
              norm);

    for (int own = 0; own < 2; own++) {
        uint64_t key = random_key(n, what);
        double length = 0, expected = 0;
        for (size_t i = 0; i < n; i++) {
            d[i] = own ? gradient[i] : random_normal(key, i);
            length += d[i] * d[i];
        }
        length = sqrt(length);
        for (size_t i = 0; i < n; i++) {
            d[i] /= length;
            expected += d[i] * gradient[i];
        }
        double near = at(f, context, x, origin, d, n, step) -
                      at(f, context, x, origin, d, n, -step);
        double far = at(f, context, x, origin, d, n, 2 * step) -
                     at(f, context, x, origin, d, n, -2 * step);
        double found = (8 * near - far) / (12 * step);
        memcpy(x, origin, n * sizeof(*x));
        cr_assert(fabs(found - expected) <= tolerance * norm,
                  "%s, %s direction: differences give %.9g, the gradient says "
                  "%.9g (norm %.3g)",
                  what, own ? "own" : "random", found, expected, norm);
    }
    free(origin);
    free(d);
}
