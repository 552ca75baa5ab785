// SPDX-License-Identifier: Apache-2.0
/*
 * The order of sums: a tree that nodes give.
 *
 * The inputs of a node's ranks are combined in the order of the ranks, into a
 * *partial*; then the nodes' partials, in the order of the nodes. Every
 * algorithm does so, also where all inputs are at hand: so the bits depend
 * neither on sizes nor on algorithms. With one node it is the plain order of
 * the ranks.
 *
 * Partials of f16 and bf16 are f32, and rounded when all are in; avg divides
 * then, too.
 */
#ifndef SHUNTI_TREE_H
#define SHUNTI_TREE_H

#include <stddef.h>

#include <shunt/coll.h>

struct shunt_comm;

/* Bytes of a partial's element. */
size_t shunti_partial_size(enum shunt_dtype dtype);

/* dst[i] = srcs[0][i] op ... as a partial; dst is none of the n sources. */
void shunti_partial(void *dst, const void *const *srcs, int n, size_t count,
                    enum shunt_dtype dtype, enum shunt_op op);

/* dst[i] = all n >= 2 nodes' partials; may overwrite the first. */
void shunti_join(void *dst, const void *const *partials, int n, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op, int nranks);

/* Both, of all ranks' inputs (nranks), by rank; dst may be one of them.
 * scratch: (nranks). */
void shunti_tree(const struct shunt_comm *comm, void *dst,
                 const void *const *srcs, const void **scratch, size_t count,
                 enum shunt_dtype dtype, enum shunt_op op);

#endif
