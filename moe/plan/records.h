// SPDX-License-Identifier: Apache-2.0
/*
 * Records: shunt_moe_plan_create() gathers a record of each rank on every rank.
 *
 * A record says whether the rank's call is valid, and which places for plans
 * are free on the rank. It also says how many assignments the rank has for each
 * expert. So after one exchange every rank knows the layout of every other
 * rank.
 *
 * The counts of all ranks are ranks * (experts + ranks) numbers, which each
 * rank must receive and read. Above SHUNT_MOE_RECORDS bytes, records are
 * gathered without counts. Then each rank receives its column of the counts
 * (received_counts.h). The ranks to which it sends rows send it the offsets of
 * these rows (remote_offsets.h). That takes two more exchanges, of only as many
 * numbers as there are experts and ranks.
 */
#ifndef SHUNTI_RECORDS_H
#define SHUNTI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* Bytes of a record. With all arguments 0: bytes of a record without counts.
 * pieces: the record counts pieces (struct shunti_routes). */
size_t shunti_record_bytes(int experts, int ranks, int nodes, bool pieces);

/* Get memory for all ranks' records. False: no memory. */
bool shunti_records_prepare(struct shunt_moe *moe);

/* True if records are gathered with their counts; the same on all ranks. */
bool shunti_records_have_counts(const struct shunt_moe *moe);

/*
 * Make this rank's record. Check the call, read the routing into the record and
 * moe->key, and drop assignments over the capacity. Also fill in the counts of
 * moe->spare, whose memory must have been allocated.
 *
 * Errors: those of the call; `why` says what is wrong.
 */
enum shunt_status shunti_records_read(struct shunt_moe *moe,
                                      const int32_t *expert,
                                      const float *weight, size_t tokens,
                                      char *why, size_t len);

/* Gather all records. Every rank joins, with the status of its own call. Every
 * rank gets an error if any rank's call failed, or if records do not agree. */
enum shunt_status shunti_records_gather(struct shunt_moe *moe,
                                        enum shunt_status status,
                                        const char *why);

/* The number of a new plan, on which all ranks agree. */
uint64_t shunti_records_number(struct shunt_moe *moe);
/* True if place i for a plan is free on every rank. */
bool shunti_records_free(const struct shunt_moe *moe, int i);

/* The most tokens of any rank. */
size_t shunti_records_most_tokens(const struct shunt_moe *moe);
/* tokens: the tokens of a rank. padded: with pad_to_capacity, the rows that
 * each expert reserves for the rank; otherwise 0. */
size_t shunti_records_tokens(const struct shunt_moe *moe, int rank);
size_t shunti_records_padded(const struct shunt_moe *moe, int rank);
/* True if any rank has tokens left after the wave of these records. */
bool shunti_records_left(const struct shunt_moe *moe);
/* True if every token of every rank has an expert on every other node. Valid
 * only if a route counts by node. */
bool shunti_records_everywhere(const struct shunt_moe *moe);

/* The counts of a rank's record. */
struct shunti_record_view {
    const uint32_t *expert; /* (experts) assignments */
    const uint32_t *rank;   /* (ranks) distinct tokens for each rank */
    /* (nodes) Distinct tokens for each node; set only if a route counts by
     * node, otherwise 0. */
    const uint32_t *node;
    /* (nodes) Assignments to each node's experts; set only if a route counts by
     * node. */
    const uint32_t *node_rows;
    const uint32_t *pieces; /* (nodes) pieces (pieces.h) of each node; NULL if
                               not routes.pieces */
};

/* The counts of `rank`. If records have no counts, `rank` must be this rank. */
struct shunti_record_view shunti_record(const struct shunt_moe *moe, int rank);

/* This rank's assignments to other ranks of its node, and to other nodes. */
struct shunti_sent {
    size_t near, far;
};

struct shunti_sent shunti_records_sent(const struct shunt_moe *moe);

#endif
