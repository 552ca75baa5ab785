// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Mixture of experts, in bounded memory: options of a plan, and plans in waves.
 *
 * A router may send most tokens to one rank, whose rows then do not fit in its
 * memory. With `max_rows` no rank gets more rows than that at once. If a plan
 * would exceed it, the tokens of all ranks are divided into waves. The waves
 * are dispatched, computed and combined one after the other, in the same
 * memory:
 *
 *     struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
 *     options.max_rows = 8192;
 *     shunt_moe_plan_create_with(moe, idx, weight, tokens, &options, &plan);
 *     for (w = 0; (wave = shunt_moe_plan_wave(plan, w)); w++) {
 *         shunt_moe_plan_rows(wave, &in, sizeof(in));
 *         shunt_moe_dispatch(wave, x + in.first_token * hidden, rows,
 *                            in.total);
 *         ... the experts, on in.total rows ...
 *         shunt_moe_combine(wave, out, NULL, y + in.first_token * hidden);
 *     }
 *
 * A wave is a plan. It has a range of each rank's tokens, and accepts every
 * call that accepts a plan: blocking, `_start`, and in parts. The arrays of
 * such a call are those of the wave's own tokens: those of the whole plan from
 * `first_token` on. All waves of a plan share the same buffers
 * (shunt_moe_buffer()). If the backward pass needs data of a wave, the caller
 * keeps a copy, or dispatches the wave's tokens again.
 *
 * Bits. A token is in one wave, with all its experts, so no sum is divided. y,
 * dx and dweight have the same bits in any number of waves, in every mode. Rows
 * have the same bits, too, but the order of an expert's rows is by wave, then
 * by source rank. So a sum over all rows of an expert, as the gradient of its
 * weights, adds in another order than in one wave. That order is the same in
 * every run.
 *
 * Shares. Where copies have shares (shunt_moe_set_shares()), each wave shares
 * out its own rows. Its global order, leaves and ranges are those of its own
 * tokens, and shunt_moe_gradients_reduce() is called for each wave. So each
 * wave is even, and y, dx and dweight keep their bits (SHUNT_MOE_ORDER_HOMES).
 * But the rows of the fullest rank decide which tokens are in a wave, and these
 * rows depend on the placement. Other waves mean another order in which an
 * expert's gradient is added. The gradient has the bits of a run without copies
 * only if the waves have the same tokens. In a plan of one wave they always
 * have.
 *
 * In order. With `in_order` such sums keep their bits, too. Each wave then has
 * a range of each expert's rows in the order of a plan of one wave: by source
 * rank, then by token. Wave w + 1 has the range behind that of wave w, so the
 * leaves of moe_gradients.h are the same. A wave does not end at the end of a
 * leaf for each expert, because a token is in one wave with all its experts. If
 * a leaf is incomplete at the end of a wave, the caller keeps its rows. The
 * caller computes the leaf when a later wave has the remaining rows.
 *
 *     tree[i] of each local expert: shunt_moe_tree_begin(), with the range of
 *         the whole plan
 *     for each wave: for each local expert i, with range[i] of the wave:
 *         while shunt_moe_tree_next(&tree[i], &leaf) returns 1, and the leaf's
 *         last row, leaf.row + leaf.rows - 1, is before range[i].first +
 *         range[i].count: compute the leaf, from the rows that were kept and
 *         then from those of this wave
 *
 * If the leaf is not complete, the caller keeps `leaf`, too. It computes the
 * leaf in a later wave, before it calls shunt_moe_tree_next() again.
 *
 * Costs of `in_order`: the caller keeps up to leaf_rows - 1 rows of each local
 * expert. The sums of all local experts exist at the same time, with
 * shunt_moe_tree_room() for each. Only few ranks send in a wave: those whose
 * tokens it has. So between hosts a wave is as fast as the links of these
 * ranks.
 *
 * A caller that can add the sums of leaves in any order does not need
 * `in_order`. It keeps the incomplete leaves of each source: a wave has the
 * next source_count rows of each source, in their order.
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
 * Options of one plan. Fill it with SHUNT_MOE_PLAN_OPTIONS_INIT. It must be the
 * same on every rank, which is checked. New versions only append fields.
 */
struct shunt_moe_plan_options {
    size_t size;     /* sizeof(struct shunt_moe_plan_options) */
    size_t max_rows; /* the most rows that a rank gets at once, with padding and
                        alignment; 0: any number. At least ranks * topk + local
                        experts * (row_align - 1). With pad_to_capacity at least
                        topk for each (source rank, expert) whose rows a rank
                        gets. With shares leaf_rows more for each copy on a rank
                        that takes some of an expert's rows, and not all */
    const double *capacity_factor; /* replaces the configuration's, with the
                                      same meaning; NULL: the configuration's */
    intptr_t parts;    /* number of parts of the plan, or of each of its waves
                       (moe_parts.h); 0: SHUNT_MOE_PARTS_AUTO */
    intptr_t in_order; /* not 0: waves take the tokens of rank 0, then those of
                          rank 1, and so on, so each has a range of an expert's
                          rows (`range` of struct shunt_moe_rows). With max_rows
                          not together with pad_to_capacity or shares */
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
 * Messages. The counts that the ranks exchange for each plan say whether waves
 * are needed. If not, there is no further message. If so, each wave costs as
 * much as a plan (with shares, one more all-gather than a plan without).
 *
 * Size of a wave. Each rank has a quota of every rank's max_rows, in proportion
 * to the rows that it still has for that rank, and at least topk. It takes its
 * next tokens into the wave, in their order, as long as they fit in its quotas.
 * So on the fullest rank a wave leaves at most topk rows of max_rows empty for
 * each source rank. (It may leave more if tokens for different full ranks
 * follow each other unevenly.) With shares it leaves room for one more leaf of
 * each copy, since a copy's part is rounded to leaves. With `in_order` a wave
 * takes the next tokens of the global order, up to the first that does not fit.
 * This needs a matrix of ranks * ranks counts of 4 bytes on each rank.
 *
 * Capacity. A capacity is for each (source rank, expert), and counts before
 * rows are shared out. So it drops the same assignments whatever copies there
 * are. With pad_to_capacity it counts for the whole plan, and drops as in one
 * wave. In a wave each (source rank, expert) then takes as many rows as the
 * fullest has there.
 *
 * Memory. A rows buffer of the plan is as large as that of its largest wave, so
 * at most max_rows rows. Between nodes the windows for rows under way are as
 * large as without waves: they depend on the number of tokens, not on their
 * experts.
 *
 * Collective. Errors: as shunt_moe_plan_create_parts(); SHUNT_ERR_INVALID,
 * max_rows is too small, naming the least, or capacity_factor is not finite;
 * SHUNT_ERR_MISMATCH, naming a rank with other options; SHUNT_ERR_UNSUPPORTED,
 * on every rank that asks for it, in_order and max_rows with pad_to_capacity,
 * or where copies have shares. (Padded rows are no ranges, and with shares each
 * wave shares out its own rows.)
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_create_with(struct shunt_moe *moe, const int32_t *topk_idx,
                           const float *topk_weight, size_t tokens,
                           const struct shunt_moe_plan_options *options,
                           struct shunt_moe_plan **plan);

/**
 * Return a wave of a plan; NULL: there is no such wave, or no such plan.
 *
 * wave  0 to waves - 1 (struct shunt_moe_rows); waves is the same on every
 *       rank.
 *
 * If max_rows did not divide the plan, wave 0 is the plan itself. A divided
 * plan accepts no call that moves rows (SHUNT_ERR_INVALID). It accepts
 * shunt_moe_plan_rows(), shunt_moe_loads() and shunt_moe_plan_took(), which
 * count all of its waves. (With pad_to_capacity a plan may be divided into a
 * single wave, which has less padding.) Every rank must call each wave, also if
 * the wave has no tokens and no rows there.
 *
 * Local. The wave lives as long as the plan; shunt_moe_plan_destroy() of a wave
 * does nothing.
 */
SHUNT_API struct shunt_moe_plan *
shunt_moe_plan_wave(struct shunt_moe_plan *plan, int wave);

/** Memory that an exchange has on this rank for its plans, in bytes. */
struct shunt_moe_memory {
    size_t rows; /* pages of buffers (shunt_moe_buffer()), and of the scratch
                    memory that replaces them if rows are in memory that is no
                    window */
    size_t rows_most; /* the largest value of `rows` so far */
    size_t network;   /* pages of windows for rows between nodes */
    size_t lists;     /* the plans' lists and counts of their rows */
};

/**
 * Read how much memory the plans of an exchange occupy. Local.
 *
 * Windows are address space: only pages that were written to count. The pages
 * of a destroyed plan remain for the next plan in its place (plans_in_flight).
 * If they exceed that plan's rows by more than a twentieth and 64 KiB, the
 * excess is freed when the plan is made. All pages of a place are freed after
 * 16 plans that did not use it, and when the exchange is destroyed. Nothing is
 * freed where a NIC writes to memory by itself (SHUNT_TRANSPORTS=rdma, ucx),
 * since it pins pages. Lists keep the size that the largest plan needed.
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
