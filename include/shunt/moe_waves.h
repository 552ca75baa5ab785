// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Mixture of experts, in bounded memory: options of a plan, and plans in waves.
 *
 * A router may send most tokens to one rank, whose rows then do not fit in its
 * memory. With `max_rows` no rank gets more rows at once: where one would, the
 * tokens of all ranks are cut into waves, which are dispatched, computed and
 * combined one after the other, in the same memory:
 *
 *     struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
 *     options.max_rows = 8192;
 *     shunt_moe_plan_create_with(moe, idx, weight, tokens, &options, &plan);
 *     for (w = 0; (wave = shunt_moe_plan_wave(plan, w)); w++) {
 *         shunt_moe_plan_rows(wave, &in, sizeof(in));
 *         shunt_moe_dispatch(wave, x + in.first_token * hidden, rows, in.total);
 *         ... the experts, on in.total rows ...
 *         shunt_moe_combine(wave, out, NULL, y + in.first_token * hidden);
 *     }
 *
 * A wave is a plan. It has a range of each rank's tokens, and takes every call that
 * takes a plan, blocking, started and in parts, with the arrays of its own tokens:
 * those of the whole plan from `first_token` on. All waves of a plan have the same
 * buffers (shunt_moe_buffer()), so what the experts keep of a wave for its gradient
 * they keep themselves, or dispatch its tokens again in the backward pass.
 *
 * Bits. A token is in one wave, with all its experts, so no sum is cut: y, dx and
 * dweight have the same bits in any number of waves, in every mode. Rows have the
 * same bits, too, but the order of an expert's rows is by wave, then by source
 * rank. So a sum over all rows of an expert, as the gradient of its weights is, is
 * added up in another order than in one wave; in the same one in every run.
 *
 * Where copies have shares (shunt_moe_set_shares()), each wave shares out its own
 * rows: its global order, its leaves and its ranges are those of its tokens, and
 * shunt_moe_gradients_reduce() is called for each wave. So each wave is even, and y,
 * dx and dweight keep their bits (SHUNT_MOE_ORDER_HOMES). But which tokens are in a
 * wave depends on the rows of the fullest rank, and so on the placement; and with it
 * the order in which an expert's gradient is added up. Its bits are those without
 * copies only where the cut is the same; in a plan of one wave it always is.
 *
 * With `in_order` such sums can keep their bits, too: a wave then has a range of
 * each expert's rows in the order that they have in one wave (by source rank, then
 * by token), and wave w + 1 has the range behind that of wave w. So the leaves of
 * moe_gradients.h are the same ones. A token is in one wave with all its experts,
 * so a wave cannot end at a leaf of each of them: of the leaf that is open at its
 * end the caller keeps the rows, and makes it when the next wave brings the rest.
 *
 *     tree[i] of each local expert: shunt_moe_tree_begin(), with the range of the
 *         whole plan
 *     for each wave: for each local expert i, with range[i] of the wave:
 *         while shunt_moe_tree_next(&tree[i], &leaf) says that a leaf is due whose
 *         last row, leaf.row + leaf.rows - 1, is before range[i].first +
 *         range[i].count: its rows are those kept, then those of this wave
 *
 * What that costs: leaf_rows - 1 rows of each local expert are kept, and the sums of
 * all local experts are in the making at once, shunt_moe_tree_room() of each. And in
 * a wave only a few ranks send (those whose tokens it has), so that between hosts a
 * wave is as fast as their links. A caller that keeps the open leaves of each source, and
 * adds sums of leaves in any order, needs no order of waves: a wave has of each source
 * the source_count rows behind those that it gave before.
 */
#ifndef SHUNT_MOE_WAVES_H
#define SHUNT_MOE_WAVES_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * What may differ from plan to plan. Fill it with SHUNT_MOE_PLAN_OPTIONS_INIT. The
 * same on every rank, which is checked. New versions only append fields.
 */
struct shunt_moe_plan_options {
    size_t size; /* sizeof(struct shunt_moe_plan_options) */
    size_t
        max_rows; /* that a rank gets at once, padding and alignment included;
                        0: any number. At least ranks * topk, and local experts
                        * (row_align - 1) more. With pad_to_capacity at least topk
                        for each (source rank, expert) whose rows a rank gets.
                        With shares leaf_rows more for each copy on a rank that
                        takes some of an expert's rows, and not all */
    const double *capacity_factor; /* instead of the configuration's, with the
                                      same meaning; NULL: that one */
    intptr_t parts;    /* of the plan, or of each of its waves (moe_parts.h); 0:
                       SHUNT_MOE_PARTS_AUTO */
    intptr_t in_order; /* not 0: waves take the tokens of rank 0, then those of
                          rank 1, ..: ranges of an expert's rows (`range` of
                          struct shunt_moe_rows). With max_rows neither
                          pad_to_capacity nor shares */
};

/** The defaults: one part, any number of rows, the configuration's capacity. */
#define SHUNT_MOE_PLAN_OPTIONS_INIT                       \
    {                                                     \
        sizeof(struct shunt_moe_plan_options), 0, 0, 1, 0 \
    }

/**
 * Plan one routing, with options.
 *
 * options  NULL: the defaults. All else as in shunt_moe_plan_create().
 *
 * Whether waves are needed follows from the counts that the ranks exchange for
 * each plan: if not, there is no further message. If so, each wave costs as much
 * as a plan (with shares that is one more all-gather than without). Each rank
 * takes as many of its tokens into a wave, in their order, as its shares of all
 * ranks' max_rows hold. A share is in proportion to the rows that the rank has
 * left for the other one, and at least topk; so a wave leaves at most topk rows
 * for each source rank of max_rows empty on the fullest rank, unless tokens for
 * different full ranks follow each other unevenly. With shares it leaves room for
 * a leaf of each copy, too, to which its part may be rounded. With `in_order` a
 * wave takes the next tokens of that global order up to the first that does not
 * fit; this needs a matrix of ranks * ranks counts of 4 bytes on each rank.
 *
 * A capacity is of each (source rank, expert), so it drops the same assignments
 * whatever copies there are: before their rows are shared out.
 *
 * With pad_to_capacity the capacity counts for the whole plan, and drops as in one
 * wave. In a wave each (source rank, expert) then takes as many rows as the fullest
 * has there.
 *
 * Memory: a rows buffer of the plan is of max_rows rows at most, as large as its
 * largest wave. Between nodes the windows for rows under way are as large as
 * without waves; they depend on the tokens, not on where these go.
 *
 * Collective. Errors: as shunt_moe_plan_create_parts(); SHUNT_ERR_INVALID,
 * max_rows is too small, naming the least, or capacity_factor is not finite;
 * SHUNT_ERR_MISMATCH, naming a rank with other options; SHUNT_ERR_UNSUPPORTED,
 * on every rank that asks for it, in_order and max_rows with pad_to_capacity, whose
 * rows are no ranges, or where copies have shares: each wave shares out its own rows
 * there.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_create_with(struct shunt_moe *moe, const int32_t *topk_idx,
                           const float *topk_weight, size_t tokens,
                           const struct shunt_moe_plan_options *options,
                           struct shunt_moe_plan **plan);

/**
 * A wave of a plan, 0 to waves - 1 (struct shunt_moe_rows), the same number on
 * every rank; NULL: there is no such wave, or no such plan. Of a plan that max_rows
 * has not cut it is the plan itself. One that is cut takes no call that moves rows
 * (SHUNT_ERR_INVALID), but tells what its waves have together:
 * shunt_moe_plan_rows(), shunt_moe_loads() and shunt_moe_plan_took(). (With
 * pad_to_capacity it may be cut into a single wave, which pads less.) A rank on
 * which a wave has no tokens and no rows calls it all the same.
 *
 * Local. The wave lives as long as the plan; shunt_moe_plan_destroy() of a wave
 * does nothing.
 */
SHUNT_API struct shunt_moe_plan *
shunt_moe_plan_wave(struct shunt_moe_plan *plan, int wave);

/** Memory that an exchange has on this rank for its plans, in bytes. */
struct shunt_moe_memory {
    size_t rows; /* pages of buffers (shunt_moe_buffer()), and of what stands
                         for them if rows are in memory that is no window */
    size_t rows_most; /* the most that these have been at once */
    size_t network;   /* pages of windows for rows between nodes */
    size_t lists;     /* what plans know about their rows */
};

/**
 * How much memory plans take up. Local.
 *
 * Windows are address space; only pages that were written to count. Those of a plan
 * that is destroyed stay for the next plan in its place (plans_in_flight), except
 * what is more than a twentieth, and 64 KiB, above its rows: that is given back when
 * the next plan is made. A place without a plan gives back all after 16 plans, an
 * exchange when it is destroyed. Nothing is given back where a NIC writes to memory
 * by itself (SHUNT_TRANSPORTS=rdma, ucx), which pins pages. Lists stay as long as
 * the largest plan made them.
 *
 * memory       out; all zeros for an exchange that has been destroyed.
 * memory_size  sizeof(struct shunt_moe_memory); only that much is written.
 */
#ifdef __cplusplus /* the struct has the same name */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
SHUNT_API void shunt_moe_memory(const struct shunt_moe *moe,
                                struct shunt_moe_memory *memory,
                                size_t memory_size);
#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif

#ifdef __cplusplus
}
#endif

#endif
