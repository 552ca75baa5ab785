// SPDX-License-Identifier: Apache-2.0
/*
 * What parameters the model has and where each stands.
 *
 * Parameters that every rank holds (the dense ones) are one vector of f32; its
 * gradient, its moments and a slice of it have the same offsets. Those of the
 * experts are another: (layers, experts of this rank, expert_size).
 */
#ifndef TRAIN_LAYOUT_H
#define TRAIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
};

/* Says what is wrong with a config: 0, or -1 with train_error_text(). */
int model_config_check(const struct model_config *c);

struct tensor {
    char name[40];
    size_t offset, count; /* in its vector, f32 */
    float std;            /* initial values: normal with this deviation, or */
    float fill;           /* all of this value where std is 0 */
    bool decay;           /* weight decay applies */
};

struct layer_layout {
    size_t norm1;          /* (D) */
    size_t qkv;            /* (D, 3 D) */
    size_t proj;           /* (D, D) */
    size_t norm2;          /* (D) */
    size_t router;         /* (D, E) */
    size_t shared_gate_up; /* (D, 2 S) */
    size_t shared_down;    /* (S, D) */
};

struct layout {
    struct tensor *tensors; /* of the dense vector */
    size_t ntensors;
    size_t dense;               /* length of the dense vector */
    size_t embed;               /* (V, D) */
    size_t norm;                /* (D) */
    size_t head;                /* (D, V) */
    struct layer_layout *layer; /* (L) */

    /* inside an expert */
    size_t gate_up; /* (D, 2 F) */
    size_t down;    /* (F, D) */
    size_t expert_size;
    float gate_up_std, down_std;
};

int layout_create(const struct model_config *c, struct layout *layout);
void layout_destroy(struct layout *layout);

/* Initial values. They depend on the seed, the tensor's name and the index of
 * the element, on nothing else. */
void layout_init_dense(const struct layout *layout, uint64_t seed,
                       float *dense);
void layout_init_expert(const struct layout *layout, uint64_t seed,
                        size_t layer, size_t expert, float *weights);

#endif
