// SPDX-License-Identifier: Apache-2.0
/*
 * With tensor parallelism several shards may need the same head of keys and
 * values. Each of these shards has its own copy of the head
 * (model_kv_copies()). The gradient in a copy is only the part that comes from
 * the heads of q in the same shard. So the gradients of all copies are added,
 * in the order of the copies, on whatever ranks they are. Every copy is set to
 * the sum. Weights and moments of all copies then stay bitwise equal. The norm
 * of the gradient counts the sum once.
 */
#ifndef TRAIN_KV_COPIES_H
#define TRAIN_KV_COPIES_H

#include <stddef.h>

#include "train/parameters/layout.h"
#include "train/parameters/params.h"
#include "train/parameters/tensor.h"

struct kv_copies {
    const struct layout *layout; /* NULL: there are no copies */
    const struct params *shard;
    struct team *tensor; /* the tensor-parallel group, as in tensor.h; or
                            NULL */
    size_t first;        /* this rank's first shard */
    size_t copies;       /* copies of each head */

    size_t each;   /* elements of keys and values in a shard */
    float *parts;  /* (shards, each) gradients of the copies in all shards */
    size_t *begin; /* (ranks of shard->team + 1) where each rank's slice begins
                      in `parts` */
    size_t *whole; /* (shards + 1) where each shard begins in `parts` */
};

/* shard: (own shards, shard_size); its slice_grad must be the sum over the
 * batch. `layout`, `shard` and the group's team are borrowed, and must not
 * move. 0, or -1 with train_error_text(). */
int kv_copies_create(struct kv_copies *k, const struct model_config *c,
                     const struct layout *layout,
                     const struct tensor_group *tensor,
                     const struct params *shard);
void kv_copies_destroy(struct kv_copies *k);

/* kv_copies_add() changes slice_grad: the first copy of each head is set to the
 * sum, the other copies to zeros. Collective; 0, or -1 with train_error_text().
 * Call kv_copies_spread() after gradient_norm(): it writes the sum to the other
 * copies, too. It is not collective and cannot fail. */
int kv_copies_add(struct kv_copies *k);
void kv_copies_spread(struct kv_copies *k);

#endif
