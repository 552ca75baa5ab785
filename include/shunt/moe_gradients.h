// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Gradients of experts with the same bits, whatever copies the experts have.
 *
 * The gradient of an expert's parameters is a sum over its rows. With
 * shunt_moe_replicas_reduce() each copy adds up its own rows, and then the
 * copies are added. That is another order than on one rank alone, and gives
 * other last bits. Here the order is a *tree*, which follows from the expert's
 * rows alone:
 *
 *   - The rows of a plan have one global order (shunt_moe_set_shares()),
 *     divided into *leaves* of leaf_rows rows. The gradient of a leaf is the
 *     caller's product of its rows, in f32. It must have the same bits on every
 *     rank.
 *   - Leaves are added in pairs, 0 + 1, 2 + 3 and so on; then their sums, in
 *     pairs again, up to one sum. At the right end a leaf or a sum without a
 *     partner passes up as it is.
 *   - The sums of several plans, as of the micro-batches of a step, are added
 *     in the order of the calls.
 *
 * Placement, shares and the number of nodes change no bit of the result. The
 * number of ranks changes none, if the tokens have the same order.
 *
 * A copy has a range of leaves. It adds up the whole *subtrees* in its range,
 * at most 2 * log2(leaves). It sends these sums to the expert's home, which
 * adds the rest of the tree. So for each plan:
 *
 *     for each local expert i, with rows.range[i]:
 *         shunt_moe_tree_begin(&tree, &range, leaf_rows, memory, n);
 *         while (shunt_moe_tree_next(&tree, &leaf))
 *             ... write the gradient of `leaf.rows` rows, from row
 *                 rows.offset[i] + leaf.row on, to leaf.gradient (n floats) ...
 *         sums[i] = memory;            (it has tree.sums sums)
 *     shunt_moe_gradients_reduce(plan, sums, &gradients, add)
 *
 * Cost, for an expert with n parameters: one addition of n floats for each leaf
 * but the first. Memory for shunt_moe_tree_room() * n floats while the caller
 * works on a range, of which tree.sums * n remain until the reduction. Without
 * copies that is one sum, and nothing is sent. With leaves of B rows the
 * additions read and write 6 / B bytes for each operation of the product, so a
 * larger B is faster. But copies divide rows between leaves, so the rows of the
 * ranks are equal only to within about B. Choose the largest B for which they
 * are equal enough.
 *
 * The copies do not keep their sums until the end of a step, because the sums
 * of two plans cannot be added before each of them is complete. So keeping them
 * would save no bytes between ranks, and would need more memory.
 *
 * A faster order has one sum on each copy for the whole step: the caller adds
 * up that sum, and calls shunt_moe_replicas_reduce() once.
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

/* --- on one rank ---------------------------------------------------------- */

/**
 * Return the number of sums that a copy sends: one for each largest subtree in
 * its range.
 *
 * 0 without rows, or if the range is SHUNT_MOE_SCATTERED or not inside an
 * expert's rows. 1 if all of the expert's rows are on this rank. Otherwise at
 * most 2 * log2(leaves). Pure.
 */
SHUNT_API size_t shunt_moe_tree_sums(const struct shunt_moe_range *range,
                                     size_t leaf_rows);

/**
 * Return the number of sums for which shunt_moe_tree_begin() needs memory: the
 * most that exist at a time, including the leaf that is being computed. Pure.
 */
SHUNT_API size_t shunt_moe_tree_room(const struct shunt_moe_range *range,
                                     size_t leaf_rows);

/** An unfinished sum. Only the library uses the fields, except `sums`. */
struct shunt_moe_tree {
    size_t sums; /* sums in `memory`; at the end, those that the copy sends */
    struct shunt_moe_range range; /* the rows of the copy */
    size_t leaf_rows;             /* rows of a leaf */
    size_t n;                     /* floats of a sum */
    float *memory;                /* the caller's memory for the sums */
    uint64_t leaves;              /* leaves of the expert on all its copies */
    uint64_t next;                /* the first leaf that is in no sum yet */
    int making;                   /* 1: the caller computes leaf `next` */
    unsigned char level[132];     /* each sum contains 2^level leaves */
};

/** A leaf whose gradient the caller computes. */
struct shunt_moe_leaf {
    size_t row;      /* first row, counted from the expert's first row here */
    size_t rows;     /* 1 .. leaf_rows */
    float *gradient; /* (n) out; contents undefined before */
};

/**
 * Begin the sum of a copy's leaves. Local; any thread.
 *
 * tree       out
 * range      the expert's entry of rows.range; copied
 * leaf_rows  rows.leaf_rows of the plan
 * memory     (shunt_moe_tree_room(), n) f32; stays allocated until the
 *            reduction has ended. At the end the first tree.sums * n are the
 *            sums, in the order of their leaves; the rest may be used for
 *            something else.
 * n          floats of an expert's gradient, in all of its arrays together, one
 *            behind the other
 *
 * Errors: SHUNT_ERR_INVALID, an argument is NULL or 0; the range is
 * SHUNT_MOE_SCATTERED (there are copies without shares); it is not inside the
 * expert's rows; or it does not begin at a leaf.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_tree_begin(struct shunt_moe_tree *tree,
                     const struct shunt_moe_range *range, size_t leaf_rows,
                     float *memory, size_t n);

/**
 * Add the leaf of the previous call, which the caller has computed, to the
 * tree, and return the next leaf.
 *
 * Returns 1: compute the gradient of `*leaf`. Returns 0: there are no more
 * leaves, and all sums are in memory.
 */
SHUNT_API int shunt_moe_tree_next(struct shunt_moe_tree *tree,
                                  struct shunt_moe_leaf *leaf);

/* --- between ranks -------------------------------------------------------- */

/**
 * Send the sums of the copies to the experts' homes, and add up the trees
 * there: once for each plan, in the order in which the plans' sums are to be
 * added.
 *
 * plan       its exchange has shares, or no copies. If it is in waves
 *            (moe_waves.h): with shares each wave, with in_order the whole
 *            plan.
 * sums       (local_experts of the plan) the sums of each expert,
 *            shunt_moe_tree_sums() of them; NULL where there are none. The
 *            library uses the memory until the request has ended, and its
 *            contents are lost. NULL is also allowed where an expert's home has
 *            all of its rows (range.count == range.all). Its gradient is then
 *            not touched: the caller adds its one sum, and so needs memory for
 *            only one expert at a time.
 * gradients  of the experts of this rank in the placement of the plan
 *            (moe_experts.h): arrays of f32. Only experts whose home is this
 *            rank are written. An expert's sum has the elements of the first
 *            array, then those of the second, and so on. bytes, stride and at
 *            are multiples of 4.
 * add        0: gradients become the sums of this plan, +0 if there are no
 *            rows. 1: the sums are added to them; without rows nothing is
 *            added. The same on every rank.
 *
 * The counts of the plan say how much each rank sends, so no message says it.
 * Each copy away from the home sends shunt_moe_tree_sums() sums of an expert. A
 * rank needs as much memory as it sends and receives.
 *
 * Collective, as the calls of moe_experts.h are, with their errors; and
 * SHUNT_ERR_INVALID, no plan, or a whole plan where a wave is needed or the
 * reverse, or sums[i] is NULL where there are sums; SHUNT_ERR_UNSUPPORTED, on
 * every rank, the plan has copies without shares; SHUNT_ERR_MISMATCH, also for
 * different plans or `add`. Gradients are written at the end: after an error
 * they are as before.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_gradients_reduce(struct shunt_moe_plan *plan, float *const *sums,
                           const struct shunt_moe_state *gradients, int add);
/** shunt_moe_gradients_reduce() that returns at once; `*request` finishes it.
 * The plan may be destroyed meanwhile. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_gradients_reduce_start(struct shunt_moe_plan *plan,
                                 float *const *sums,
                                 const struct shunt_moe_state *gradients,
                                 int add, struct shunt_request **request);

#ifdef __cplusplus
}
#endif

#endif
