// SPDX-License-Identifier: Apache-2.0
/*
 * The right results of dispatch and combine, written only from
 * include/shunt/moe.h, in plain loops over the routing of all ranks. It shares
 * no code with the library or with tests/moe/reference.c. So if one of the
 * three misreads the header, it is found.
 */

#ifndef SHUNT_TEST_ROUTING_MODEL_H
#define SHUNT_TEST_ROUTING_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

/* An assignment: one (token, top-k slot) of one source rank. */
struct model_slot {
    bool kept; /* it has an expert and is not over capacity */
    int expert;
    int rank;   /* rank of the copy that the source chose */
    int home;   /* the expert's rank in `placement` */
    size_t row; /* index in that rank's row buffers */
};

/* One row of a rank's row buffers. */
struct model_row {
    int source; /* -1: padding or a gap */
    size_t token;
    int slot;
};

/* One plan. Every rank computes it from the routing of all ranks. */
struct model {
    const struct shunt_moe_config *config;
    int nranks;
    const int *node;        /* (nranks) */
    const size_t *tokens;   /* (nranks) */
    const int32_t **idx;    /* (nranks) (tokens, topk) */
    const float **weight;   /* (nranks) (tokens, topk), entries may be NULL */
    struct model_slot **of; /* (nranks) (tokens, topk) */
    /* For each rank: its rows, in order. */
    size_t *total;          /* (nranks) */
    struct model_row **row; /* (nranks) (total) */
    /* For each rank: its experts. */
    int *local_experts;
    int **expert;
    size_t **count;
    size_t **offset;
};

/* The caller keeps `config` and the routing, which must stay valid. The model
 * owns all its other memory. */
void model_init(struct model *model, const struct shunt_moe_config *config,
                int nranks, const int *node, const size_t *tokens,
                const int32_t **idx, const float **weight);
void model_finish(struct model *model);

float model_weight(const struct model *model, int source, size_t token,
                   int slot);

/* The row that arrives for `x` (hidden): rounded to the type in which it is
 * sent. The values of `x` must be ones that the payload type can hold. `out`
 * may be `x`. */
void model_wire(const struct model *model, const float *x, float *out);

/* Rounds to the payload type. */
float model_round(enum shunt_dtype dtype, float value);

/*
 * One element of the sum over a token's kept assignments, in the tree that the
 * header defines. term(arg, slot) is the value of assignment `slot`, weighted
 * if the sum is. start: the bias, or NULL.
 */
float model_sum(const struct model *model, int source, size_t token,
                const float *start, float (*term)(const void *arg, int slot),
                const void *arg);

#endif
