// SPDX-License-Identifier: Apache-2.0
/*
 * Heads of keys and values of which shards have copies (model_kv_copies()): each copy
 * has a part of the head's gradient, that of the heads of q beside it. All copies get
 * the sum, which is made in their order, whatever ranks have them; so their weights
 * and moments stay the same bits. In the norm of the gradient it is counted once.
 */
#ifndef TRAIN_KV_COPIES_H
#define TRAIN_KV_COPIES_H

#include <stddef.h>

#include "train/layout.h"
#include "train/params.h"
#include "train/tensor.h"

struct kv_copies {
    const struct layout *layout; /* NULL: there are no copies */
    const struct params *shard;
    struct team *tensor; /* as in tensor.h */
    size_t first;        /* this rank's shards: from this one on */
    size_t copies;       /* of each head */

    size_t each;   /* elements of keys and values in a shard */
    float *parts;  /* (shards, each) their gradients: of these */
    size_t *begin; /* (ranks of shard->team + 1) each one's slice, and */
    size_t *whole; /* (shards + 1) each shard */
};

/* `shard`: (own shards, shard_size), of which slice_grad is the sum over the batch.
 * `layout`, `shard` and the group's team are borrowed, and stay where they are.
 * 0, or -1 with train_error_text(). */
int kv_copies_create(struct kv_copies *k, const struct model_config *c,
                     const struct layout *layout,
                     const struct tensor_group *tensor,
                     const struct params *shard);
void kv_copies_destroy(struct kv_copies *k);

/* In slice_grad the first copy of each head gets the sum, the others zeros;
 * collective. 0, or -1 with train_error_text(). And after gradient_norm(): the others
 * get the sum, too; not collective, cannot fail. */
int kv_copies_add(struct kv_copies *k);
void kv_copies_spread(struct kv_copies *k);

#endif
