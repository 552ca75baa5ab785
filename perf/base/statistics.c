// SPDX-License-Identifier: Apache-2.0
/* See statistics.h. */
#include "perf/base/statistics.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double perf_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double perf_quantile(const double *sorted, size_t n, double share)
{
    size_t rank = (size_t)ceil(share * (double)n - 1e-9);
    if (rank < 1)
        rank = 1;
    return sorted[(rank < n ? rank : n) - 1];
}

double perf_geomean(const double *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += log(values[i]);
    return exp(sum / (double)n);
}
