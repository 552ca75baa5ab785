// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of the model for each row of a batch, and the views that
 * micro-batches have of it. Letters and shapes as in layers.h. With tensor
 * parallelism P ranks share attention and the shared expert. In these modules
 * each rank has all P R rows of the group, but only its shard's part of their
 * elements: as many floats as without tensor parallelism.
 */
#ifndef TRAIN_ROWS_H
#define TRAIN_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "train/exchange/exchange.h"
#include "train/memory/memory.h"
#include "train/parameters/layout.h"

/* Arrays that a layer keeps between forward and backward. */
struct activations {
    float *x1;      /* (R, D) input */
    float *inv1;    /* (R) */
    float *h1;      /* (R, D) normalized */
    float *h1_all;  /* (P R, D) h1 of all ranks in the group; P = 1: h1 */
    float *qkv;     /* (P R, (H + 2 KV) W / P) rotated, and q scaled */
    float *att_lse; /* (P B, H / P, T) log2-sum-exp of attention's scores */
    float *att;     /* (P R, H W / P) */
    float *x2;      /* (R, D) after attention is added */
    float *inv2;    /* (R) */
    float *h2;      /* (R, D) normalized; memory of the exchange */
    /* the router's fields, in layers with experts */
    float *logits;     /* (R, width) if the gate keeps logits */
    float *probs;      /* (R, E) */
    float *lse;        /* (R) */
    int32_t *choice;   /* (R, K) */
    int32_t *counted;  /* (R, K) if the gate counts other experts */
    float *weight;     /* (R, K) */
    float *h2_all;     /* (P R, D) h2 of all ranks in the group; P = 1: h2 */
    float *shared_hid; /* (P R, 2 S / P) */
    float *shared_act; /* (P R, S / P) */
};

enum { ROWS_FIELDS = 20, ROWS_SLOTS = 2 };

struct rows {
    struct activations *act; /* (L) */
    /* Memory shared by the layers that do not keep a field, used in turn. With
     * two slots one can be copied while the other is used. */
    void *scratch[ROWS_FIELDS][ROWS_SLOTS];

    float *x_out;   /* (R, D) after the last layer */
    float *inv_out; /* (R) */
    float *h_out;   /* (R, D) */
    float *probs;   /* (R, V) logits, then probabilities */
    float *loss;    /* (R) */

    float *dx;      /* (R, D) memory of the exchange */
    float *dh;      /* (R, D) */
    float *dtmp;    /* (R, D) or (P R, H W / P) */
    float *dx_all;  /* (P R, D) dx of all ranks in the group; P = 1: dx */
    float *dproj;   /* (P R, D) gradient of what attention added */
    float *dqkv;    /* shape of qkv */
    float *dlogits; /* (R, width) */
    float *dweight; /* (R, K) */
    float *dshared_hid, *dshared_act; /* (P R, 2 S / P), (P R, S / P) */
};

/* Allocates memory for R rows, and for P R rows where shards need it. Memory of
 * activations is counted in `count`. 0, or -1 with train_error_text(). */
int rows_create(const struct model_config *c, size_t R, size_t P,
                const struct memory_plan *plan, struct exchange *exchange,
                struct memory_count *count, struct rows *rows);
void rows_destroy(const struct model_config *c, const struct memory_plan *plan,
                  struct rows *rows);
/* Bytes that rows_create() allocates if all is kept. They do not depend on the
 * length of sequences. */
size_t rows_bytes(const struct model_config *c, size_t R, size_t P);

/* Bytes of a row in all fields of a layer's module; in the fields of the head;
 * and in all scratch memory of a module. */
size_t rows_module_bytes(const struct model_config *c, size_t layer, size_t P,
                         enum memory_module module);
size_t rows_head_bytes(const struct model_config *c);
size_t rows_scratch_bytes(const struct model_config *c, size_t P,
                          const struct memory_plan *plan,
                          enum memory_module module);

/* Lists the fields in `of` that belong to a module of a layer, each with memory
 * for R rows. Returns their number, at most ROWS_FIELDS. */
struct rows_part {
    void *data;
    size_t bytes;
};
size_t rows_parts(const struct model_config *c, size_t layer, size_t P,
                  enum memory_module module, const struct activations *of,
                  size_t R, struct rows_part *parts);

/* Makes a view of the rows from `first` on: pointers into the memory of `all`.
 * view->act (L) is the caller's. */
void rows_from(const struct model_config *c, size_t P, const struct rows *all,
               size_t first, struct rows *view);

#endif
