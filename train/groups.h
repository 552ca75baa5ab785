// SPDX-License-Identifier: Apache-2.0
/*
 * How the ranks share out attention and the shared expert: tp ranks in a row have
 * a shard each and make a group (tensor.h); ranks with the same shard, one of each
 * group, have different parts of the batch. And how they share out experts, which
 * does not depend on that: all of them are on so many ranks in a row as make one of
 * `copies` equal parts of the ranks; ranks with the same experts, one of each part,
 * have copies of them. To experts the ranks of a group are more sources of tokens.
 */
#ifndef TRAIN_GROUPS_H
#define TRAIN_GROUPS_H

#include <stddef.h>

#include "train/team.h"

struct groups {
    size_t tp;           /* ranks of a tensor-parallel group */
    struct team tensor;  /* this rank's; none if tp is 1 */
    struct team *data;   /* ranks with this rank's shard */
    struct team of_data; /* that, unless it is all ranks */

    struct team *experts; /* ranks that have all experts together */
    struct team of_experts;
    struct team copies; /* ranks with this rank's experts */
};

/* tp and copies divide the ranks. Collective. 0, or -1 with
 * train_error_text(). */
int groups_create(struct team *all, size_t tp, size_t copies,
                  struct groups *groups);
void groups_destroy(struct groups *groups);

#endif
