// SPDX-License-Identifier: Apache-2.0
/*
 * The choice of an algorithm.
 *
 * The choice depends only on what is the same on every rank: the communicator's
 * nodes, counts that must agree, and rank 0's link figures and tunables, which
 * all ranks use. A choice by anything local (in place or not, a window or not,
 * a count that the other ranks do not know) would deadlock.
 */
#ifndef SHUNTI_SELECT_H
#define SHUNTI_SELECT_H

#include <stddef.h>
#include <stdio.h>

#include "src/op/request.h"

struct shunt_comm;

enum shunti_algorithm {
    SHUNTI_FLAT = 1,            /* one exchange between all pairs: exchange.h */
    SHUNTI_TWO_LEVEL_ALGORITHM, /* inside nodes and between them: two_level.h */
    /* Broadcast and barrier on one host: one rank exchanges control messages
     * with all others, star.h. */
    SHUNTI_STAR,
    SHUNTI_DISSEMINATION, /* in rounds between nodes: two_level.h */
    /* Allreduce, flat. DIRECT: every rank gets every vector and reduces all of
     * it. SEGMENTS: each rank reduces one segment, and the others copy the
     * result from that rank. */
    SHUNTI_ALLREDUCE_DIRECT,
    SHUNTI_ALLREDUCE_SEGMENTS,
    /* Allreduce in two levels. WHOLE: whole vectors. LANES: one segment for
     * each lane. SHARDS: each lane cuts its segment (allreduce_two_level.c). */
    SHUNTI_ALLREDUCE_WHOLE,
    SHUNTI_ALLREDUCE_LANES,
    SHUNTI_ALLREDUCE_SHARDS,
    /* Allreduce in rounds, whose messages do not grow. */
    SHUNTI_ALLREDUCE_DOUBLING,
};

/*
 * The algorithm of a call of `kind`, of which algorithms.c has rows. `bytes` is
 * the size of the message (broadcast), of the vector (allreduce), or of one
 * block (alltoall). For allgather, it is the size of all blocks that a rank
 * receives; for reduce_scatter, of all blocks that it sends. Other kinds pass
 * 0. The communicator remembers the choice.
 */
enum shunti_algorithm shunti_select(struct shunt_comm *comm, unsigned kind,
                                    size_t bytes);

/* Print this communicator's table of algorithms, for tools and logs. */
void shunti_select_table(const struct shunt_comm *comm, FILE *out);

/* The first entry of the SHUNT_ALGORITHM value `text` that is ignored in every
 * communicator, its length in *len, and the reason in *why: "names no
 * algorithm". NULL: there is none. */
const char *shunti_select_mistake(const char *text, size_t *len,
                                  const char **why);

/* Print the algorithms that SHUNT_ALGORITHM can name, by collective, and where
 * each is possible. */
void shunti_select_names(FILE *out);

#endif
