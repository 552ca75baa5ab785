// SPDX-License-Identifier: Apache-2.0
/*
 * Shares in a plan: each row of this rank gets its copy.
 *
 * Which rows of an expert a copy takes follows from how many rows all ranks have
 * for it. So the counts of all ranks are gathered first. Then the routing is
 * rewritten: the expert of each assignment becomes the number of a copy
 * (shares.h), and a plan is made of that as of any other routing.
 */
#ifndef SHUNTI_SPLIT_H
#define SHUNTI_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

struct shunti_plan;

/* Of the plan that is being made. */
struct shunti_split {
    const int32_t *expert; /* (tokens, topk) the routing that is counted: the
                              caller's, or moe->expert without what is dropped */
    int32_t *routing;      /* (tokens, topk) the same by copies */
    uint32_t *count;       /* (nranks, experts) assignments of all ranks */
    size_t *sums;          /* (2 * experts) */
    uint32_t *left;        /* (copies) rows of ours that each still takes */
    int32_t *next;         /* (experts) the copy that takes the next row */
    struct shunt_moe_range *range; /* (copies) by number */
    size_t routing_max, count_max, sums_max, left_max, next_max, range_max;
    size_t dropped; /* assignments of ours over capacity */
};

void shunti_split_finish(struct shunti_split *split);

/*
 * Count the routing, without what exceeds the capacity, of each source and expert as
 * without shares: which copy takes a row does not matter to it. The exchange's
 * placement has shares.
 *
 * factor  of the plan: shunti_capacity().
 *
 * Errors: SHUNT_ERR_INVALID, SHUNT_ERR_MEMORY; `why` says what is wrong. Then the
 * rank still gathers, with no counts.
 */
enum shunt_status shunti_split_count(struct shunt_moe *moe,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, double factor, char *why,
                                     size_t len);

/* Gather the counts of all ranks. Every rank joins, with the status of its own
 * call, which the records tell the others (records.h). */
enum shunt_status shunti_split_gather(struct shunt_moe *moe,
                                      enum shunt_status status);

/* The routing by copies, and the ranges of all copies in the plan. NULL: no
 * memory. */
const int32_t *shunti_split_apply(struct shunt_moe *moe,
                                  struct shunti_plan *plan, size_t tokens);

/* (experts) those of a rank, until the next plan is made. */
const uint32_t *shunti_split_counts(const struct shunt_moe *moe, size_t source);

/* Ranges of a plan without shares. False: no memory. */
bool shunti_split_prepare(struct shunti_plan *plan);
void shunti_split_none(struct shunti_plan *plan);

/* (experts of this rank) as published. */
const struct shunt_moe_range *
shunti_split_ranges_here(const struct shunti_plan *plan);

#endif
