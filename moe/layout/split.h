// SPDX-License-Identifier: Apache-2.0
/*
 * Shares in a plan: find the copy for each row of this rank.
 *
 * The rows of an expert that a copy takes depend on how many rows all ranks
 * have for the expert. So all ranks' counts are gathered first. Then the
 * routing is rewritten: the expert of each assignment becomes the number of a
 * copy (shares.h). A plan is made from the new routing as from any other.
 */
#ifndef SHUNTI_SPLIT_H
#define SHUNTI_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

struct shunti_plan;

/* State for the plan that is being made. */
struct shunti_split {
    const int32_t *expert; /* (tokens, topk) the routing that is counted: the
                              caller's, or moe->expert if any assignment is
                              dropped */
    int32_t *routing; /* (tokens, topk) the same routing, with copies in place
                         of experts */
    uint32_t *count;  /* (nranks, experts) assignments of all ranks */
    size_t *sums;     /* (2 * experts) scratch */
    /* (copies) how many more rows of this rank each copy takes */
    uint32_t *left;
    int32_t *next; /* (experts) the copy that takes this rank's next row */
    struct shunt_moe_range *range; /* (copies) rows that each copy takes, by the
                                      number of the copy */
    size_t routing_max, count_max, sums_max, left_max, next_max, range_max;
    size_t dropped; /* assignments of this rank over capacity */
};

void shunti_split_finish(struct shunti_split *split);

/*
 * Count the routing of this rank. The capacity applies to each source and
 * expert, as without shares, so it does not matter which copy takes a row.
 * Assignments over the capacity are dropped. The exchange's placement must have
 * shares.
 *
 * factor  capacity factor of the plan: shunti_capacity().
 *
 * Errors: SHUNT_ERR_INVALID, SHUNT_ERR_MEMORY; `why` says what is wrong. Even
 * then the rank must call shunti_split_gather().
 */
enum shunt_status shunti_split_count(struct shunt_moe *moe,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, double factor, char *why,
                                     size_t len);

/* Gather the counts of all ranks. Every rank joins, with the status of its own
 * call; after an error its counts are 0. The records send that status to the
 * other ranks (records.h). */
enum shunt_status shunti_split_gather(struct shunt_moe *moe,
                                      enum shunt_status status);

/* Find the ranges of all copies in the plan. Returns the routing with copies in
 * place of experts. NULL: no memory. */
const int32_t *shunti_split_apply(struct shunt_moe *moe,
                                  struct shunti_plan *plan, size_t tokens);

/* (experts) The counts of a rank. Valid until the next plan is made. */
const uint32_t *shunti_split_counts(const struct shunt_moe *moe, size_t source);

/* For plans without shares. prepare: get memory for ranges; false: no memory.
 * none: set the ranges, which are whole experts or SHUNT_MOE_SCATTERED. */
bool shunti_split_prepare(struct shunti_plan *plan);
void shunti_split_none(struct shunti_plan *plan);

/* (experts of this rank) The ranges that shunt_moe_plan_rows() reports. */
const struct shunt_moe_range *
shunti_split_ranges_here(const struct shunti_plan *plan);

#endif
