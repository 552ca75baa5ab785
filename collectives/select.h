// SPDX-License-Identifier: Apache-2.0
/*
 * The choice of an algorithm.
 *
 * It depends only on what is the same on every rank: the communicator's nodes,
 * counts that must agree, link figures and tunables, which are rank 0's on all
 * ranks. A choice by anything local (in place or not, a window or not, a count
 * that the others do not know) would deadlock.
 */
#ifndef SHUNTI_SELECT_H
#define SHUNTI_SELECT_H

#include <stddef.h>
#include <stdio.h>

#include "src/op/request.h"

struct shunt_comm;

enum shunti_algorithm {
    SHUNTI_FLAT = 1,            /* one exchange of all pairs: exchange.h */
    SHUNTI_TWO_LEVEL_ALGORITHM, /* inside nodes and between them: two_level.h */
    /* Broadcast and barrier on one host: one rank exchanges control messages
     * with all others, star.h. */
    SHUNTI_STAR,
    /* Allreduce, flat. DIRECT: every rank gets every vector and reduces all of
     * it. SEGMENTS: each rank reduces a segment, and the others copy it from
     * there. */
    SHUNTI_ALLREDUCE_DIRECT,
    SHUNTI_ALLREDUCE_SEGMENTS,
    /* Allreduce in two levels: whole vectors, or a segment for each lane. */
    SHUNTI_ALLREDUCE_WHOLE,
    SHUNTI_ALLREDUCE_LANES,
};

/*
 * The algorithm of a call of `kind`. bytes: of the message (broadcast), of the
 * vector (allreduce), of all blocks that a rank receives (allgather) or sends
 * (reduce_scatter), of a block (alltoall); ignored for other kinds.
 */
enum shunti_algorithm shunti_select(const struct shunt_comm *comm,
                                    unsigned kind, size_t bytes);

/* alltoall and alltoallv in two levels: larger blocks are sent directly. */
size_t shunti_select_carry(const struct shunt_comm *comm);

/* Print the table for this communicator: tools and logs. */
void shunti_select_table(const struct shunt_comm *comm, FILE *out);

/* The first entry of a SHUNT_ALGORITHM that names no algorithm, and its length;
 * NULL: all entries are valid. */
const char *shunti_select_unknown(const char *text, size_t *len);

/* Print the algorithms that SHUNT_ALGORITHM can name, by collective. */
void shunti_select_names(FILE *out);

#endif
