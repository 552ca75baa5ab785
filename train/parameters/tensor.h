// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor parallelism. The matrices in front of attention and of the shared
 * expert are cut by columns, those behind them by rows (Shoeybi et al. 2019,
 * Megatron-LM). Between these matrices, a rank has all rows of its group, and a
 * part of their elements. Everywhere else a rank has its own rows, with all of
 * their elements (Korthikanti et al. 2022: "sequence parallelism"). So rows are
 * gathered for the first product (shunt_allgather_gemm()), and the sums of the
 * second product are scattered (shunt_gemm_reduce_scatter()). In backward the
 * two calls change places.
 *
 * A rank that is alone in its group has all shards. It computes their products
 * and sums one by one, with the same bits. With one shard there is one plain
 * product.
 */
#ifndef TRAIN_TENSOR_H
#define TRAIN_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "train/base/team.h"
#include "train/layers/layers.h"

struct tensor_group {
    struct team *team; /* ranks with one shard each; NULL: this rank has all
                          shards */
    size_t shards;     /* shards of each matrix */
    size_t own;        /* shards that this rank has */
    size_t first;      /* index of the first of these */

    struct spent spent; /* time in fused products, without the products
                           themselves */
    size_t gathers,
        scatters; /* number of fused products of each kind, since the caller
                     cleared the field */

    float *sum, *part; /* (rows, D) scratch of a rank with several shards */
};

/* The rows of a product: those of this rank's micro-batch, and of its
 * group's. */
struct tensor_rows {
    size_t own, all;
    const size_t *counts; /* (ranks of the group) rows of each; the sum is
                             `all` */
};

/* The number of ranks in the group. */
static inline size_t tensor_ranks(const struct tensor_group *t)
{
    return t->team ? (size_t)t->team->size : 1;
}

/* Allocates scratch of `floats` floats. 0, or -1 with train_error_text(). */
int tensor_create(struct tensor_group *t, size_t floats);
void tensor_destroy(struct tensor_group *t);

/* x (own, n) -> all (all, n): the rows of all ranks in the group; y (own
 * shards, all, m): the product `all` w, or `all` w^T.
 * all  may be x; without a group, x is copied to another `all`
 * w    (n, m), or (m, n) if transposed; the weights of own shard s begin at w +
 *      s * stride
 *
 * Collective within the group. 0, or -1 with train_error_text(). */
int tensor_gather(struct tensor_group *t, struct shunti_gemm *gemm,
                  const struct tensor_rows *rows, size_t n, size_t m,
                  const float *x, float *all, const float *w, size_t stride,
                  bool transposed, float *y);

/* x (own shards, all, n) -> y (own, m) [+]= this rank's rows of a sum: of x w,
 * or x w^T, over all shards, added shard by shard. w, stride: as above.
 * Collective within the group. 0, or -1 with train_error_text(). */
int tensor_scatter(struct tensor_group *t, struct shunti_gemm *gemm,
                   const struct tensor_rows *rows, size_t n, size_t m,
                   const float *x, const float *w, size_t stride,
                   bool transposed, enum shunti_gemm_beta beta, float *y);

#endif
