// SPDX-License-Identifier: Apache-2.0
/*
 * The parameters of the model, and the place of each.
 *
 * The parameters that every rank has, the dense ones, are in one vector of f32.
 * Their gradient, their moments and slices have the same offsets. The experts'
 * parameters are another vector: (layers with experts, experts of this rank,
 * expert_size). With tensor parallelism the matrices of attention and of the
 * shared expert are cut into shards. Each shard is a vector of its own. Without
 * tensor parallelism these matrices are dense.
 */
#ifndef TRAIN_LAYOUT_H
#define TRAIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/layers/gate.h"

struct model_config {
    size_t layers;        /* L */
    size_t dim;           /* D */
    size_t heads;         /* H */
    size_t seq;           /* largest T */
    size_t experts;       /* E */
    size_t topk;          /* K */
    size_t expert_hidden; /* F */
    size_t shared_hidden; /* hidden width of the shared expert; 0: none */
    bool renormalise;     /* a token's weights are divided by their sum */
    float balance;        /* weight of the load-balancing loss */
    float zloss;          /* weight of the router z-loss */
    float bias_rate;      /* step of the aux-loss-free bias; 0: none */
    struct gate_config gate;
    /* Layers without experts have a feed-forward of their own. They are the
     * first `first_dense` layers, and then all but the last of each `moe_every`
     * layers. */
    size_t first_dense;
    size_t moe_every;    /* 0 means 1 */
    size_t dense_hidden; /* hidden width of that feed-forward */
    size_t kv_heads;     /* heads of keys and values; 0: as many as heads */
    size_t head_width;   /* W; 0: dim / heads */
    /* The model sets this to model_kv_copies() for its number of shards. 0
     * means 1. */
    size_t kv_copies;
};

/* The number of copies of each head of keys and values. Shards whose heads of q
 * need the same head each have a copy of that head (as in Megatron-LM). The
 * number of copies is the smallest for which every copy, in all shards, is
 * shared by equally many consecutive heads of q. */
size_t model_kv_copies(const struct model_config *c, size_t shards);

/* Letters as in layers.h. The functions return KV, without copies; W; H W, the
 * width of all heads of q together; and the width of a row of q | k | v, with
 * copies. */
size_t model_kv_heads(const struct model_config *c);
size_t model_head_width(const struct model_config *c);
size_t model_heads_width(const struct model_config *c);
size_t model_qkv_width(const struct model_config *c);

/* M, the number of layers with experts. These layers have indices of their own,
 * 0 .. M - 1. Arrays of experts, biases, loads and routings are in the order of
 * these indices. */
size_t model_moe_layers(const struct model_config *c);
/* The layer with index i among the layers with experts. */
size_t model_moe_layer(const struct model_config *c, size_t i);
bool model_has_experts(const struct model_config *c, size_t layer);
/* The index of `layer`, which has experts, among the layers with experts. */
size_t model_moe_index(const struct model_config *c, size_t layer);
/* The hidden width of the module that every token passes through: the shared
 * expert, or the feed-forward of a layer without experts. 0: there is none. */
size_t model_common_hidden(const struct model_config *c, size_t layer);
/* The largest model_common_hidden() of all layers. */
size_t model_most_common(const struct model_config *c);

/* The model's settings that a router needs. */
struct router_config model_router(const struct model_config *c);

/* Vectors are cut into slices at multiples of this many elements. Norms are
 * summed over as many elements at a time. */
enum { LAYOUT_CHUNK = 1024 };

/* Checks a config. 0, or -1 with train_error_text(). */
int model_config_check(const struct model_config *c);

/* q, k and v */
enum { LAYOUT_BLOCKS = 3 };

struct tensor {
    char name[40];
    size_t offset, count; /* place and size in its vector, in f32 */
    float std;            /* deviation of normal initial values; 0: see
                             `fill` */
    float fill;           /* the initial value if std is 0 */
    bool decay;           /* weight decay applies */
    /* The remaining fields describe a shard's part of a matrix, (rows,
     * columns). If the matrix is cut by columns it has `blocks` blocks (q, k
     * and v). A shard has width[i] columns of block i. blocks = 0: the matrix
     * is cut by rows. copies[i]: how often in succession each group of `unit`
     * columns (a head) of block i appears, if the shards are side by side. */
    size_t rows, columns, blocks, width[LAYOUT_BLOCKS];
    size_t copies[LAYOUT_BLOCKS], unit;
};

struct layer_layout {
    size_t norm1;  /* (D) */
    size_t norm2;  /* (D) */
    size_t router; /* (D, gate_width()), where there are experts */
    /* The following fields are offsets in a shard if there are several shards,
     * else in the dense vector. Q', A' and S' are a shard's part of
     * model_qkv_width(), model_heads_width() and S = model_common_hidden(). */
    size_t qkv;            /* (D, Q') */
    size_t proj;           /* (A', D) */
    size_t shared_gate_up; /* (D, 2 S') */
    size_t shared_down;    /* (S', D) */
    size_t shard_end;      /* where this layer's part of a shard ends */
};

struct layout {
    struct tensor *tensors; /* tensors in the dense vector */
    size_t ntensors;
    size_t dense;               /* length of the dense vector */
    size_t embed;               /* (V, D) */
    size_t norm;                /* (D) */
    size_t head;                /* (D, V) */
    struct layer_layout *layer; /* (L) */

    size_t shards;
    struct tensor *split; /* the matrices of a shard */
    size_t nsplit;
    size_t shard_size; /* elements of a shard, in whole chunks; 0: only one
                          shard */

    /* Offsets in an expert's parameters. */
    size_t gate_up; /* (D, 2 F) */
    size_t down;    /* (F, D) */
    size_t expert_size;
    float gate_up_std, down_std;
};

/* shards: parts that the heads and the shared expert's hidden width are cut
 * into; 1: not cut. 0, or -1 with train_error_text(). */
int layout_create(const struct model_config *c, size_t shards,
                  struct layout *layout);
void layout_destroy(struct layout *layout);

/* For a matrix that is cut by columns: the column of the whole matrix that a
 * shard has as `column`. */
size_t layout_column(const struct tensor *t, size_t shards, size_t shard,
                     size_t column);

/* Initial values. They depend only on the seed, the tensor's name and the index
 * of the element in the whole tensor. */
void layout_init_dense(const struct layout *layout, uint64_t seed,
                       float *dense);
void layout_init_shard(const struct layout *layout, uint64_t seed, size_t shard,
                       float *weights);
void layout_init_expert(const struct layout *layout, uint64_t seed,
                        size_t layer, size_t expert, float *weights);

#endif
