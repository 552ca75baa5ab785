// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Balance: where experts should be, decided from their loads.
 *
 * Routers are not uniform: the rank of a hot expert is the step time of all.
 * These functions decide which experts get copies, which move, and how the rows
 * of one batch are shared by copies. They move nothing: a placement goes to
 * shunt_moe_set_placement() or shunt_moe_set_shares(), and moe_experts.h moves the parameters.
 *
 * They are pure functions: no communicator, no state, no random numbers.
 * Integers and doubles are used in a stated order, so equal arguments give equal
 * results on every rank. So ranks agree if they decide from the same loads, and
 * nothing needs to be sent but those.
 *
 * A load is a number of rows of an expert, in a batch or predicted, or anything
 * in proportion to it: finite and not negative, else SHUNT_ERR_INVALID, which
 * names the entry. Placements are as in shunt_moe_config: (experts) rank of
 * each; NULL: e * ranks / experts. Ties go to the lower number (expert, rank,
 * group). Outputs must not overlap inputs unless it says so, and are undefined
 * after an error. Errors, of all of them: SHUNT_ERR_INVALID, naming the argument
 * or the entry; SHUNT_ERR_MEMORY. Any thread may call them at any time.
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
 * predicted  (n) in and out; theta 0 makes it the loads, as for the first batch.
 * loads      (n) of the last batch
 * theta      0 .. 1
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_predict(double *predicted, const double *loads, size_t n,
                      double theta);

/** Largest of n loads over their mean: the factor by which a step of equal ranks
 * is longer than it need be. 1 if all are 0, or n is. */
SHUNT_API double shunt_balance_imbalance(const double *loads, size_t n);

/** Coefficient of variation of n loads: standard deviation (of the whole
 * population) over mean. 0 if all are 0, or n is. */
SHUNT_API double shunt_balance_variation(const double *loads, size_t n);

/* --- copies of hot experts -------------------------------------------------- */

/** What a copy on every rank costs and saves, in one step. */
struct shunt_balance_price {
    double row_s;        /* seconds that a rank's experts take for one row,
                            forward and backward together */
    double expert_bytes; /* parameters of one expert */
    double bytes_per_s;  /* of a rank's link, > 0 */
    double row_bytes;    /* bytes that one row puts on the link of its expert's
                            rank, in all exchanges of a step; 0: what copies save
                            there is not counted */
};

/**
 * Experts that should be on every rank ("shadowed"), so that each rank computes
 * its own rows for them: the policy of FasterMoE (He et al., PPoPP 2022), with
 * two corrections: the load that receivers add to themselves counts, and so does
 * the way home of the gradients.
 *
 * With b[r][e] the rows that rank r sends to expert e, a rank's load is all rows
 * of its experts that are not hot, and its own rows of those that are. While it
 * pays, the hottest expert of the rank with the greatest load becomes hot:
 *
 *     row_s * (greatest load now - then) + rows of other ranks * row_bytes /
 *         bytes_per_s  >  2 * expert_bytes / bytes_per_s
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
 * Experts with copies and where all of them should be, for equal loads of all
 * ranks: EPLB (DeepSeek-AI, 2025, github.com/deepseek-ai/EPLB).
 *
 * If `groups` is a multiple of `nodes`: groups of experts go to nodes, so that
 * the nodes' loads are as equal as can be; each node makes copies of its experts,
 * each time of the one with the greatest load for each copy, until its ranks'
 * slots are full; the copies, each with its share of the load, go to the node's
 * ranks. Else all is done as for one group and one node. What goes to nodes or
 * ranks goes in descending order of load, each time to the least loaded one with
 * room; if they take one each, in the order of numbers.
 *
 * loads    (experts)
 * groups   divides experts; group g is experts g * experts / groups and on
 * nodes    divides ranks; node n is ranks n * ranks / nodes and on
 * slots    copies on each rank; ranks * slots >= experts
 * expert   out, (ranks, slots) the expert in each slot. One rank may get two
 *          copies of an expert.
 *
 * O(experts * (copies - experts) / nodes), and a sort.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_eplb(const double *loads, int experts, int groups, int nodes,
                   int ranks, int slots, int32_t *expert);

/**
 * Slots, as of shunt_balance_eplb(), as a placement and replicas for
 * shunt_moe_set_placement(). An expert stays at home if a copy of it is there,
 * else the lowest rank with one is its new home; two copies on a rank are one.
 *
 * expert       (ranks, slots); each expert is in some slot
 * placement    the present one
 * home         out, (experts); may be `placement`
 * replicas     out, (ranks * slots - experts) entries; by expert, then rank
 * nreplicas    out, how many it has
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_place(const int32_t *expert, int experts, int ranks, int slots,
                    const int32_t *placement, int32_t *home,
                    struct shunt_moe_replica *replicas, size_t *nreplicas);

/* --- migration ---------------------------------------------------------------- */

/** What shunt_balance_migrate() found. */
struct shunt_balance_migration {
    double before; /* coefficient of variation of the ranks' loads */
    double after;  /* the same, with the new placement */
    int moves;     /* experts that change their rank */
    int pays;      /* 1: before - after >= least */
};

/**
 * Experts that should move: in descending order of load each goes to the least
 * loaded rank that has a free slot (the longest first; Graham 1969), where each
 * rank has as many slots as it has experts now. It pays if the coefficient of
 * variation falls by `least`; 0.08 serves well. One expert that dominates limits
 * what moving can do: give that copies.
 *
 * loads    (experts), best predicted ones
 * moved    out, (experts) the new placement; the present one if it does not pay
 * result   out
 *
 * O(experts * (log experts + log ranks)).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_migrate(const double *loads, int ranks, int experts,
                      const int32_t *placement, double least, int32_t *moved,
                      struct shunt_balance_migration *result);

/* --- one batch ------------------------------------------------------------------ */

/**
 * Copies for one batch, whose routing is known, such that all ranks get as many
 * rows as is possible with `slots` copies beside each rank's own experts: what
 * shunt_moe_set_shares() takes.
 *
 * While a rank has more rows than the mean, rounded up: the one with most gives
 * leaves (leaf_rows of the exchange) of one expert, that with most left there, to
 * the rank with fewest rows that has a copy of it or a free slot, on its node if
 * there is a choice; as many as bring the one nearest down or the other up to that
 * mean, or all. If that would not lower the greatest load, the next expert is
 * tried. So loads differ from the mean by less than a leaf where slots suffice:
 * max / mean is at most 1.02 if a rank has 50 leaves or more.
 *
 * rows       (ranks, experts) rows that each rank sends to each expert; not
 *            negative, and their sum is less than 2^63
 * node       (ranks) node of each; NULL: each rank is one
 * slots      free slots of each rank, 0 or more
 * leaf_rows  1 .. 2^32 - 1
 * replicas   out, (ranks * slots) entries; by expert, then rank
 * share      out, (experts + ranks * slots) entries: rows of each expert at its
 *            place, then those of each replica. Exactly these come to them in a
 *            plan of this batch
 * nreplicas  out, how many replicas there are; of `share`, experts + *nreplicas
 *            entries are written
 * result     out, (ranks) rows of each rank then; NULL: not wanted
 *
 * O(ranks * experts + (experts + ranks) * (experts / ranks + ranks)).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_batch(const int64_t *rows, int ranks, int experts,
                    const int32_t *placement, const int *node, int slots,
                    size_t leaf_rows, struct shunt_moe_replica *replicas,
                    int64_t *share, size_t *nreplicas, int64_t *result);

/** What copies for a batch are to reach, and what they cost. */
struct shunt_balance_goal {
    double
        within; /* 1 or more: a rank may have so many times the mean of rows */
    double row_s; /* seconds that a rank's experts take for one row, forward and
                      backward together */
    double
        copy_s; /* seconds for which one copy occupies its expert's rank, or its
                      own, in one step: parameters there, gradients back; 0: copies
                      have no price, and row_s is not used */
};

/**
 * shunt_balance_batch() with as few copies as it finds for a bound, or none if they
 * cost more than they save. Loads that keep to the bound get none.
 *
 * Copies are made as there, in several ways: a rank with more than the bound,
 * within * mean, gives rows down to the mean or down to the bound, to ranks that
 * take them up to the bound; and the same with half of what `within` permits, and
 * with the mean itself. Of those that keep to the bound the one with fewest copies
 * is taken, of these the one with the smallest greatest load; if none does, the one
 * with the smallest greatest load.
 *
 * With a price they are compared with others, which leave a half, a quarter, an
 * eighth of what is above the bound, and with none; and that is taken for which
 *
 *     row_s * greatest load + copy_s * copies of the busiest rank
 *
 * is least, also if its loads are above the bound. A rank's copies are those of its
 * experts, or those on it, whichever are more: a link carries both at a time.
 *
 * goal  NULL: shunt_balance_batch(). All else is as there. Up to 9 times its time.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_balance_batch_goal(
    const int64_t *rows, int ranks, int experts, const int32_t *placement,
    const int *node, int slots, size_t leaf_rows,
    const struct shunt_balance_goal *goal, struct shunt_moe_replica *replicas,
    int64_t *share, size_t *nreplicas, int64_t *result);

/* --- routers that keep loads even ---------------------------------------------- */

/**
 * Top-k within the best groups of experts: DeepSeek-V2 (2405.04434, best_of 1)
 * and V3 (2412.19437, best_of 2). A token's rows then go to few nodes, if a group
 * is on one, and are sent there once each.
 *
 * A group's score is the sum of its best_of largest scores. Of each token the
 * `chosen` groups with the largest are open, and it takes the k experts with the
 * largest scores in them. A NaN counts as -infinity.
 *
 * scores     (tokens, experts), with a bias for balance added, if there is one
 * groups     divides experts; chosen 1 .. groups; best_of 1 .. experts / groups;
 *            k 1 .. chosen * experts / groups
 * topk_idx   out, (tokens, k), in descending order of scores
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_topk_limited(const float *scores, size_t tokens, int experts,
                           int groups, int chosen, int best_of, int k,
                           int32_t *topk_idx);

/**
 * Top-k / groups in each group of experts: MoGE (Pangu Pro MoE, 2505.21411). If
 * a group is on one rank, all ranks get equally many rows of any batch.
 *
 * groups     divides experts and k
 * topk_idx   out, (tokens, k): group by group, each in descending order
 *
 * scores, NaN as of shunt_balance_topk_limited().
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_balance_topk_grouped(const float *scores, size_t tokens, int experts,
                           int groups, int k, int32_t *topk_idx);

#ifdef __cplusplus
}
#endif

#endif
