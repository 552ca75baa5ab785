// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions one element at a time, straight from the definition in coll.h. The
 * library's kernels and collectives are compared with them. Conversions of the
 * narrow formats are the library's (dtype.h), which have tests of their own.
 */
#ifndef REDUCE_REF_H
#define REDUCE_REF_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/coll.h>

/* The same as shunti_reduce(). */
void reduce_ref(void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op, int divisor);

/* The result of a collective for the inputs of n ranks, of which rank i is on
 * node[i]. Inputs are added within nodes, then between nodes; see coll.h. */
void reduce_ref_tree(void *dst, const void *const *srcs, const int *node, int n,
                     size_t count, enum shunt_dtype dtype, enum shunt_op op);

/* Compares bits; two NaNs are equal. Returns the first index that differs, or
 * `count`. */
size_t reduce_compare(const void *a, const void *b, size_t count,
                      enum shunt_dtype dtype);

#endif
