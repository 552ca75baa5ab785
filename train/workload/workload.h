// SPDX-License-Identifier: Apache-2.0
/*
 * Synthetic routers: experts that do not follow from logits, to measure the
 * cost of uneven loads. W0 to W7 follow the benchmark proposed for Megatron-LM
 * (github.com/NVIDIA/Megatron-LM/pull/7488), with random numbers of this
 * project. A token has K different experts; all choices of K from a set are
 * equally probable. E is the number of experts, and H = max(K, E / 4). If a set
 * is called hot, three of four tokens choose from it, in order of their place
 * in the batch; the fourth chooses from all experts.
 *
 *     W0  balanced: experts in turn
 *     W1  hot experts: the first H
 *     W2  a hot rank: the same set, which is on one rank or a few
 *     W3  hot experts that are spread: every second expert
 *     W4  uneven sources: tokens choose from all experts, but some have none.
 *         Of the first tokens of the batch all have experts, of the last a
 *         quarter, and linearly in between. (The proposal only says that
 *         sources are uneven.)
 *     W5  experts and ranks without rows: only the second half of the experts
 *     W6  a hot spot that moves: H hot experts; every three steps the next H
 *     W7  bursts: in every fourth step, from step 3 on, every second token
 *         chooses from the first H; all others choose from all experts
 *     zipf  not of the proposal: of the experts not chosen yet, e is chosen
 *           with a probability in proportion to 1 / (e + 1) (Zipf's law,
 *           exponent 1)
 *
 * A set with less than K experts is replaced by all experts. A token's experts
 * are a function of (seed, step, layer, place in the batch), so that they are
 * the same on any number of ranks.
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
    uint64_t key; /* a key made of (seed, step, layer) */
    size_t step;
    size_t tokens; /* tokens in the batch */
};

/* Chooses K different experts for the token at a place in the batch; or -1, K
 * times. */
void workload_choose(const struct workload *w, size_t token, size_t E, size_t K,
                     int32_t *choice);

#endif
