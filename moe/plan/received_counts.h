// SPDX-License-Identifier: Apache-2.0
/*
 * What a rank needs of the records of all others: the column of itself. A
 * record is a row of the matrix of counts, source by expert; a rank receives
 * the rows of its own experts only, so to lay them out it needs a few numbers
 * of each source, and as many in all as there are experts.
 */
#ifndef SHUNTI_RECEIVED_COUNTS_H
#define SHUNTI_RECEIVED_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* What a source has for this rank. */
struct shunti_column {
    uint32_t tokens;      /* distinct ones */
    uint32_t node_tokens; /* for the node of this rank; 0 unless a route asks */
    uint32_t node_rows;   /* assignments to its experts; likewise */
    uint32_t node_pieces; /* that it sends home, at least one of each of
                             node_tokens; 0 unless they come by themselves */
    uint32_t count[];     /* (local experts) assignments */
};

/* 32-bit words of one: the stride of an array of them. */
static inline size_t shunti_column_words(size_t local)
{
    return sizeof(struct shunti_column) / sizeof(uint32_t) + local;
}

/* Room in moe->messages to send and receive so many bytes. False: no memory. */
bool shunti_messages_prepare(struct shunt_moe *moe, size_t out, size_t in);

/* Memory for those of all sources, and to exchange them. False: there is
 * none. */
bool shunti_received_counts_prepare(struct shunt_moe *moe);

/* Get them, after the records: out of these, or from each source, if the
 * records have no counts; all ranks decide alike. */
enum shunt_status shunti_received_counts_gather(struct shunt_moe *moe);

/* Do the numbers of a column agree with each other, and with the source's
 * tokens and padding? by_node: the node's are there. pieces: so are these. */
bool shunti_column_is_possible(const struct shunti_column *column, size_t local,
                               size_t tokens, size_t topk, size_t padded,
                               bool by_node, bool pieces);
/* The first source whose column contradicts its record, or -1. */
int shunti_received_counts_find_bad(const struct shunt_moe *moe);

const struct shunti_column *shunti_column_of(const struct shunt_moe *moe,
                                             int source);

#endif
