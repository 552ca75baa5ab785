// SPDX-License-Identifier: Apache-2.0
/*
 * The interface by which the model sends rows to experts and gets results back:
 * the part of libshunt's MoE calls that it needs, in f32. A routing, of which
 * there is one for each layer of each micro-batch, has a number.
 * exchange_shunt.c is the implementation for training; the unit tests have one
 * without ranks, to check layers and model separately.
 */
#ifndef TRAIN_EXCHANGE_H
#define TRAIN_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

/* The rows that this rank's experts get in one routing, expert-major: row i of
 * expert j is offset[j] + i. */
struct exchange_rows {
    size_t experts;        /* of this rank */
    const int32_t *expert; /* (experts) their ids, ascending */
    const size_t *count;   /* (experts) rows */
    const size_t *offset;  /* (experts + 1) first row of each */
    size_t total;          /* offset[experts] */

    /* (total, D): the exchange's own, valid until the routing is planned again */
    float *rows;  /* experts' input, written by dispatch */
    float *out;   /* experts' output, read by combine and combine_backward */
    float *dout;  /* gradient of out, written by combine_backward */
    float *drows; /* gradient of rows, read by dispatch_backward */
};

struct exchange;

/* All calls but wait are collective. They return 0, or -1 with
 * train_error_text().
 *
 * A _start call returns at once, and wait() ends it. What it reads and writes is
 * its own until then. Of a routing one such call is under way at a time. */
struct exchange_ops {
    /* Zeroed memory for rows that are dispatched from; lives as long as the
     * exchange. NULL: train_error_text(). */
    float *(*memory)(struct exchange *x, size_t floats);
    /* choice (tokens, K), weight (tokens, K): copied. */
    int (*plan)(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, struct exchange_rows *rows);
    /* from (tokens, D) -> rows */
    int (*dispatch_start)(struct exchange *x, size_t routing,
                          const float *from);
    /* out -> y (tokens, D) = sum of weight * out */
    int (*combine_start)(struct exchange *x, size_t routing, float *y);
    /* dy (tokens, D), out -> dout, dweight (tokens, K) */
    int (*combine_backward_start)(struct exchange *x, size_t routing,
                                  const float *dy, float *dweight);
    /* drows -> dx (tokens, D) = sum of drows */
    int (*dispatch_backward_start)(struct exchange *x, size_t routing,
                                   float *dx);
    int (*wait)(struct exchange *x, size_t routing);
    /* The routing is no longer needed. Not a collective, cannot fail. */
    void (*release)(struct exchange *x, size_t routing);
};

/* The first member of every implementation. */
struct exchange {
    const struct exchange_ops *ops;
};

#endif
