// SPDX-License-Identifier: Apache-2.0
/*
 * Groups of ranks for tensor parallelism and for copies of experts.
 *
 * Tensor parallelism: `tp` consecutive ranks form a group. Each has one shard
 * of attention and of the shared expert (tensor.h). Ranks with the same shard,
 * one of each group, work on different parts of the batch.
 *
 * Copies of experts: the ranks are divided into `copies` equal parts of
 * consecutive ranks. Each part has all experts. Ranks with the same experts,
 * one of each part, have copies of them. This does not depend on `tp`: for the
 * experts, the ranks of a tensor-parallel group are just several sources of
 * tokens.
 */
#ifndef TRAIN_GROUPS_H
#define TRAIN_GROUPS_H

#include <stddef.h>

#include "train/base/team.h"

struct groups {
    size_t tp;           /* ranks of a tensor-parallel group */
    struct team tensor;  /* this rank's group; unset if tp is 1 */
    struct team *data;   /* ranks that have the same shard as this rank */
    struct team of_data; /* `data` points here, unless it is all ranks */

    struct team *experts; /* this rank's part: ranks that together have all
                             experts */
    struct team of_experts;
    struct team copies; /* ranks that have the same experts as this rank */
};

/* tp and copies must divide the number of ranks. Collective. 0, or -1 with
 * train_error_text(). */
int groups_create(struct team *all, size_t tp, size_t copies,
                  struct groups *groups);
void groups_destroy(struct groups *groups);

#endif
