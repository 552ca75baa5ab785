// SPDX-License-Identifier: Apache-2.0
/*
 * Received counts: the part of all records that one rank needs. Records are the
 * rows of a matrix of counts, source by expert, and a rank needs its own
 * column. A rank receives rows for its own experts only. So it needs a few
 * numbers from each source: in all, about as many numbers as there are experts.
 */
#ifndef SHUNTI_RECEIVED_COUNTS_H
#define SHUNTI_RECEIVED_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* Counts of what one source sends to this rank. */
struct shunti_column {
    uint32_t tokens;      /* distinct tokens */
    uint32_t node_tokens; /* distinct tokens for this rank's node; set only if a
                             route counts by node, otherwise 0 */
    uint32_t node_rows;   /* assignments to experts of the node; set only if a
                             route counts by node */
    uint32_t node_pieces; /* pieces that the node sends home, at least one for
                             each of node_tokens; 0 if not routes.pieces */
    uint32_t count[];     /* (local experts) assignments to each expert */
};

/* Words of 32 bits in a column: the stride of an array of columns. */
static inline size_t shunti_column_words(size_t local)
{
    return sizeof(struct shunti_column) / sizeof(uint32_t) + local;
}

/* Get memory in moe->messages to send `out` bytes and to receive `in` bytes.
 * False: no memory. */
bool shunti_messages_prepare(struct shunt_moe *moe, size_t out, size_t in);

/* Get memory for the columns of all sources, and for their exchange. False: no
 * memory. */
bool shunti_received_counts_prepare(struct shunt_moe *moe);

/* Fill in the columns, after the records have arrived. If records have counts,
 * copy the columns from the records; otherwise each source sends one. All ranks
 * do the same. */
enum shunt_status shunti_received_counts_gather(struct shunt_moe *moe);

/* True if the numbers of a column agree with each other, and with the source's
 * tokens and padding. by_node: also check the node's numbers. pieces: also
 * check the pieces. */
bool shunti_column_is_possible(const struct shunti_column *column, size_t local,
                               size_t tokens, size_t topk, size_t padded,
                               bool by_node, bool pieces);
/* The first source whose column contradicts its record, or -1. */
int shunti_received_counts_find_bad(const struct shunt_moe *moe);

const struct shunti_column *shunti_column_of(const struct shunt_moe *moe,
                                             int source);

#endif
