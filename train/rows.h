// SPDX-License-Identifier: Apache-2.0
/*
 * What the model keeps for each row of a batch, and the views that micro-batches
 * have of it. Letters and shapes as in layers.h.
 */
#ifndef TRAIN_ROWS_H
#define TRAIN_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "train/exchange.h"
#include "train/layout.h"

/* What is kept of a layer between forward and backward. */
struct activations {
    float *x1;         /* (R, D) input */
    float *inv1;       /* (R) */
    float *h1;         /* (R, D) normalised */
    float *qkv;        /* (R, 3 D) rotated */
    float *p;          /* (B, H, T, T) */
    float *att;        /* (R, D) */
    float *x2;         /* (R, D) after attention */
    float *inv2;       /* (R) */
    float *h2;         /* (R, D) normalised; the exchange's memory */
    float *probs;      /* (R, E) */
    float *lse;        /* (R) */
    int32_t *choice;   /* (R, K) */
    float *weight;     /* (R, K) */
    float *shared_hid; /* (R, 2 S) */
    float *shared_act; /* (R, S) */
};

struct rows {
    struct activations *act; /* (L) */

    float *x_out;   /* (R, D) after the last layer */
    float *inv_out; /* (R) */
    float *h_out;   /* (R, D) */
    float *probs;   /* (R, V) logits, then probabilities */
    float *loss;    /* (R) */

    float *dx;        /* (R, D) the exchange's memory */
    float *dh, *dtmp; /* (R, D) */
    float *dproj;     /* (R, D) gradient of what attention added */
    float *dqkv;      /* (R, 3 D) */
    float *dlogits;   /* (R, E) */
    float *dweight;   /* (R, K) */
    float *dshared_hid, *dshared_act; /* (R, 2 S), (R, S) */
};

/* Memory for R rows. 0, or -1 with train_error_text(). */
int rows_create(const struct model_config *c, size_t R,
                struct exchange *exchange, struct rows *rows);
void rows_destroy(const struct model_config *c, struct rows *rows);

/* The rows from `first` on: pointers into those of `all`. view->act (L) is the
 * caller's. */
void rows_from(const struct model_config *c, const struct rows *all,
               size_t first, struct rows *view);

#endif
