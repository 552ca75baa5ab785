// SPDX-License-Identifier: Apache-2.0
/*
 * Which algorithm runs when.
 *
 * Decided from what every rank knows alike: the communicator's nodes, counts
 * that must agree, link figures and tunables, which are rank 0's on all of
 * them. A choice by anything local (in place or not, a window or not, a count
 * that the others do not know) would deadlock.
 */
#ifndef SHUNTI_SELECT_H
#define SHUNTI_SELECT_H

#include <stdbool.h>
#include <stddef.h>

#include "request.h"

struct shunt_comm;

enum shunti_algorithm {
    /* One exchange of all pairs. */
    SHUNTI_FLAT = 1,
    /* Inside nodes and between them: two_level.h. */
    SHUNTI_LEVELS,
    /* Allreduce, flat, in one exchange: every rank gets every vector, and
     * reduces all of it; or in two: each rank reduces a segment, and the others
     * take it from there. */
    SHUNTI_ALLREDUCE_DIRECT,
    SHUNTI_ALLREDUCE_SEGMENTS,
    /* In two levels: whole vectors, or a segment for each lane. */
    SHUNTI_ALLREDUCE_WHOLE,
    SHUNTI_ALLREDUCE_LANES,
};

/* For a call of this kind whose ranks have `bytes` each (what that means:
 * select.c). */
enum shunti_algorithm shunti_select(const struct shunt_comm *comm,
                                    enum shunti_kind kind, size_t bytes);

/* alltoall and alltoallv in two levels: larger blocks go straight. */
size_t shunti_select_carry(const struct shunt_comm *comm);

#endif
