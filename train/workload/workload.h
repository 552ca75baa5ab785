// SPDX-License-Identifier: Apache-2.0
/*
 * Synthetic routers: experts that do not follow from logits, to see what uneven
 * loads cost. W0 to W7 are made as in the benchmark proposed for Megatron-LM
 * (github.com/NVIDIA/Megatron-LM/pull/7488); their random numbers are this
 * project's. A token has K different experts, all such choices from a set being
 * equally probable. Of E experts H = max(K, E / 4) are hot. A hot set is chosen from
 * by three of four tokens, in order of their place in the batch; the fourth
 * chooses from all.
 *
 *     W0  balanced: experts in turn
 *     W1  hot experts: the first H
 *     W2  a hot rank: the same H in a row, which one rank has or a few
 *     W3  hot experts that are spread: each second one
 *     W4  uneven sources: all experts alike. Of the first tokens of the batch all
 *         are there, of the last a quarter, and linearly between; those that are
 *         not have no expert. (There it says only that sources are uneven.)
 *     W5  experts and ranks without rows: the second half of the experts alone
 *     W6  a hot spot that moves: the H hot ones are the next H at each third step
 *     W7  bursts: at each fourth step, from step 3 on, every second token chooses
 *         from the first H; else all choose from all
 *     zipf  each choice is expert e with a probability in proportion to 1 / (e + 1)
 *           (Zipf's law of exponent 1, by number), of those not chosen yet; this is
 *           none of theirs
 *
 * Where a set has less than K experts, all are in it. A token's experts are a
 * function of (seed, step, layer, place in the batch): the same on any number of
 * ranks.
 */
#ifndef WORKLOAD_WORKLOAD_H
#define WORKLOAD_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>

enum workload_kind {
    WORKLOAD_NONE,
    WORKLOAD_W0,
    WORKLOAD_W1,
    WORKLOAD_W2,
    WORKLOAD_W3,
    WORKLOAD_W4,
    WORKLOAD_W5,
    WORKLOAD_W6,
    WORKLOAD_W7,
    WORKLOAD_ZIPF,
};

struct workload {
    enum workload_kind kind;
    uint64_t key; /* of (seed, step, layer) */
    size_t step;
    size_t tokens; /* of the batch */
};

/* K different experts of the token at that place of the batch, or -1 for
 * all. */
void workload_choose(const struct workload *w, size_t token, size_t E, size_t K,
                     int32_t *choice);

#endif
