// SPDX-License-Identifier: Apache-2.0
/*
 * The order of sums: a tree that follows the nodes.
 *
 * The inputs of a node's ranks are combined in rank order into a *partial*;
 * then the nodes' partials are combined in node order. Every algorithm does
 * this, even if one rank has all inputs, so the bits depend neither on sizes
 * nor on algorithms. With one node it is just the order of the ranks.
 *
 * Partials of f16 and bf16 are f32, and are rounded at the end, when all have
 * been combined. avg divides then, too.
 */
#ifndef SHUNTI_TREE_H
#define SHUNTI_TREE_H

#include <stddef.h>

#include <shunt/coll.h>

struct shunt_comm;

/* Bytes of a partial's element. */
size_t shunti_partial_size(enum shunt_dtype dtype);

/* dst[i] = srcs[0][i] op ... as a partial; dst must not be one of the n
 * sources. */
void shunti_partial(void *dst, const void *const *srcs, int n, size_t count,
                    enum shunt_dtype dtype, enum shunt_op op);

/* dst[i] = the partials of all n >= 2 nodes combined; dst may be the first
 * partial. */
void shunti_join(void *dst, const void *const *partials, int n, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op, int nranks);

/* Both steps, for the inputs of all ranks (nranks); dst may be one of them.
 * scratch: (nranks). */
void shunti_tree(const struct shunt_comm *comm, void *dst,
                 const void *const *srcs, const void **scratch, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op);

#endif
