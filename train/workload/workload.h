// SPDX-License-Identifier: Apache-2.0
/*
 * Synthetic routers: experts that do not follow from logits, to measure the
 * cost of uneven loads. W0 to W7 follow the benchmark proposed for Megatron-LM
 * (github.com/NVIDIA/Megatron-LM/pull/7488), with random numbers of this
 * project. A token has K different experts; all choices of K from a set are
 * equally probable. E is the number of experts, and H = max(K, E / 4). If a set
 * is called hot, three of every four consecutive tokens of the batch choose
 * from that set. The remaining token chooses from all experts.
 *
 *     W0  balanced: experts in turn
 *     W1  hot experts: the first H
 *     W2  a hot rank: as W1; the hot experts are on one rank or a few
 *     W3  hot experts that are spread: every second expert
 *     W4  uneven sources: tokens choose from all experts, but some tokens get
 *         none. The probability to get experts falls linearly, from 1 for the
 *         first token of the batch to 1/4 for the last. (The proposal only says
 *         that sources are uneven.)
 *     W5  experts and ranks without rows: tokens choose only from the second
 *         half of the experts
 *     W6  a hot spot that moves: H hot experts; every three steps the next H
 *     W7  bursts: in every fourth step, from step 3 on, every second token
 *         chooses from the first H; all others choose from all experts
 *     zipf  not in the proposal: experts are drawn one after the other, expert
 *           e with a probability in proportion to 1 / (e + 1) (Zipf's law,
 *           exponent 1)
 *
 * A set with fewer than K experts is replaced by all experts. A token's experts
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

/* Chooses K different experts for the token at place `token` of the batch. If
 * the token gets none (W4), writes -1 K times. */
void workload_choose(const struct workload *w, size_t token, size_t E, size_t K,
                     int32_t *choice);

#endif
