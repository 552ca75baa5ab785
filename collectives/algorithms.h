// SPDX-License-Identifier: Apache-2.0
/*
 * The table of algorithms: a row for each pair of a collective and an
 * algorithm.
 *
 * A row says where its algorithm is possible, for which sizes it is considered
 * unless it is forced (SHUNT_ALGORITHM), and its cost between nodes. All of
 * these depend only on values that are the same on every rank; see select.h.
 */
#ifndef SHUNTI_ALGORITHMS_H
#define SHUNTI_ALGORITHMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/select.h"
#include "src/comm/link.h"

struct shunt_comm;

/* A range of bytes, including both ends. The range is empty if low > high. */
struct shunti_sizes {
    size_t low, high;
};

#define SHUNTI_ALL_SIZES ((struct shunti_sizes){0, SIZE_MAX})
#define SHUNTI_NO_SIZE ((struct shunti_sizes){1, 0})

static inline bool shunti_sizes_have(struct shunti_sizes sizes, size_t bytes)
{
    return bytes >= sizes.low && bytes <= sizes.high;
}

/* Narrow *same, which contains `bytes`, to the part that is on the same side of
 * both ends of `range` as `bytes`. */
void shunti_sizes_narrow(struct shunti_sizes *same, struct shunti_sizes range,
                         size_t bytes);

/* The condition under which an algorithm is possible. */
struct shunti_possible {
    bool (*here)(const struct shunt_comm *comm);
    const char *words; /* such as "between nodes"; NULL: everywhere */
};

/* The part of the costs that depends on the communicator. */
struct shunti_shape {
    int ranks, nodes, most; /* most: ranks of the largest node */
    struct shunti_links links;
};

struct shunti_work;

struct shunti_row {
    unsigned kind;
    enum shunti_algorithm algorithm;
    /* "flat_direct" is the member "direct" of the family "flat". */
    const char *name;
    const struct shunti_possible *possible;
    /* The sizes for which the algorithm is considered if SHUNT_ALGORITHM does
     * not name it. NULL: all sizes. */
    struct shunti_sizes (*suits)(const struct shunt_comm *comm);
    /* The cost between nodes. NULL: the algorithm is possible on one node
     * only. */
    struct shunti_work (*work)(double P, double N, double G, double far,
                               double S);
};

/* The rows of a kind are next to each other. */
const struct shunti_row *shunti_row_at(size_t i); /* NULL: no more */

/* "direct" of "flat_direct"; NULL: the name has no family. */
const char *shunti_row_member(const struct shunti_row *row);

/* True if calls of this kind pass a size to shunti_select(). Others pass 0. */
bool shunti_kind_is_sized(unsigned kind);

struct shunti_shape shunti_shape_of(const struct shunt_comm *comm);

/* A choice that shunti_choose() has made. */
struct shunti_chosen {
    const struct shunti_row *row;
    /* Sizes for which the same rows compete, including the size of the call. */
    struct shunti_sizes same;
    bool by_cost; /* several rows compete, and costs differ */
};

/* Choose an algorithm for a call of `kind`, without remembering the choice. */
struct shunti_chosen shunti_choose(const struct shunt_comm *comm, unsigned kind,
                                   size_t bytes);

/* Seconds that a call takes between nodes. On one node links are not measured:
 * 0 for all algorithms. */
double shunti_row_cost(const struct shunti_row *row,
                       const struct shunti_shape *shape, size_t bytes);

#endif
