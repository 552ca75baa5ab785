// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions one element after another, straight from the definition in
 * coll.h: what the library's kernels and collectives are held to. The narrow
 * formats' conversions are the library's (dtype.h), which have tests of their
 * own.
 */
#ifndef REDUCE_REF_H
#define REDUCE_REF_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/coll.h>

/* As shunti_reduce(). */
void reduce_ref(void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op, int divisor);

/* What a collective makes of the inputs of n ranks on those nodes: added within
 * nodes, then between them; coll.h. */
void reduce_ref_tree(void *dst, const void *const *srcs, const int *node, int n,
                     size_t count, enum shunt_dtype dtype, enum shunt_op op);

/* The same bits, or both NaNs. Returns the first index that differs, or
 * count. */
size_t reduce_compare(const void *a, const void *b, size_t count,
                      enum shunt_dtype dtype);

#endif
