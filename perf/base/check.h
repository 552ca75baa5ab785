// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs that every rank can compute for every other rank, and the comparison
 * of results with expected ones. Check functions return the number of wrong
 * elements.
 */
#ifndef SHUNT_PERF_CHECK_H
#define SHUNT_PERF_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "perf/base/routing.h"

/* Outputs are filled with this byte before a call. No expected result consists
 * of this byte. As a float, such bytes are a NaN. */
#define PERF_POISON 0xff

/* --- bytes to move: any bit pattern --------------------------------------- */

/* Write bytes from .. from + bytes - 1 of stream `key` to `to`. */
void perf_fill_bytes(void *to, uint64_t key, size_t from, size_t bytes);
/* Returns how many elements of `size` bytes differ from those bytes of the
 * stream. */
size_t perf_check_bytes(const void *got, uint64_t key, size_t from,
                        size_t bytes, size_t size);

/* --- values to reduce ----------------------------------------------------- */

/* Fill in `count` elements of stream `key`, from element `from` on. Their range
 * is such that `op` over some ranks neither overflows nor underflows. */
void perf_fill_values(void *to, enum shunt_dtype dtype, enum shunt_op op,
                      uint64_t key, size_t from, size_t count);

/*
 * Compare with the reduction of the streams keys[0 .. ranks). Integers, min and
 * max must be exact. Other results may differ from the sum (product) in f64 by
 * the rounding errors of each step in the type. For f16 and bf16, each step
 * rounds to f32, and the result is rounded once to the type.
 */
size_t perf_check_values(const void *got, enum shunt_dtype dtype,
                         enum shunt_op op, const uint64_t *keys, int ranks,
                         size_t from, size_t count);

/* --- rows of tokens ------------------------------------------------------- */

/* The parameters from which the rows of an exchange are generated. */
struct perf_rows {
    const struct perf_routing *routing;
    int rank;
    size_t hidden;
    enum shunt_dtype dtype; /* SHUNT_BF16 or SHUNT_F32 */
    uint64_t seed;
};

/* Fill in this rank's x, (tokens, hidden): values of moderate magnitude, never
 * zero. */
void perf_fill_x(const struct perf_rows *rows, void *x);

/*
 * Check dispatched rows. They must have the bits of the sources' x. With `fp8`
 * each element may differ by the error of e4m3 with one scale for 128 elements,
 * and by the rounding to the type. The error of e4m3 is 1/17 of a value, or
 * 2^-10 of the scale if that is more.
 */
size_t perf_check_dispatch(const struct perf_rows *rows, int fp8,
                           const void *got);

/* Fill in the results of this rank's experts, (total, hidden): generated from
 * source, token and slot. */
void perf_fill_out(const struct perf_rows *rows, void *out);

/*
 * Check the gradients of results, (total, hidden). Each row is the source's x
 * (as dy) times its weight, within one rounding in f32 and one to the type.
 */
size_t perf_check_combine_backward(const struct perf_rows *rows,
                                   const void *dout);

/* Check the gradients of the weights, (tokens, topk). Each is the product in
 * f64 of x (as dy) and an expert's result, within one rounding in f32 for each
 * step. */
size_t perf_check_dweight(const struct perf_rows *rows, const float *dweight);

/*
 * Check combined rows. Each is the weighted sum in f64 of the results of its
 * experts, within the rounding of topk products and sums in f32, and one to the
 * type.
 *
 * weighted  false: the plain sum, as dispatch_backward computes it
 * node_of   (ranks) node of each rank, if each node's sum was also rounded to
 *           the type; otherwise NULL
 */
size_t perf_check_combine(const struct perf_rows *rows, bool weighted,
                          const int *node_of, const void *y);

#endif
