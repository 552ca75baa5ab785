// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs that every rank can compute for every other, and the comparison of
 * what came with what must come. Functions that check return how many elements
 * are wrong.
 */
#ifndef SHUNT_PERF_CHECK_H
#define SHUNT_PERF_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "perf/routing.h"

/* What outputs are filled with before a call: no result of ours looks so, and
 * floats of it are not a number. */
#define PERF_POISON 0xff

/* -- bytes to move: any bit pattern ---------------------------------------- */

/* `bytes` bytes from byte `from` of stream `key` on. */
void perf_fill_bytes(void *to, uint64_t key, size_t from, size_t bytes);
/* Elements of `size` bytes that differ. */
size_t perf_check_bytes(const void *got, uint64_t key, size_t from,
                        size_t bytes, size_t size);

/* -- values to reduce ------------------------------------------------------ */

/* `count` elements from element `from` of stream `key` on, of a range in which
 * `op` over some ranks neither overflows nor vanishes. */
void perf_fill_values(void *to, enum shunt_dtype dtype, enum shunt_op op,
                      uint64_t key, size_t from, size_t count);

/*
 * Compare with the reduction of the streams keys[0 .. ranks): integers, min and
 * max exactly; otherwise with a sum (product) in f64, within what rounding each
 * step in the type (f16 and bf16: in f32, and once in the type) can come to.
 */
size_t perf_check_values(const void *got, enum shunt_dtype dtype,
                         enum shunt_op op, const uint64_t *keys, int ranks,
                         size_t from, size_t count);

/* -- rows of tokens -------------------------------------------------------- */

/* What the rows of an exchange are made from. */
struct perf_rows {
    const struct perf_routing *routing;
    int rank;
    size_t hidden;
    enum shunt_dtype dtype; /* SHUNT_BF16 or SHUNT_F32 */
    uint64_t seed;
};

/* This rank's x, (tokens, hidden): about normal in size, never zero. */
void perf_fill_x(const struct perf_rows *rows, void *x);

/*
 * Dispatched rows: the bits of the sources' x, or (`fp8`) within what e4m3 with
 * a scale for 128 elements loses: 1/17 of a value, or 2^-10 of the scale if
 * that is more; and the rounding to the type.
 */
size_t perf_check_dispatch(const struct perf_rows *rows, int fp8,
                           const void *got);

/* What the experts of this rank answer, (total, hidden): made of source, token
 * and slot. */
void perf_fill_out(const struct perf_rows *rows, void *out);

/*
 * Gradients of results, (total, hidden): each row of the sources' x (as dy) by
 * its weight, within one rounding in f32 and one to the type.
 */
size_t perf_check_combine_backward(const struct perf_rows *rows,
                                   const void *dout);

/* Gradients of the weights, (tokens, topk): products in f64 of x (as dy) and of
 * what the experts answered, within a rounding in f32 of each step. */
size_t perf_check_dweight(const struct perf_rows *rows, const float *dweight);

/*
 * Combined rows: the weighted sum in f64 of what the experts of all ranks
 * answered, within the rounding of topk products and sums in f32 and of one to
 * the type.
 *
 * weighted  false: the plain sum, as dispatch_backward makes it
 * node_of  (ranks) where each node's sum was rounded to the type on its way
 *          here, too; NULL: nothing was
 */
size_t perf_check_combine(const struct perf_rows *rows, bool weighted,
                          const int *node_of, const void *y);

#endif
