// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Mixture of experts, in parts: an exchange that hides behind its own experts.
 *
 * Each rank's tokens are cut into parts, as equal as can be, in their order.
 * Then dispatch, the experts and combine work on one part while other parts
 * travel:
 *
 *     shunt_moe_plan_create_parts(moe, idx, weight, tokens, 4, &plan);
 *     for (p = 0; p < 4; p++)
 *         shunt_moe_dispatch_part_start(plan, p, x, rows, total, &there[p]);
 *     for (p = 0; p < 4; p++) {
 *         shunt_wait(&there[p]);
 *         shunt_moe_part_rows(plan, p, &part, sizeof(part));
 *         ... the experts, on the rows of `part` ...
 *         shunt_moe_combine_part_start(plan, p, out, NULL, y, &home[p]);
 *     }
 *     shunt_wait_all(home, 4);
 *
 * (Chunks of Tutel, 2206.03382, with chunks of tokens.) examples/moe_overlap.c
 * is a whole layer.
 *
 * No sum is cut: a token is in one part, with all its experts. So rows, y,
 * dout, dweight and dx have the same bits in any number of parts. Slots do not
 * depend on the parts either: each row has the place in the rows buffer that it
 * has in a plan of one part (struct shunt_moe_rows), and the rows of a part are
 * ranges of it, one for each expert and source rank. So what goes over all rows
 * of an expert, as the gradient of its weights does, is one product in the same
 * order in any number of parts.
 *
 * Calls of one part take the same arrays as the calls of moe.h, whole, and use
 * only what belongs to the part: of arrays of tokens its tokens, of arrays of
 * rows its rows. The rest may be used by others meanwhile, so requests of
 * different parts may share their arrays. For memory that is no window that
 * holds, too, and for memory of a GPU (moe.h).
 *
 * Parts may be called in any order, the same on every rank, and may be under
 * way together, and with calls of other plans and exchanges; their requests may
 * be waited for in any order. Rows leave in the order of the calls, so that an
 * earlier part is there first.
 *
 * A call comes in rounds: each part is called once before any is called again
 * (SHUNT_ERR_INVALID). A call that fails does not count. The calls of moe.h
 * work on such a plan as well: they move all parts at once, and are no part of
 * a round. A plan that is destroyed within a round gives a warning (SHUNT_LOG).
 *
 * A part by groups of peers instead of tokens (FasterMoE's order) would cut the
 * sums of combine, whose bits would then depend on the number of groups; and
 * every part of tokens already goes to one peer after the other.
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

/** In the place of a number of parts: that which takes the least time
 * (shunt_moe_plan_took()). */
#define SHUNT_MOE_PARTS_AUTO 0

/**
 * Plan one routing, in so many parts.
 *
 * parts  1 to SHUNT_MOE_PARTS_MAX, or SHUNT_MOE_PARTS_AUTO, the same on every
 *        rank. With fewer tokens than parts, some parts have none; they are
 *        called all the same. struct shunt_moe_rows has the number.
 *
 * All else as in shunt_moe_plan_create(), which makes one part. With several
 * parts the ranks exchange how many rows of each come: one more small message
 * to every rank.
 *
 * Collective. Errors: as there; SHUNT_ERR_INVALID, parts is out of range;
 * SHUNT_ERR_MISMATCH, naming a rank that plans in another number of parts.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_create_parts(struct shunt_moe *moe, const int32_t *topk_idx,
                            const float *topk_weight, size_t tokens, int parts,
                            struct shunt_moe_plan **plan);

/**
 * Tell how long the work on a plan took, for whose number of parts
 * SHUNT_MOE_PARTS_AUTO was given.
 *
 * The exchange tries 1, 2, 4 and 8 parts in turn, four times each, and then
 * stays with the best: of those that took at most 1 % longer than the shortest,
 * the least parts. What counts are seconds for each token of the rank that has
 * most, of the slowest rank, and of the last three times the median. Each size
 * class has its own times and number: plans whose rank with most tokens has
 * from 2^n to 2^(n+1) - 1 of them. All ranks take the same number. Their times
 * travel with the next plan of the exchange, at no extra message.
 *
 * seconds  of this rank; finite, not negative. What it is the time of is up to
 *          the caller: a layer, forward, or with its gradient; the same in all
 *          calls. Best from a moment at which all ranks are together, and
 *          without what does not depend on the parts.
 *
 * Local, once for each plan. Every rank tells the times of the same plans
 * between the same two plans of the exchange; others, and of more than four the
 * earlier ones, do not count. Nothing happens with a plan of a given number of
 * parts. Times stay when the placement changes (shunt_moe_set_placement()): whoever
 * places experts anew for each batch would never have any.
 *
 * Errors: SHUNT_ERR_INVALID, a bad plan or number, or the plan's time is told.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_took(struct shunt_moe_plan *plan, double seconds);

/** How many numbers of parts are tried: 1, 2, 4 and 8. */
#define SHUNT_MOE_DEGREES 4

/** What an exchange knows of a size class. */
struct shunt_moe_degree {
    int parts;                         /* of its next plan */
    int settled;                       /* 1: that is the best one, and stays */
    double seconds[SHUNT_MOE_DEGREES]; /* a token, with 1, 2, 4 and 8 parts;
                                          0: not tried often enough */
};

/**
 * The times of a size class, as of the last plan. Local.
 *
 * tokens       of the rank that has most.
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

/** What belongs to a part on this rank. The plan owns the arrays. */
struct shunt_moe_part_rows {
    size_t first_token;        /* of x, y, dy, dx, dweight: the first */
    size_t tokens;             /* and how many */
    int local_experts;         /* as in struct shunt_moe_rows */
    const size_t *first_range; /* (local_experts + 1) of each expert's ranges */
    const size_t *offset; /* (first_range[local_experts]) first row of a range,
                             ascending */
    const size_t *count;  /* and its rows, at least 1, without padding */
    size_t rows;          /* of all ranges */
};

/**
 * Which tokens and rows a part has. Those rows are there when the part's
 * dispatch or combine_backward is done, and have to be before its combine or
 * dispatch_backward starts.
 *
 * part       0 .. parts - 1. A plan of shunt_moe_plan_create() has one.
 * rows       out; all zeros on an error.
 * rows_size  sizeof(struct shunt_moe_part_rows); only that much is written.
 *
 * Ranges that follow each other are one, so a part of all tokens without
 * padding has one for each expert with rows. Local. The arrays live as long as
 * the plan.
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
 * Collective. Errors as there; SHUNT_ERR_INVALID, there is no such part, or it
 * is not its turn (above); SHUNT_ERR_MISMATCH, a rank calls another part.
 * SHUNT_ERR_BUSY (shunt_moe_buffer()) concerns requests that share a part.
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
 * shunt_moe_dispatch_part(). Collective. Errors as there. */
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
