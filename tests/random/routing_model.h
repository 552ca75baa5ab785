// SPDX-License-Identifier: Apache-2.0
/*
 * What dispatch and combine must give, written from include/shunt/moe.h alone:
 * plain loops over the routing of all ranks. It shares no code with the library
 * and none with tests/moe/reference.c, so a misreading of the header by one of
 * the three shows.
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
    int rank;   /* that holds the copy which its source chose */
    int home;   /* the expert's place in `placement` */
    size_t row; /* in that rank's row buffers */
};

/* One row of a rank's row buffers. */
struct model_row {
    int source; /* -1: padding or a gap */
    size_t token;
    int slot;
};

/* One plan, as every rank can compute it from everybody's routing. */
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

/* Everything but `config` and the routing, which are borrowed, is owned. */
void model_init(struct model *model, const struct shunt_moe_config *config,
                int nranks, const int *node, const size_t *tokens,
                const int32_t **idx, const float **weight);
void model_finish(struct model *model);

float model_weight(const struct model *model, int source, size_t token,
                   int slot);

/* A row as it arrives: rounded through the wire's type. `x` is (hidden) f32
 * whose values the payload type can hold; `out` may be `x`. */
void model_wire(const struct model *model, const float *x, float *out);

/* Round to the payload type. */
float model_round(enum shunt_dtype dtype, float value);

/*
 * The sum over a token's kept assignments in the tree that the header defines,
 * for one element. term(arg, slot) is the value of assignment `slot`, as it is
 * to be added (weighted or not). start: the bias; NULL for none.
 */
float model_sum(const struct model *model, int source, size_t token,
                const float *start, float (*term)(const void *arg, int slot),
                const void *arg);

#endif
