// SPDX-License-Identifier: Apache-2.0
/*
 * A plan in parts: the tokens of each rank are cut into so many pieces, and a
 * call moves one of them, or all.
 *
 * A row's slot does not depend on the parts, and neither does anything else of
 * a plan: a call of one part is the same operation on a range of tokens. Every
 * route has what it sends in the order of tokens, so of each source a part is a
 * range there, too. What a rank cannot find out by itself is how many rows of
 * each part come to it: the marks, which the ranks exchange with the plan if
 * there are several parts.
 */
#ifndef SHUNTI_PARTS_H
#define SHUNTI_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe_parts.h>

struct shunti_plan;

/* Calls of which each part is made once a round: dispatch and so on. */
#define SHUNTI_PART_CALLS 4

/* What a call moves: these parts, from <= part < to. A part begins at a bound:
 * the number of a part, or that of all parts, where the last one ends. */
struct shunti_cut {
    int from, to;
};

struct shunti_parts {
    int count;
    /* (ranks, count - 1, 1 + local experts) by source and inner bound: its
     * distinct tokens that come here before the bound, and its rows for each
     * expert here. */
    uint32_t *mark;
    size_t mark_max;
    /* By call and part: how often it was made, and how often it has failed since it
     * was begun last. Calls of all parts change nothing between the parts. */
    uint32_t made[SHUNTI_PART_CALLS][SHUNT_MOE_PARTS_MAX];
    uint32_t failed[SHUNTI_PART_CALLS][SHUNT_MOE_PARTS_MAX];
    /* What the caller is told (parts_rows.c), once asked for. */
    size_t *told;
    size_t told_max;
    bool is_told;
};

/* The first token of ours behind a bound. */
size_t shunti_parts_token(const struct shunti_plan *plan, int bound);
/* Rows, and distinct tokens, that `source` has before a bound for the i-th
 * expert of this rank, and for this rank. */
size_t shunti_parts_rows(const struct shunti_plan *plan, int bound, int source,
                         size_t i);
size_t shunti_parts_tokens(const struct shunti_plan *plan, int bound,
                           int source);

/* --- rows of a cut ------------------------------------------------------------- */

/* Rows of one source for one expert. */
struct shunti_range {
    size_t local; /* which expert of this rank's */
    int source;
    size_t row, count; /* in the rows buffer; never 0 */
};

/* All ranges of a cut, in the order of the rows buffer. */
struct shunti_ranges {
    const struct shunti_plan *plan;
    struct shunti_cut cut;
    size_t local;
    int source;
    size_t row; /* of the source's rows for the expert */
};

struct shunti_ranges shunti_ranges_of(const struct shunti_plan *plan,
                                      struct shunti_cut cut);
/* The next one; false: no more. */
bool shunti_ranges_next(struct shunti_ranges *ranges,
                        struct shunti_range *range);

/* How many of those rows are others'. */
size_t shunti_parts_lent(const struct shunti_plan *plan, struct shunti_cut cut);
/* List all of them. Returns how many there are: at most the rows of the plan. */
size_t shunti_parts_list(const struct shunti_plan *plan, struct shunti_cut cut,
                         uint32_t *rows);
/* Copy those of others from one buffer to another. */
void shunti_parts_copy(const struct shunti_plan *plan, struct shunti_cut cut,
                       void *to, const void *from);

/* --- calls --------------------------------------------------------------------- */

static inline bool shunti_cuts_overlap(struct shunti_cut a, struct shunti_cut b)
{
    return a.from < b.to && b.from < a.to;
}

/* A bit for each part. */
static inline uint64_t shunti_cut_bits(struct shunti_cut cut)
{
    const int n = cut.to - cut.from;

    return n ? UINT64_MAX >> (64 - n) << cut.from : 0;
}

bool shunti_cut_is_whole(const struct shunti_plan *plan, struct shunti_cut cut);

/* Is it the turn of this part, or has it been made more often than another? The caller
 * may begin the next round before it is told that a part has failed. It begins that
 * part again only when it has been told. */
bool shunti_parts_may(const struct shunti_plan *plan, int call, int part);
/* A call is made; it is over. One that failed does not count. */
void shunti_parts_begin(struct shunti_plan *plan, int call,
                        struct shunti_cut cut);
void shunti_parts_end(struct shunti_plan *plan, int call, struct shunti_cut cut,
                      enum shunt_status status);
/* A call of which some parts have not been made, or -1. */
int shunti_parts_unfinished(const struct shunti_plan *plan);

/* --- plans --------------------------------------------------------------------- */

/* Memory for a plan in so many parts. False: there is none. */
bool shunti_parts_prepare(struct shunti_plan *plan, int count);
/* The plan is cut into so many, after its terms are known: exchange the marks.
 * Collective; all ranks get the same errors. */
enum shunt_status shunti_parts_cut(struct shunti_plan *plan);

#endif
