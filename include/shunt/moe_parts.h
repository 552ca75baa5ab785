// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Mixture of experts, in parts: experts compute on one part while others
 * travel.
 *
 *     shunt_moe_plan_create_parts(moe, idx, weight, tokens, 4, &plan);
 *     for (p = 0; p < 4; p++)
 *         shunt_moe_dispatch_part_start(plan, p, x, rows, total, &sent[p]);
 *     for (p = 0; p < 4; p++) {
 *         shunt_wait(&sent[p]);
 *         shunt_moe_part_rows(plan, p, &part, sizeof(part));
 *         ... the experts, on the rows of `part` ...
 *         shunt_moe_combine_part_start(plan, p, out, NULL, y, &back[p]);
 *     }
 *     shunt_wait_all(back, 4);
 *
 * examples/moe_overlap.c is a whole layer. Each rank's tokens are divided into
 * parts, as equal as possible, in their order. (Tutel, 2206.03382, calls them
 * chunks. Parts are chunks of tokens.)
 *
 * Bits. A token is in one part, with all its experts, so no sum is divided.
 * rows, y, dout, dweight and dx have the same bits in any number of parts.
 * Slots do not depend on the parts either: each row has the place in the rows
 * buffer that it has in a plan of one part (struct shunt_moe_rows). The rows of
 * a part are ranges of the buffer, one for each expert and source rank. So a
 * product over all rows of an expert, as the gradient of its weights, adds in
 * the same order in any number of parts.
 *
 * Arguments. Calls of one part take the same whole arrays as the calls of
 * moe.h. They use only what belongs to the part: its tokens in arrays of
 * tokens, its rows in arrays of rows. Other calls may use the rest meanwhile,
 * so requests of different parts may share their arrays. This holds also for
 * memory that is no window, and for memory of a GPU (moe.h).
 *
 * Order. Parts may be called in any order that is the same on every rank. They
 * may be under way together, and together with calls of other plans and
 * exchanges. Their requests may be waited for in any order. Rows are sent in
 * the order of the calls, so an earlier part arrives first.
 *
 * Rounds. Each of the four calls (dispatch, combine and their gradients) is
 * made once for each part before it is made again for any part
 * (SHUNT_ERR_INVALID). A call that fails does not count. The calls of moe.h
 * work on such a plan as well: they move all parts at once, and do not count in
 * a round. Destroying a plan within a round logs a warning (SHUNT_LOG).
 *
 * Parts by groups of peers instead of tokens (FasterMoE's order) are not
 * offered. They would divide the sums of combine, whose bits would then depend
 * on the number of groups. And each part of tokens already sends to one peer
 * after the other.
 */
#ifndef SHUNT_MOE_PARTS_H
#define SHUNT_MOE_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>
#include <shunt/request.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most parts of a plan. */
#define SHUNT_MOE_PARTS_MAX 64

/** In the place of a number of parts: the library measures which number takes
 * the least time (shunt_moe_plan_took()). */
#define SHUNT_MOE_PARTS_AUTO 0

/**
 * Plan one routing, in `parts` parts.
 *
 * parts  1 to SHUNT_MOE_PARTS_MAX, or SHUNT_MOE_PARTS_AUTO, the same on every
 *        rank. With fewer tokens than parts, some parts have none; they must be
 *        called all the same. struct shunt_moe_rows has the number of parts.
 *
 * All else as in shunt_moe_plan_create(), which makes one part. With several
 * parts each rank needs the number of rows that it receives in each part: one
 * more small message to every rank.
 *
 * Collective. Errors: as shunt_moe_plan_create(); SHUNT_ERR_INVALID, parts is
 * out of range; SHUNT_ERR_MISMATCH, naming a rank that plans in another number
 * of parts.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_create_parts(struct shunt_moe *moe, const int32_t *topk_idx,
                            const float *topk_weight, size_t tokens, int parts,
                            struct shunt_moe_plan **plan);

/**
 * Report how long the work on a plan took, for a plan that was made with
 * SHUNT_MOE_PARTS_AUTO.
 *
 * seconds  the time on this rank; finite, not negative. The caller decides
 *          which work is timed: a layer, forward, or with its gradient; the
 *          same in all calls. Best start at a moment at which all ranks are
 *          together, and leave out work that does not depend on the parts.
 *
 * The exchange tries 1, 2, 4 and 8 parts in turn, four times each. Then it
 * stays with the fewest parts whose time is at most 1 % longer than the
 * shortest. The time of a number of parts is the median of its last three
 * times. Such a time is that of the slowest rank, divided by the number of
 * tokens of the rank that has most tokens.
 *
 * Each size class has its own times and its own number of parts. A size class
 * has the plans whose rank with most tokens has from 2^n to 2^(n+1) - 1 tokens.
 * All ranks take the same number of parts: their times travel with the next
 * plan of the exchange, in no message of their own.
 *
 * Local, once for each plan. Between two plans of the exchange every rank must
 * report the times of the same plans. Times that another rank does not report
 * do not count. If there are more than four times, only the last four count.
 * The call does nothing for a plan of a given number of parts. The times remain
 * when the placement changes (shunt_moe_set_placement()), because a caller may
 * change it for each batch.
 *
 * Errors: SHUNT_ERR_INVALID, a bad plan or number, or the plan's time has been
 * reported already.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_took(struct shunt_moe_plan *plan, double seconds);

/** The number of choices that are tried: 1, 2, 4 and 8 parts. */
#define SHUNT_MOE_DEGREES 4

/** The times of a size class of an exchange, and the choice that they give. */
struct shunt_moe_degree {
    int parts;                         /* for the next plan of this class */
    int settled;                       /* 1: `parts` is the best and final */
    double seconds[SHUNT_MOE_DEGREES]; /* per token, with 1, 2, 4 and 8 parts;
                                          0: not tried often enough */
};

/**
 * Read the times of a size class, as of the last plan. Local.
 *
 * tokens       tokens of the rank that has most; they select the class.
 * degree       out; all zeros for an exchange that has been destroyed.
 * degree_size  sizeof(struct shunt_moe_degree); only that much is written.
 */
#ifdef __cplusplus /* the struct has the same name */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
SHUNT_API void shunt_moe_degree(const struct shunt_moe *moe, size_t tokens,
                                struct shunt_moe_degree *degree,
                                size_t degree_size);
#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif

/** The tokens and rows of a part on this rank. The plan owns the arrays. */
struct shunt_moe_part_rows {
    size_t first_token;        /* first token in x, y, dy, dx, dweight */
    size_t tokens;             /* number of tokens */
    int local_experts;         /* as in struct shunt_moe_rows */
    const size_t *first_range; /* (local_experts + 1) first range of each */
    const size_t *offset; /* (first_range[local_experts]) first row of a range,
                             ascending */
    const size_t *count;  /* (as offset) rows of a range, at least 1, without
                             padding */
    size_t rows;          /* rows of all ranges together */
};

/**
 * Read which tokens and rows a part has. The part's dispatch and
 * combine_backward write these rows. The caller must have written them before
 * the part's combine or dispatch_backward starts.
 *
 * part       0 .. parts - 1. A plan of shunt_moe_plan_create() has one.
 * rows       out; all zeros on an error.
 * rows_size  sizeof(struct shunt_moe_part_rows); only that much is written.
 *
 * Ranges that follow each other are merged into one. So a part of all tokens
 * without padding has one range for each expert with rows. Local. The arrays
 * live as long as the plan.
 *
 * Errors: SHUNT_ERR_INVALID, no such plan, or part; SHUNT_ERR_MEMORY.
 */
#ifdef __cplusplus /* the struct has the same name */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_part_rows(struct shunt_moe_plan *plan, int part,
                    struct shunt_moe_part_rows *rows, size_t rows_size);
#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif

/**
 * shunt_moe_dispatch() of one part.
 *
 * The gaps and the padding of `rows`, which belong to no part, are zeroed in
 * the call of part 0.
 *
 * Collective. Errors as shunt_moe_dispatch(); SHUNT_ERR_INVALID, there is no
 * such part, or it was called already in this round (see Rounds above);
 * SHUNT_ERR_MISMATCH, a rank calls another part. SHUNT_ERR_BUSY
 * (shunt_moe_buffer()) concerns requests that share a part.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_part(struct shunt_moe_plan *plan, int part, const void *x,
                        void *rows, size_t max_rows);
/** shunt_moe_dispatch_part() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_part_start(struct shunt_moe_plan *plan, int part,
                              const void *x, void *rows, size_t max_rows,
                              struct shunt_request **request);

/** shunt_moe_combine() of one part. Collective. Errors as in
 * shunt_moe_dispatch_part(). */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine_part(struct shunt_moe_plan *plan, int part, const void *out,
                       const void *bias, void *y);
/** shunt_moe_combine_part() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine_part_start(struct shunt_moe_plan *plan, int part,
                             const void *out, const void *bias, void *y,
                             struct shunt_request **request);

/** shunt_moe_combine_backward() of one part. Gaps and padding as in
 * shunt_moe_dispatch_part(). Collective. Errors as in that call. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine_backward_part(struct shunt_moe_plan *plan, int part,
                                const void *dy, const void *out, void *dout,
                                size_t max_rows, float *dweight);
/** shunt_moe_combine_backward_part() that returns at once; `*request` finishes
 * it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine_backward_part_start(struct shunt_moe_plan *plan, int part,
                                      const void *dy, const void *out,
                                      void *dout, size_t max_rows,
                                      float *dweight,
                                      struct shunt_request **request);

/** shunt_moe_dispatch_backward() of one part. Collective. Errors as in
 * shunt_moe_dispatch_part(). */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_backward_part(struct shunt_moe_plan *plan, int part,
                                 const void *drows, void *dx);
/** shunt_moe_dispatch_backward_part() that returns at once; `*request` finishes
 * it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_backward_part_start(struct shunt_moe_plan *plan, int part,
                                       const void *drows, void *dx,
                                       struct shunt_request **request);

#ifdef __cplusplus
}
#endif

#endif
