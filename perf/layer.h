// SPDX-License-Identifier: Apache-2.0
/*
 * A mixture-of-experts layer to be measured: what it computes and what it
 * exchanges, forward with one micro-batch and backward with another, layer after
 * layer (with the same weights, whose gradients add up).
 *
 *     x2 = x1 + (x1 Wa) Wb                    attention's stand-in
 *     y  = x2 + (x2 S1) S2 + sum of weight * (x2 W1) W2     shared and experts
 *
 * Letters: T tokens and N rows of this rank, D hidden, A attention's width, S and
 * F inner widths of the shared expert and of the others.
 */
#ifndef SHUNT_PERF_LAYER_H
#define SHUNT_PERF_LAYER_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/moe_parts.h>

#include "perf/moe_bench.h"
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
    float *w1, *w2; /* (experts of this rank, D, F) and (..., F, D) */
};

struct layer {
    const struct perf_bench *bench;
    struct layer_shape shape;
    struct shunti_gemm *gemm;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan[2]; /* forward, backward: the same routing */
    struct shunt_moe_rows at;       /* of either */
    int parts;                      /* that the exchanges may be cut into */
    struct shunt_moe_part_rows part[LAYER_PARTS]; /* of either plan */
    /* (at.local_experts * ranks), as many as a part has ranges */
    struct shunti_gemm_item *items;
    struct layer_weights w, dw;
    size_t nweights; /* floats of each, one behind the other from wa on */

    /* Forward. Kept for backward, too, of a layer that ran before. */
    struct layer_kept {
        float *x1, *x2;    /* (T, D) */
        float *ah;         /* (T, A) */
        float *shid;       /* (T, S) */
        float *rows, *out; /* (N, D) the plan's */
        float *hid;        /* (N, F) */
    } f, b;
    float *sh, *yr; /* (T, D) */

    /* Backward. What an exchange of the next layer writes while it is still
     * read for this one is there twice. */
    float *dy[2];           /* (T, D) */
    float *dout[2];         /* (N, D) */
    float *drows;           /* (N, D) the plan's */
    float *dhid;            /* (N, F) */
    float *dshid;           /* (T, S) */
    float *dxs, *dxr, *dx2; /* (T, D) */
    float *dah;             /* (T, A) */
    float *dweight;         /* (T, K) */

    struct shunt_request *request[LAYER_EXCHANGES][LAYER_PARTS];
};

/* The widths: `inner` of an expert and of the shared one, and attention's so that
 * it is `share` of the products. */
struct layer_shape layer_shape(const struct perf_options *o, size_t tokens,
                               size_t inner, double share);

/* Collective. What backward needs is of a forward pass that has been run. One
 * part. */
void layer_open(struct layer *layer, const struct perf_bench *bench,
                const struct layer_shape *shape);
void layer_close(struct layer *layer);

/* Cut exchanges into so many parts, or by SHUNT_MOE_PARTS_AUTO. Collective. */
void layer_cut(struct layer *layer, int parts);

/* Begin a chain of layers: inputs as at first, gradients zero, outputs poisoned. */
void layer_reset(struct layer *layer);

/* Number `l` of the chain. An exchange is started, and waited for later; the
 * wait for one that was never started returns at once. Of experts and exchanges
 * a part, or all of them (LAYER_WHOLE), whatever the layer is cut into. */
enum { LAYER_WHOLE = -1 };
void layer_compute(struct layer *layer, enum layer_op op, int part, int l);
void layer_start(struct layer *layer, enum layer_exchange exchange, int part,
                 int l);
void layer_wait(struct layer *layer, enum layer_exchange exchange, int part);

/* After a chain: the output of forward, (T, D), in x1. */
void layer_finish_forward(struct layer *layer);

/* Each kind of weights, so that a rank can compute those of others. */
enum layer_kind {
    LAYER_KIND_WA,
    LAYER_KIND_WB,
    LAYER_KIND_S1,
    LAYER_KIND_S2,
    LAYER_KIND_W1,
    LAYER_KIND_W2,
};
/* Element i of a matrix of so many rows; of the only expert: 0. */
double layer_weight(const struct layer *layer, enum layer_kind kind, int expert,
                    size_t rows, size_t i);

/* Elements of some tokens' results that differ from the definition in f64, after
 * a chain of so many layers. */
double layer_check(const struct layer *layer, int layers);
/* Likewise of what the experts alone make of x2, in yr. */
double layer_check_experts(const struct layer *layer);

#endif
