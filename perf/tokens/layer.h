// SPDX-License-Identifier: Apache-2.0
/*
 * A mixture-of-experts layer to be measured: its computations and its
 * exchanges. It runs forward with one micro-batch and backward with another,
 * layer after layer. All layers have the same weights, so the layers' gradients
 * of a weight are summed.
 *
 *     x2 = x1 + (x1 Wa) Wb                               in place of attention
 *     y  = x2 + (x2 S1) S2 + sum of weight * (x2 W1) W2  shared expert, experts
 *
 * Letters: T tokens and N rows of this rank, D hidden width, A width of
 * attention, S and F inner widths of the shared expert and of the other
 * experts.
 */
#ifndef SHUNT_PERF_LAYER_H
#define SHUNT_PERF_LAYER_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe_parts.h>

#include "perf/tokens/moe_bench.h"
#include "src/kernels/gemm/gemm.h"

enum layer_op {
    LAYER_ATTN_F,
    LAYER_SHARED_F,
    LAYER_MLP_F,
    LAYER_MLP_B,
    LAYER_MLP_DW,
    LAYER_SHARED_B,
    LAYER_SHARED_DW,
    LAYER_ATTN_B,
    LAYER_ATTN_DW,
    LAYER_OPS,
};

enum layer_exchange {
    LAYER_DISPATCH_F,
    LAYER_COMBINE_F,
    LAYER_COMBINE_B,
    LAYER_DISPATCH_B,
    LAYER_EXCHANGES,
};

enum { LAYER_PARTS = PERF_MAX_LAYER_PARTS };

struct layer_shape {
    size_t T, D, F, S, A;
};

/* Weights, or their gradients. */
struct layer_weights {
    float *wa, *wb; /* (D, A), (A, D) */
    float *s1, *s2; /* (D, S), (S, D) */
    float *w1, *w2; /* (experts, D, F) and (experts, F, D) of this rank */
};

struct layer {
    const struct perf_bench *bench;
    struct layer_shape shape;
    struct shunti_gemm *gemm;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan[2]; /* forward and backward, with the same
                                     * routing */
    struct shunt_moe_rows at;       /* the rows of either plan */
    int parts;                      /* number of parts of an exchange */
    struct shunt_moe_part_rows part[LAYER_PARTS]; /* the parts of either plan */
    /* A product for each range of a part, which has at most at.local_experts *
     * ranks ranges. */
    struct shunti_gemm_item *items;
    struct layer_weights w, dw;
    size_t nweights; /* floats of w, or of dw: packed, from wa on */

    /* Values of the forward pass: f of the current layer, and b of an earlier
     * one, kept for its backward pass. */
    struct layer_kept {
        float *x1, *x2;    /* (T, D) */
        float *ah;         /* (T, A) */
        float *shid;       /* (T, S) */
        float *rows, *out; /* (N, D) buffers of the plan */
        float *hid;        /* (N, F) */
    } f, b;
    float *sh, *yr; /* (T, D) */

    /* Backward. Some arrays exist twice: the next layer's exchanges write one
     * while this layer still reads the other. */
    float *dy[2];           /* (T, D) */
    float *dout[2];         /* (N, D) */
    float *drows;           /* (N, D) a buffer of the plan */
    float *dhid;            /* (N, F) */
    float *dshid;           /* (T, S) */
    float *dxs, *dxr, *dx2; /* (T, D) */
    float *dah;             /* (T, A) */
    float *dweight;         /* (T, K) */

    struct shunt_request *request[LAYER_EXCHANGES][LAYER_PARTS];
};

/* The widths of a layer. `inner` is the inner width of an expert, and of the
 * shared expert. The width of attention is such that attention is `share` of
 * the products. */
struct layer_shape layer_shape(const struct perf_options *o, size_t tokens,
                               size_t inner, double share);

/* Create a layer in one part. Collective. Runs forward once, to fill in what
 * backward needs. */
void layer_open(struct layer *layer, const struct perf_bench *bench,
                const struct layer_shape *shape);
void layer_close(struct layer *layer);

/* Cut exchanges into `parts` parts, or by SHUNT_MOE_PARTS_AUTO. Collective. */
void layer_cut(struct layer *layer, int parts);

/* Begin a chain of layers: set inputs to their first values and gradients to
 * zero, and poison the outputs. */
void layer_reset(struct layer *layer);

/* One computation, or the start or end of one exchange, of layer number `l` of
 * the chain. A wait for an exchange that was not started returns at once.
 * `part` selects one part of the experts or of an exchange; LAYER_WHOLE: all of
 * it, however the layer is cut. */
enum { LAYER_WHOLE = -1 };
void layer_compute(struct layer *layer, enum layer_op op, int part, int l);
void layer_start(struct layer *layer, enum layer_exchange exchange, int part,
                 int l);
void layer_wait(struct layer *layer, enum layer_exchange exchange, int part);

/* After a chain: compute the output of forward, (T, D), into f.x1. */
void layer_finish_forward(struct layer *layer);

/* The kinds of weights. They are generated, so that a rank can compute those of
 * others. */
enum layer_kind {
    LAYER_KIND_WA,
    LAYER_KIND_WB,
    LAYER_KIND_S1,
    LAYER_KIND_S2,
    LAYER_KIND_W1,
    LAYER_KIND_W2,
};
/* Element i of a matrix with `rows` rows. `expert` is 0 for weights that have
 * no expert. */
double layer_weight(const struct layer *layer, enum layer_kind kind, int expert,
                    size_t rows, size_t i);

/* Check some tokens' results of a chain of `layers` layers against the
 * definition in f64. Returns the number of wrong elements. */
double layer_check(const struct layer *layer, int layers);
/* Check yr in the same way: the sums of only the experts' results for x2. */
double layer_check_experts(const struct layer *layer);

#endif
