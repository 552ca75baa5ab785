// SPDX-License-Identifier: Apache-2.0
/* Statistics of arrays of numbers. */
#ifndef SHUNT_PERF_STATISTICS_H
#define SHUNT_PERF_STATISTICS_H

#include <stddef.h>

/* The middle value, or the mean of the two in the middle. Sorts `values`. */
double perf_median(double *values, size_t n);
/* The smallest value that is not below `share` of all values (nearest rank).
 * `sorted` is in ascending order. */
double perf_quantile(const double *sorted, size_t n, double share);
/* The geometric mean of n > 0 positive values. */
double perf_geomean(const double *values, size_t n);

#endif
