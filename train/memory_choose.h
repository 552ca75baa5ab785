// SPDX-License-Identifier: Apache-2.0
/*
 * A choice under a budget: which tensors to drop, so that the rest fits and
 * dropping costs the least time. A knapsack, but that the dropped tensors of a
 * group share scratch memory, as large as the largest of them.
 */
#ifndef TRAIN_MEMORY_CHOOSE_H
#define TRAIN_MEMORY_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MEMORY_EXACT = 20, /* of so many tensors the choice is exact */
    MEMORY_GROUPS = 8, /* at most */
};

struct memory_tensor {
    size_t bytes;
    double seconds; /* that dropping it costs */
    int group;      /* 0 .. MEMORY_GROUPS - 1 */
};

/* Bytes of those that are kept, and of scratch. */
size_t memory_choose_bytes(const struct memory_tensor *tensors, size_t count,
                           const bool *drop);

/* drop (count): the choice of the least seconds that fits into `budget` bytes; of
 * more than MEMORY_EXACT tensors a good one: greedy, by seconds a byte. False:
 * nothing fits, and all are dropped. */
bool memory_choose(const struct memory_tensor *tensors, size_t count,
                   size_t budget, bool *drop);

#endif
