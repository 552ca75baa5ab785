// SPDX-License-Identifier: Apache-2.0
/*
 * The order of sums: a tree that follows the nodes.
 *
 * The inputs of a node's ranks are combined in rank order into a *partial*.
 * Then the partials of nodes a to b - 1 are combined as
 *
 *     T(a, b) = T(a, a + h) op T(a + h, b),  T(a, a + 1) = partial of node a
 *
 * where h is the largest power of two below b - a. An algorithm that doubles
 * the number of nodes in each step computes this tree by itself. The error of a
 * sum grows with log2(nodes), not with their number (Higham, "The accuracy of
 * floating point summation", 1993). Up to three nodes are combined one after
 * the other.
 *
 * Every algorithm does this, even if one rank has all inputs, so the bits
 * depend neither on sizes nor on algorithms. With one node this is just the
 * order of the ranks.
 *
 * Partials of f16 and bf16 are f32. The result is rounded at the end, when all
 * partials have been combined. SHUNT_AVG divides at the end, too.
 */
#ifndef SHUNTI_TREE_H
#define SHUNTI_TREE_H

#include <stddef.h>

#include <shunt/coll.h>

struct shunt_comm;

/* Bytes of one element of a partial. */
size_t shunti_partial_size(enum shunt_dtype dtype);

/* Combine n sources into a partial: dst[i] = srcs[0][i] op srcs[1][i] ... dst
 * must not be one of the sources. */
void shunti_partial(void *dst, const void *const *srcs, int n, size_t count,
                    enum shunt_dtype dtype, enum shunt_op op);

/* Combine the partials of all n >= 2 nodes into the result dst, which may be
 * the first partial. */
void shunti_join(void *dst, const void *const *partials, int n, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op, int nranks);

/* Combine two partials, of nodes that are next to each other in the tree, into
 * one. dst must not be the second partial. */
void shunti_combine(void *dst, const void *const partials[2], size_t count,
                    enum shunt_dtype dtype, enum shunt_op op);

/* Combine the inputs of all ranks, by both of these steps. dst may be one of
 * srcs. srcs and scratch: (nranks). */
void shunti_tree(const struct shunt_comm *comm, void *dst,
                 const void *const *srcs, const void **scratch, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op);

#endif
