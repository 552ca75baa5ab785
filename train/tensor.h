// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor parallelism: products whose matrix is cut into shards, by columns before
 * attention and the shared expert, by rows behind them (Shoeybi et al. 2019,
 * Megatron-LM). Between the two each shard has all rows of its group and a part
 * of their elements; everywhere else each rank has its own rows and all of their
 * elements (Korthikanti et al. 2022: "sequence parallelism"). So rows are gathered
 * in front of the first product, and the sums of the second are scattered:
 * shunt_allgather_gemm() and shunt_gemm_reduce_scatter(), and in backward the same
 * two in each other's place.
 *
 * A rank that is alone in its group has all shards, and makes their products and
 * sums one by one: with the same bits. One shard is a plain product.
 */
#ifndef TRAIN_TENSOR_H
#define TRAIN_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "train/layers.h"
#include "train/team.h"

struct tensor_group {
    struct team *team; /* of the ranks that have a shard each; NULL: this rank
                          has all of them */
    size_t shards;     /* of each matrix */
    size_t own;        /* of these, this rank's, */
    size_t first;      /* from this one on */

    struct spent spent; /* in fused calls, but for their products, and */
    size_t gathers,
        scatters; /* how many of them, since the caller cleared it */

    float *sum, *part; /* (rows, D) scratch of a rank with several shards */
};

/* The rows of a product: those of a rank's micro-batch, and of its group's. */
struct tensor_rows {
    size_t own, all;
    const size_t *counts; /* (ranks of the group) whose sum is `all` */
};

/* The ranks of a group. */
static inline size_t tensor_ranks(const struct tensor_group *t)
{
    return t->team ? (size_t)t->team->size : 1;
}

/* Scratch for `floats`. 0, or -1 with train_error_text(). */
int tensor_create(struct tensor_group *t, size_t floats);
void tensor_destroy(struct tensor_group *t);

/* x (own, n) -> all (all, n): everybody's; y (own shards, all, m) = all w, or
 * all w^T.
 * all  without a group x is copied to it, unless it is x
 * w    (n, m), or (m, n) if it is transposed; that of the next shard stands
 *      `stride` behind it
 * Collective within the group. 0, or -1 with train_error_text(). */
int tensor_gather(struct tensor_group *t, struct shunti_gemm *gemm,
                  const struct tensor_rows *rows, size_t n, size_t m,
                  const float *x, float *all, const float *w, size_t stride,
                  bool transposed, float *y);

/* x (own shards, all, n) -> y (own, m) [+]= this rank's rows of the sum over all
 * shards of x w, or x w^T: shard by shard. w, stride: as above. */
int tensor_scatter(struct tensor_group *t, struct shunti_gemm *gemm,
                   const struct tensor_rows *rows, size_t n, size_t m,
                   const float *x, const float *w, size_t stride,
                   bool transposed, enum shunti_gemm_beta beta, float *y);

#endif
