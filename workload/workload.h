// SPDX-License-Identifier: Apache-2.0
/*
 * Synthetic routers: experts that do not follow from logits, to see what uneven
 * loads cost. Their names and what each isolates are those of a benchmark
 * proposed for Megatron-LM (github.com/NVIDIA/Megatron-LM/pull/7488); the
 * numbers below are this project's. With E experts, of which a block is E / 8
 * in a row:
 *
 *     W0  balanced: experts in turn
 *     W1  hot experts: half of all choices go to the first E / 16
 *     W2  a hot rank: half go to the first block
 *     W3  as W1, but the hot experts are spread evenly over all
 *     W4  uneven sources: of the first tokens of the batch all are there, of the
 *         last a quarter, and linearly between; those that are not have no expert
 *     W5  experts without rows: the last two blocks, and expert 0
 *     W6  as W2, but the hot block is the next one at each step
 *     W7  bursts: as W0, but at each eighth step nine of ten go to the first block
 *     zipf  each choice is expert e with a probability in proportion to 1 / (e + 1)
 *           (Zipf's law of exponent 1, by number), of those not chosen yet; this is
 *           none of theirs
 *
 * All but W0 and W7 are random beside that. A token's experts are a function of
 * (seed, step, layer, place in the batch): the same on any number of ranks.
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
