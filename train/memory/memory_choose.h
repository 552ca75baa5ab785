// SPDX-License-Identifier: Apache-2.0
/*
 * A choice under a budget: which tensors to drop, so that the rest fits and
 * dropping costs the least time. This is a knapsack problem with one
 * difference. The dropped tensors of a group share scratch memory, which is as
 * large as the largest of them.
 */
#ifndef TRAIN_MEMORY_CHOOSE_H
#define TRAIN_MEMORY_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MEMORY_EXACT = 20, /* up to this many tensors the choice is optimal */
    MEMORY_GROUPS = 8, /* the most groups */
};

struct memory_tensor {
    size_t bytes;
    double seconds; /* time that dropping it costs */
    int group;      /* 0 .. MEMORY_GROUPS - 1 */
};

/* Bytes of the kept tensors and of the scratch memory. */
size_t memory_choose_bytes(const struct memory_tensor *tensors, size_t count,
                           const bool *drop);

/* drop (count): the choice that costs the least time and fits into `budget`
 * bytes. For more than MEMORY_EXACT tensors the choice is only a good one:
 * greedy, by seconds per byte. Returns false if nothing fits; then all tensors
 * are dropped. */
bool memory_choose(const struct memory_tensor *tensors, size_t count,
                   size_t budget, bool *drop);

#endif
