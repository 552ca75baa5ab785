// SPDX-License-Identifier: Apache-2.0
/*
 * What shunt_moe_plan_create() gathers: a record of each rank on every rank.
 *
 * A record says whether the call is in order there, which places for plans are
 * free, and how many assignments the rank has for each expert. Then every rank
 * knows the layout of every other, after one exchange.
 *
 * But all ranks' counts are ranks * (experts + ranks) numbers, which each rank
 * receives and reads. So from SHUNT_MOE_RECORDS on a record is gathered without
 * its counts. Then each rank gets its column of them (received_counts.h), and the ranks
 * that it sends to tell it where its rows begin there (remote_offsets.h): two more
 * exchanges, of as many numbers as there are experts and ranks.
 */
#ifndef SHUNTI_RECORDS_H
#define SHUNTI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* Bytes of a record; without its counts, if all are 0. pieces: are these counted
 * (struct shunti_routes)? */
size_t shunti_record_bytes(int experts, int ranks, int nodes, bool pieces);

/* Memory for all ranks' records. False: there is none. */
bool shunti_records_prepare(struct shunt_moe *moe);

/* Are they gathered with their counts? The same on all ranks. */
bool shunti_records_have_counts(const struct shunt_moe *moe);

/*
 * This rank's record: check the call, read the routing into it and moe->key,
 * drop what exceeds the capacity, and fill in the counts of moe->spare, which
 * has its memory already.
 *
 * Errors: what is wrong with the call; `why` says it.
 */
enum shunt_status shunti_records_read(struct shunt_moe *moe,
                                      const int32_t *expert,
                                      const float *weight, size_t tokens,
                                      char *why, size_t len);

/* Gather all records. Every rank joins, with the status of its own call, and
 * gets an error if any rank's call failed or if the records do not agree. */
enum shunt_status shunti_records_gather(struct shunt_moe *moe,
                                        enum shunt_status status,
                                        const char *why);

/* The number of a plan that all ranks have agreed on. */
uint64_t shunti_records_number(struct shunt_moe *moe);
/* Is place i for a plan free on every rank? */
bool shunti_records_free(const struct shunt_moe *moe, int i);

/* Tokens of the rank that has most. */
size_t shunti_records_most_tokens(const struct shunt_moe *moe);
/* A rank's tokens, and the rows that each expert takes of them, if padded. */
size_t shunti_records_tokens(const struct shunt_moe *moe, int rank);
size_t shunti_records_padded(const struct shunt_moe *moe, int rank);
/* Has any rank tokens behind the wave that these are of? */
bool shunti_records_left(const struct shunt_moe *moe);
/* Has each token of every rank an expert on each node? Only if a route counts by
 * node. */
bool shunti_records_everywhere(const struct shunt_moe *moe);

/* The counts of a rank's record. */
struct shunti_record_view {
    const uint32_t *expert; /* (experts) assignments */
    const uint32_t *rank;   /* (ranks) distinct tokens for each */
    const uint32_t *node;   /* (nodes) likewise; 0 unless the route asks */
    const uint32_t
        *node_rows;         /* (nodes) assignments to its experts; likewise */
    const uint32_t *pieces; /* (nodes) pieces.h; NULL unless they come home by
                               themselves (struct shunti_routes) */
};

/* Of another rank only if shunti_records_have_counts(). */
struct shunti_record_view shunti_record(const struct shunt_moe *moe, int rank);

/* Assignments of ours to other ranks of our node, and to other nodes. */
struct shunti_sent {
    size_t near, far;
};

struct shunti_sent shunti_records_sent(const struct shunt_moe *moe);

#endif
