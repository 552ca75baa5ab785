// SPDX-License-Identifier: Apache-2.0
/*
 * A plan in parts: the tokens of each rank are cut into several ranges, and a
 * call moves one of them, or all.
 *
 * Neither the slot of a row nor anything else in a plan depends on the parts. A
 * call of one part is the same operation on a range of tokens. Every route
 * sends rows in the order of tokens, so at the receiver a part is a range of
 * each source's rows. Only the source knows how many rows a part has. So with
 * several parts, ranks exchange these numbers, the marks, when they make the
 * plan.
 */
#ifndef SHUNTI_PARTS_H
#define SHUNTI_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe_parts.h>

struct shunti_plan;

/* Number of calls that are made once in each round for each part: dispatch,
 * combine and their gradients. */
#define SHUNTI_PART_CALLS 4

/* The parts that a call moves: from <= part < to. `from` and `to` are bounds:
 * part b begins at bound b, and the last part ends at the last bound. */
struct shunti_cut {
    int from, to;
};

struct shunti_parts {
    int count;
    /* (ranks, count - 1, 1 + local experts) For each source, and each bound but
     * the first and last: counts of what the source sends to this rank in the
     * parts before the bound. Each mark has first the distinct tokens, then the
     * rows of each expert of this rank. */
    uint32_t *mark;
    size_t mark_max;
    /* By call and part. made: how many calls are under way or succeeded.
     * failed: how many calls failed since the last one of this part began. A
     * call of all parts changes `made` of all parts alike, and adds nothing to
     * `failed`. */
    uint32_t made[SHUNTI_PART_CALLS][SHUNT_MOE_PARTS_MAX];
    uint32_t failed[SHUNTI_PART_CALLS][SHUNT_MOE_PARTS_MAX];
    /* Answers of shunt_moe_part_rows() (parts_rows.c), made at first need. */
    size_t *answers;
    size_t answers_max;
    bool has_answers;
};

/* The number of this rank's first token behind a bound. */
size_t shunti_parts_token(const struct shunti_plan *plan, int bound);
/* Counts of what `source` sends to this rank before a bound.
 * shunti_parts_rows(): rows for the i-th expert of this rank.
 * shunti_parts_tokens(): distinct tokens. */
size_t shunti_parts_rows(const struct shunti_plan *plan, int bound, int source,
                         size_t i);
size_t shunti_parts_tokens(const struct shunti_plan *plan, int bound,
                           int source);

/* --- rows of a cut ------------------------------------------------------------- */

/* Rows of one source for one expert. */
struct shunti_range {
    size_t local; /* index of the expert on this rank */
    int source;
    size_t row, count; /* first row in the buffer; number of rows, never 0 */
};

/* Iterates over the ranges of a cut, in the order of the rows buffer. */
struct shunti_ranges {
    const struct shunti_plan *plan;
    struct shunti_cut cut;
    size_t local;
    int source;
    size_t row; /* first row of `source` for the expert */
};

struct shunti_ranges shunti_ranges_of(const struct shunti_plan *plan,
                                      struct shunti_cut cut);
/* Set *range to the next range. False: there is none. */
bool shunti_ranges_next(struct shunti_ranges *ranges,
                        struct shunti_range *range);

/* The number of the cut's rows that come from other ranks. */
size_t shunti_parts_lent(const struct shunti_plan *plan, struct shunti_cut cut);
/* List the rows of a cut. Returns their number: at most the plan's rows. */
size_t shunti_parts_list(const struct shunti_plan *plan, struct shunti_cut cut,
                         uint32_t *rows);
/* Copy the rows that come from other ranks from one buffer to another. */
void shunti_parts_copy(const struct shunti_plan *plan, struct shunti_cut cut,
                       void *to, const void *from);

/* --- calls --------------------------------------------------------------------- */

static inline bool shunti_cuts_overlap(struct shunti_cut a, struct shunti_cut b)
{
    return a.from < b.to && b.from < a.to;
}

/* A mask with a bit for each part of the cut. */
static inline uint64_t shunti_cut_bits(struct shunti_cut cut)
{
    const int n = cut.to - cut.from;

    return n ? UINT64_MAX >> (64 - n) << cut.from : 0;
}

bool shunti_cut_is_whole(const struct shunti_plan *plan, struct shunti_cut cut);

/* True if this part may be called now: no other part was called less often.
 * Failed calls of other parts count, too, because the caller may have begun the
 * next round before it learned of the failure. */
bool shunti_parts_may(const struct shunti_plan *plan, int call, int part);
/* begin: count a call. end: the call is over; if it failed, do not count it any
 * more. */
void shunti_parts_begin(struct shunti_plan *plan, int call,
                        struct shunti_cut cut);
void shunti_parts_end(struct shunti_plan *plan, int call, struct shunti_cut cut,
                      enum shunt_status status);
/* Find a kind of call that was not made equally often for all parts; -1: there
 * is none. */
int shunti_parts_unfinished(const struct shunti_plan *plan);

/* --- plans --------------------------------------------------------------------- */

/* Get memory for a plan in `count` parts. False: no memory. */
bool shunti_parts_prepare(struct shunti_plan *plan, int count);
/* Cut the plan into its parts, once its terms are known: exchange the marks.
 * Collective; all ranks get the same errors. */
enum shunt_status shunti_parts_cut(struct shunti_plan *plan);

#endif
