// SPDX-License-Identifier: Apache-2.0
/*
 * What parameters the model has and where each stands.
 *
 * Parameters that every rank holds (the dense ones) are one vector of f32; its
 * gradient, its moments and a slice of it have the same offsets. Those of the
 * experts are another: (layers, experts of this rank, expert_size). With tensor
 * parallelism the matrices of attention and of the shared expert are cut into
 * shards, each a vector of its own; else they are dense.
 */
#ifndef TRAIN_LAYOUT_H
#define TRAIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/gate.h"

struct model_config {
    size_t layers;        /* L */
    size_t dim;           /* D */
    size_t heads;         /* H */
    size_t seq;           /* T, at most */
    size_t experts;       /* E */
    size_t topk;          /* K */
    size_t expert_hidden; /* F */
    size_t shared_hidden; /* hidden width of the shared expert; 0: none */
    bool renormalise;     /* a token's weights are divided by their sum */
    float balance;        /* weight of the load-balancing loss */
    float zloss;          /* weight of the router z-loss */
    float bias_rate;      /* step of the aux-loss-free bias; 0: none */
    struct gate_config gate;
    /* Layers without experts have a feed-forward of their own. */
    size_t first_dense;  /* the first so many, */
    size_t moe_every;    /* then all but the last of each so many; 0: 1 */
    size_t dense_hidden; /* its hidden width */
    size_t kv_heads;     /* heads of keys and values; 0: as many as heads */
    size_t head_width;   /* W; 0: dim / heads */
    /* The model's own: model_kv_copies() for its shards; 0: 1. */
    size_t kv_copies;
};

/* Where shards of the heads of q need the same head of keys and values, each of
 * them has a copy of it (as Megatron-LM does). How many copies of each head there
 * are: the fewest with which, in all shards, each copy is shared by equally many heads
 * of q in a row. */
size_t model_kv_copies(const struct model_config *c, size_t shards);

/* Letters as in layers.h: KV, without copies, and W; and of a row, with copies,
 * what the heads of q have together, H W, and q | k | v. */
size_t model_kv_heads(const struct model_config *c);
size_t model_head_width(const struct model_config *c);
size_t model_heads_width(const struct model_config *c);
size_t model_qkv_width(const struct model_config *c);

/* Layers with experts, M of the L. They have numbers of their own: what there
 * is for each of them (experts, bias, loads, routings) is in their order. */
size_t model_moe_layers(const struct model_config *c);
/* The layer that is the i-th of them; */
size_t model_moe_layer(const struct model_config *c, size_t i);
bool model_has_experts(const struct model_config *c, size_t layer);
/* and which of them a layer is that has experts. */
size_t model_moe_index(const struct model_config *c, size_t layer);
/* Hidden width of what every token goes through: of the shared expert, or of a
 * layer's own feed-forward. 0: there is none. */
size_t model_common_hidden(const struct model_config *c, size_t layer);
/* The widest of these. */
size_t model_most_common(const struct model_config *c);

/* What its routers need to know. */
struct router_config model_router(const struct model_config *c);

/* Vectors are cut into slices, and their norms summed, in pieces of so many. */
enum { LAYOUT_CHUNK = 1024 };

/* Says what is wrong with a config: 0, or -1 with train_error_text(). */
int model_config_check(const struct model_config *c);

/* q, k and v */
enum { LAYOUT_BLOCKS = 3 };

struct tensor {
    char name[40];
    size_t offset, count; /* in its vector, f32 */
    float std;            /* initial values: normal with this deviation, or */
    float fill;           /* all of this value where std is 0 */
    bool decay;           /* weight decay applies */
    /* Of a shard's matrix: (rows, columns). It has so many columns of each of the
     * whole one's blocks, whose number is `blocks`; 0: rows of it. With the shards
     * side by side, each `unit` columns of a whole block (a head) stand there `copies`
     * times in a row. */
    size_t rows, columns, blocks, width[LAYOUT_BLOCKS];
    size_t copies[LAYOUT_BLOCKS], unit;
};

struct layer_layout {
    size_t norm1;  /* (D) */
    size_t norm2;  /* (D) */
    size_t router; /* (D, gate_width()), where there are experts */
    /* in a shard, if there are several, else in the dense vector; Q', A' and S'
     * are a shard's part of model_qkv_width(), model_heads_width() and S, which
     * is model_common_hidden() */
    size_t qkv;            /* (D, Q') */
    size_t proj;           /* (A', D) */
    size_t shared_gate_up; /* (D, 2 S') */
    size_t shared_down;    /* (S', D) */
    size_t shard_end;      /* of these, in a shard */
};

struct layout {
    struct tensor *tensors; /* of the dense vector */
    size_t ntensors;
    size_t dense;               /* length of the dense vector */
    size_t embed;               /* (V, D) */
    size_t norm;                /* (D) */
    size_t head;                /* (D, V) */
    struct layer_layout *layer; /* (L) */

    size_t shards;
    struct tensor *split; /* of a shard */
    size_t nsplit;
    size_t shard_size; /* length of a shard, whole chunks; 0: there is one */

    /* inside an expert */
    size_t gate_up; /* (D, 2 F) */
    size_t down;    /* (F, D) */
    size_t expert_size;
    float gate_up_std, down_std;
};

/* shards  of heads and of the shared expert's hidden width; 1: none */
int layout_create(const struct model_config *c, size_t shards,
                  struct layout *layout);
void layout_destroy(struct layout *layout);

/* Where a column of a shard's matrix that is cut by columns stands in the whole
 * one. */
size_t layout_column(const struct tensor *t, size_t shards, size_t shard,
                     size_t column);

/* Initial values. They depend on the seed, the tensor's name and the index of
 * the element, on nothing else. */
void layout_init_dense(const struct layout *layout, uint64_t seed,
                       float *dense);
void layout_init_shard(const struct layout *layout, uint64_t seed, size_t shard,
                       float *weights);
void layout_init_expert(const struct layout *layout, uint64_t seed,
                        size_t layer, size_t expert, float *weights);

#endif
