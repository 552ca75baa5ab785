// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Gradients of experts with the same bits, whatever copies they have.
 *
 * The gradient of an expert's parameters is a sum over its rows. Copies that
 * each add up their rows, and a reduction of the copies
 * (shunt_moe_replicas_reduce()), give another order of that sum than one rank
 * alone, and so other last bits. Here the order is a *tree*, which follows from
 * the expert's rows alone:
 *
 *   - The rows of a plan have one global order (shunt_moe_set_shares()), cut into
 *     *leaves* of leaf_rows rows. The gradient of a leaf is the caller's product
 *     of its rows, in f32: it must have the same bits on every rank.
 *   - Leaves are added in pairs, 0 + 1, 2 + 3 and so on, their sums again, up to
 *     one sum. One at the right end that has no partner passes up as it is.
 *   - The sums of several plans, as of the micro-batches of a step, are added in
 *     the order of the calls.
 *
 * Neither placement nor shares nor the number of nodes changes a bit of it; nor
 * does the number of ranks, if the tokens have the same order.
 *
 * A copy has a range of leaves. It adds up what whole *subtrees* are in it, at
 * most 2 * log2(leaves), and sends these sums home, where the rest of the tree is
 * added. So for each plan:
 *
 *     for each local expert i, with rows.range[i]:
 *         shunt_moe_tree_begin(&tree, &range, leaf_rows, memory, n);
 *         while (shunt_moe_tree_next(&tree, &leaf))
 *             ... the gradient of `leaf.rows` rows from rows.offset[i] + leaf.row
 *                 on, n floats, to leaf.gradient ...
 *         sums[i] = memory;            (tree.sums of them are there)
 *     shunt_moe_gradients_reduce(plan, sums, &gradients, add)
 *
 * What it costs, of an expert with n parameters: one addition of n floats for
 * each leaf but the first, and memory for shunt_moe_tree_room() * n floats while
 * a range is worked on, of which tree.sums * n stay until the reduction. Without
 * copies that is one sum, and nothing is sent. With leaves of B rows the additions
 * read and write 6 / B bytes for each operation of the product: so take B as
 * large as shares permit. A rank's rows are then even to within about B.
 *
 * Why the sums of a plan do not stay on the copies until the end of a step: the
 * sums of two plans cannot be added before each of them is whole. So they would be
 * as many bytes to send, and more to keep.
 *
 * The faster order, in which each copy has one sum for the whole step: the
 * caller's own sum on each copy, and shunt_moe_replicas_reduce(), once.
 */
#ifndef SHUNT_MOE_GRADIENTS_H
#define SHUNT_MOE_GRADIENTS_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/moe.h>
#include <shunt/moe_experts.h>
#include <shunt/request.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- on one rank ------------------------------------------------------------ */

/**
 * How many sums remain of the rows of a copy: those of the largest subtrees in
 * its range. 0 without rows, or if the range is SHUNT_MOE_SCATTERED or lies in no
 * expert's rows; 1 if all of the expert's rows are here; else at most 2 * log2(leaves). Pure.
 */
SHUNT_API size_t shunt_moe_tree_sums(const struct shunt_moe_range *range,
                                     size_t leaf_rows);

/** For how many sums shunt_moe_tree_begin() needs memory: the most that there are
 * at a time, with the leaf that is being made. Pure. */
SHUNT_API size_t shunt_moe_tree_room(const struct shunt_moe_range *range,
                                     size_t leaf_rows);

/** A sum in the making. The fields are the library's, but for `sums`. */
struct shunt_moe_tree {
    size_t sums; /* in `memory`; at the end, those that remain */
    struct shunt_moe_range range; /* of the copy */
    size_t leaf_rows;             /* rows of a leaf */
    size_t n;                     /* floats of a sum */
    float *memory;                /* of the caller, for the sums */
    uint64_t leaves;              /* of the expert, on all copies */
    uint64_t next;                /* the leaf behind those that are in sums */
    int making;                   /* is there one in the making? */
    unsigned char level[132];     /* 2^level leaves are in each sum */
};

/** A leaf of which the caller makes the gradient. */
struct shunt_moe_leaf {
    size_t row;      /* its first row, counted from the expert's first here */
    size_t rows;     /* 1 .. leaf_rows */
    float *gradient; /* (n) out; contents undefined before */
};

/**
 * Begin the sum of a copy's leaves. Local; any thread.
 *
 * tree       out
 * range      of the expert, from rows.range; copied
 * leaf_rows  of the plan, from rows.leaf_rows
 * memory     (shunt_moe_tree_room(), n) f32, the caller's until the reduction has
 *            ended. At the end the first tree.sums * n are the sums, in the order
 *            of their leaves; the rest may be used for something else.
 * n          floats of an expert's gradient, in all arrays of it together, one
 *            behind the other
 *
 * Errors: SHUNT_ERR_INVALID, an argument is NULL or 0, or the range is
 * SHUNT_MOE_SCATTERED: there are copies without shares.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_tree_begin(struct shunt_moe_tree *tree,
                     const struct shunt_moe_range *range, size_t leaf_rows,
                     float *memory, size_t n);

/** Add the leaf that has been made to the tree. 1: make the gradient of `*leaf`,
 * the next one. 0: there are no more, all sums are in memory. */
SHUNT_API int shunt_moe_tree_next(struct shunt_moe_tree *tree,
                                  struct shunt_moe_leaf *leaf);

/* --- between ranks ------------------------------------------------------------- */

/**
 * Bring the sums of the copies home, and add up the tree there: once for each
 * plan, in the order in which the plans' sums are to be added.
 *
 * plan       its exchange has shares, or no copies. If it is in waves
 *            (moe_waves.h): with shares each wave, with in_order the whole plan.
 * sums       (local_experts of the plan) the sums of each, shunt_moe_tree_sums()
 *            of them; NULL where there are none. The memory is the library's until
 *            the request has ended, and its contents are lost. Where an expert's
 *            home has all of its rows (range.count == range.all), NULL is also
 *            allowed: its gradient is then not touched, and the caller adds its one
 *            sum himself, which needs memory for one expert at a time only.
 * gradients  by the experts of this rank in the placement of the plan
 *            (moe_experts.h): arrays of f32, of which those whose home it is are
 *            written. An expert's sum has the elements of the first array, then
 *            those of the second, and so on. bytes, stride and at are multiples
 *            of 4.
 * add        0: gradients become the sums of this plan, +0 if there are no rows.
 *            1: these are added to them; without rows nothing is. The same on
 *            every rank.
 *
 * Who sends how much follows from the counts of the plan: no message says it. What
 * travels is, over all copies away from the home, shunt_moe_tree_sums() * bytes of
 * an expert. A rank needs that much memory for what it sends and for what comes.
 *
 * Collective, as the calls of moe_experts.h are, with their errors; and
 * SHUNT_ERR_INVALID, no plan, or a whole one or a wave where it takes the other, or
 * sums[i] is NULL where there are sums; SHUNT_ERR_UNSUPPORTED, on every rank, the plan
 * has copies without shares; SHUNT_ERR_MISMATCH, also for different plans or `add`.
 * Gradients are written at the end: after an error they are as before.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_gradients_reduce(struct shunt_moe_plan *plan, float *const *sums,
                           const struct shunt_moe_state *gradients, int add);
/** shunt_moe_gradients_reduce() that returns at once; `*request` finishes it. The
 * plan may be destroyed meanwhile. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_gradients_reduce_start(struct shunt_moe_plan *plan,
                                 float *const *sums,
                                 const struct shunt_moe_state *gradients,
                                 int add, struct shunt_request **request);

#ifdef __cplusplus
}
#endif

#endif
