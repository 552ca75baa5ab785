// SPDX-License-Identifier: Apache-2.0
/*
 * Which algorithm runs when.
 *
 * Decided from what every rank knows alike: the communicator's size, counts
 * that must agree, and tunables, which are rank 0's on all of them. A choice
 * by anything local (in place or not, a window or not) would deadlock.
 */
#ifndef SHUNTI_SELECT_H
#define SHUNTI_SELECT_H

#include <stddef.h>

struct shunt_comm;

enum shunti_algorithm {
    /* Every rank gets every vector, and reduces all of it: one round. */
    SHUNTI_ALLREDUCE_DIRECT = 1,
    /* Each rank reduces a segment; the others take it from there: two. */
    SHUNTI_ALLREDUCE_SEGMENTS,
};

/* For an allreduce of vectors of so many bytes. */
enum shunti_algorithm shunti_select_allreduce(const struct shunt_comm *comm,
                                              size_t bytes);

#endif
