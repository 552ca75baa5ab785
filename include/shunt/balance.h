// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Balance: where experts should be, decided from their loads.
 *
 * A step takes as long as the fullest rank, and routers do not spread tokens
 * evenly. The functions decide which experts get copies, which move, and how
 * copies share the rows of one batch. These calls choose copies for one batch,
 * before it is planned again:
 *
 *     status = shunt_moe_loads_by_source(plan, rows);
 *     status = shunt_balance_batch(rows, ranks, experts, NULL, NULL, slots, 64,
 *                                  replicas, share, &nreplicas, NULL);
 *     status = shunt_moe_set_shares(moe, NULL, replicas, nreplicas, share);
 *
 * These functions move nothing. Pass a placement to shunt_moe_set_placement()
 * or shunt_moe_set_shares(); moe_experts.h moves the parameters.
 *
 * All are pure functions: no communicator, no state, no random numbers. They
 * compute with integers and doubles in a fixed order, so equal arguments give
 * equal results on every rank. So ranks agree if they decide from the same
 * loads, and only the loads need to be sent.
 *
 * A load is a number of rows of an expert, in a batch or predicted, or anything
 * in proportion to it. It is finite and not negative; otherwise
 * SHUNT_ERR_INVALID names the entry. Placements are as in shunt_moe_config:
 * (experts) rank of each; NULL: e * ranks / experts. Ties go to the lower
 * number (expert, rank, group). Outputs must not overlap inputs unless the
 * function says so, and are undefined after an error.
 *
 * Errors of all functions: SHUNT_ERR_INVALID, naming the argument or the entry;
 * SHUNT_ERR_MEMORY. Any thread may call them at any time.
 */
#ifndef SHUNT_BALANCE_H
#define SHUNT_BALANCE_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- loads ---------------------------------------------------------------- */

/**
 * Predict loads by their exponential moving average: p = theta p + (1 - theta)
 * load. FasterMoE (2022) and its followers use theta = 0.9.
 *
 * predicted  (n) in and out; theta 0 makes it the loads, as for the first
 *            batch.
 * loads      (n) of the last batch
 * theta      0 .. 1
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_predict(double *predicted, const double *loads, size_t n,
                      double theta);

/** Return the largest of n loads over their mean: the factor by which the load
 * makes a step of equal ranks longer. 1 if all loads are 0, or n is 0. */
SHUNT_API double shunt_balance_imbalance(const double *loads, size_t n);

/** Return the coefficient of variation of n loads: standard deviation (of the
 * whole population) over mean. 0 if all loads are 0, or n is 0. */
SHUNT_API double shunt_balance_variation(const double *loads, size_t n);

/* --- copies of hot experts ------------------------------------------------ */

/** The costs and savings of a copy on every rank, in one step. */
struct shunt_balance_price {
    double row_s;        /* seconds that a rank's experts take for one row,
                            forward and backward together */
    double expert_bytes; /* bytes of the parameters of one expert */
    double bytes_per_s;  /* bandwidth of a rank's link, > 0 */
    double row_bytes;    /* bytes that one row puts on the link of its expert's
                            rank, in all exchanges of a step; 0: do not count
                            the bytes that copies save */
};

/**
 * Choose experts that should be on every rank ("shadowed"), so that each rank
 * computes its own rows for them.
 *
 * Policy: that of FasterMoE (He et al., PPoPP 2022), with two corrections. This
 * function also counts the load that a copy adds to its receivers, and the
 * bytes of the gradients that the receivers send back.
 *
 * b[r][e] are the rows that rank r sends to expert e. The load of a rank is all
 * rows of its experts that are not hot, and its own rows of hot experts. The
 * hottest expert of the rank with the greatest load becomes hot, as long as
 *
 *     row_s * (greatest load before - after) + rows of other ranks * row_bytes
 *         / bytes_per_s  >  2 * expert_bytes / bytes_per_s
 *
 * loads  (ranks, experts) b
 * hot    out, (experts) the hot experts, in the order in which they were chosen
 * nhot   out, their number
 *
 * O(ranks * experts + nhot * (ranks + experts)).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_balance_hot(
    const double *loads, int ranks, int experts, const int32_t *placement,
    const struct shunt_balance_price *price, int32_t *hot, int *nhot);

/**
 * Choose experts that get copies, and ranks for all copies, for equal loads of
 * all ranks. Algorithm: EPLB (DeepSeek-AI, 2025, github.com/deepseek-ai/EPLB).
 *
 * loads    (experts)
 * groups   divides experts; group g is experts g * experts / groups and on
 * nodes    divides ranks; node n is ranks n * ranks / nodes and on
 * slots    copies on each rank; ranks * slots >= experts
 * expert   out, (ranks, slots) the expert in each slot. One rank may get two
 *          copies of an expert.
 *
 * If `groups` is a multiple of `nodes`, the algorithm has three steps. Groups
 * of experts are assigned to nodes, so that the nodes' loads are as equal as
 * possible. Each node makes copies of its experts until its ranks' slots are
 * full; the next copy is of the expert with the greatest load per copy. The
 * copies, each with its share of the load, are assigned to the node's ranks. If
 * `groups` is not a multiple, all is done as for one group and one node.
 *
 * Groups and copies are assigned in descending order of load, each to the least
 * loaded node or rank with room. If each node takes only one group, or each
 * rank only one copy, they are assigned in the order of numbers.
 *
 * O(experts * (copies - experts) / nodes), and a sort.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_eplb(const double *loads, int experts, int groups, int nodes,
                   int ranks, int slots, int32_t *expert);

/**
 * Convert slots, as shunt_balance_eplb() returns them, to a placement and
 * replicas for shunt_moe_set_placement().
 *
 * expert       (ranks, slots); each expert is in some slot
 * placement    the present placement
 * home         out, (experts) the new placement; may be `placement`
 * replicas     out, (ranks * slots - experts) entries; by expert, then rank
 * nreplicas    out, the number of replicas
 *
 * An expert keeps its home if a copy of it is there. Otherwise the lowest rank
 * with a copy is its new home. Two copies on a rank count as one.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_place(const int32_t *expert, int experts, int ranks, int slots,
                    const int32_t *placement, int32_t *home,
                    struct shunt_moe_replica *replicas, size_t *nreplicas);

/* --- migration ------------------------------------------------------------ */

/** The result of shunt_balance_migrate(). */
struct shunt_balance_migration {
    double before; /* coefficient of variation of the ranks' loads */
    double after;  /* the same, with the new placement */
    int moves;     /* experts that change their rank */
    int pays;      /* 1: before - after >= least */
};

/**
 * Choose experts that should move.
 *
 * loads    (experts), preferably predicted loads
 * least    the coefficient of variation must fall by this much, or no expert
 *          moves; 0.08 is a good value
 * moved    out, (experts) the new placement, or the present one if moving does
 *          not pay
 * result   out
 *
 * In descending order of load, each expert is assigned to the least loaded rank
 * that has a free slot (the longest first; Graham 1969). Each rank has as many
 * slots as it has experts now. If one expert dominates, moving does not help
 * much: give that expert copies.
 *
 * O(experts * (log experts + log ranks)).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_migrate(const double *loads, int ranks, int experts,
                      const int32_t *placement, double least, int32_t *moved,
                      struct shunt_balance_migration *result);

/* --- one batch ------------------------------------------------------------ */

/**
 * Choose copies for one batch, and shares for shunt_moe_set_shares(), so that
 * the rows of all ranks are as equal as possible. The routing of the batch must
 * be known. Each rank has room for `slots` copies beside its own experts.
 *
 * rows       (ranks, experts) rows that each rank sends to each expert; not
 *            negative, and their sum is less than 2^63
 * node       (ranks) the node of each rank; NULL: each rank is its own node
 * slots      free slots of each rank, 0 or more
 * leaf_rows  leaf_rows of the exchange, 1 .. 2^32 - 1
 * replicas   out, (ranks * slots) entries; by expert, then rank
 * share      out, (experts + ranks * slots) entries: rows of each expert at its
 *            place, then rows of each replica. In a plan of this batch, experts
 *            and replicas get exactly these rows
 * nreplicas  out, how many replicas there are; of `share`, experts + *nreplicas
 *            entries are written
 * result     out, (ranks) rows of each rank with these copies; NULL: not wanted
 *
 * The target is the mean number of rows of a rank, rounded up. As long as a
 * rank has more, the rank with most rows gives away leaves of one expert: the
 * expert that has most leaves left on this rank. The receiver is the rank with
 * fewest rows that has a copy of the expert or a free slot; of equal ranks, one
 * on the same node. It gets as many leaves as bring one of the two ranks
 * nearest to the target, or all leaves. If that would not lower the greatest
 * load, the next expert is tried.
 *
 * So loads differ from the mean by less than a leaf where slots suffice: max /
 * mean is at most 1.02 if a rank has 50 leaves or more.
 *
 * O(ranks * experts + (experts + ranks) * (experts / ranks + ranks)).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_batch(const int64_t *rows, int ranks, int experts,
                    const int32_t *placement, const int *node, int slots,
                    size_t leaf_rows, struct shunt_moe_replica *replicas,
                    int64_t *share, size_t *nreplicas, int64_t *result);

/** The goal of copies for a batch, and their price. */
struct shunt_balance_goal {
    double
        within; /* 1 or more: a rank may have `within` times the mean of rows */
    double row_s; /* seconds that a rank's experts take for one row, forward and
                      backward together */
    double copy_s; /* seconds for which one copy occupies its expert's rank, or
                      its own rank, in one step: it receives parameters and
                      sends gradients; 0: copies have no price, and row_s is not
                      used */
};

/**
 * Choose copies as shunt_balance_batch() does, but as few as it finds for a
 * bound on the loads. If copies cost more than they save, or all loads are
 * within the bound, choose none.
 *
 * goal  NULL: shunt_balance_batch(). All other arguments as in that function.
 *
 * Copies are made as in shunt_balance_batch(), but with two limits in place of
 * the mean. A rank with more rows than the upper limit gives rows away, down to
 * the lower limit. Other ranks take them up to the upper limit. The bound is
 * within * mean. Four pairs of limits are tried:
 *
 *   - lower the mean, upper the bound;
 *   - both the bound;
 *   - both halfway between the mean and the bound;
 *   - both the mean.
 *
 * The result within the bound that has fewest copies is taken; of equal
 * results, the one whose greatest load is smallest. If no result is within the
 * bound, the one whose greatest load is smallest is taken.
 *
 * If copies have a price, four more are tried: three that leave a half, a
 * quarter and an eighth of the rows above the bound, and no copies. Of all
 * eight results the one with the least
 *
 *     row_s * greatest load + copy_s * copies of the busiest rank
 *
 * is taken, even if its loads are above the bound. The copies of a rank are
 * those of its experts, or those on it, whichever are more: a link carries both
 * at a time.
 *
 * Takes up to 9 times as long as shunt_balance_batch().
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_balance_batch_goal(
    const int64_t *rows, int ranks, int experts, const int32_t *placement,
    const int *node, int slots, size_t leaf_rows,
    const struct shunt_balance_goal *goal, struct shunt_moe_replica *replicas,
    int64_t *share, size_t *nreplicas, int64_t *result);

/* --- routers that keep loads even ----------------------------------------- */

/**
 * Choose the top k experts of each token within its best groups of experts.
 *
 * scores     (tokens, experts), with a bias for balance added, if there is one
 * groups     divides experts; chosen 1 .. groups; best_of 1 .. experts /
 *            groups; k 1 .. chosen * experts / groups
 * topk_idx   out, (tokens, k), in descending order of scores
 *
 * As in DeepSeek-V2 (2405.04434, best_of 1) and V3 (2412.19437, best_of 2). If
 * a group is on one node, the rows of a token are for few nodes, and are sent
 * to each of them once.
 *
 * A group's score is the sum of its best_of largest scores. For each token the
 * `chosen` groups with the largest scores are open. The token takes the k
 * experts with the largest scores in these groups. A NaN counts as -infinity.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_topk_limited(const float *scores, size_t tokens, int experts,
                           int groups, int chosen, int best_of, int k,
                           int32_t *topk_idx);

/**
 * Choose the top k / groups experts of each token in each group of experts.
 *
 * groups     divides experts and k
 * topk_idx   out, (tokens, k): group by group, each in descending order
 *
 * As in MoGE (Pangu Pro MoE, 2505.21411). If a group is on one rank, all ranks
 * get equally many rows of any batch. `scores`, and a NaN in it, are as in
 * shunt_balance_topk_limited().
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_topk_grouped(const float *scores, size_t tokens, int experts,
                           int groups, int k, int32_t *topk_idx);

#ifdef __cplusplus
}
#endif

#endif
