// SPDX-License-Identifier: Apache-2.0
/*
 * Sending tokens to experts and back by MPI, as programs do it today, written
 * to be fast. Programs compare libshunt with this code.
 *
 * Each assignment of a token to an expert has a row. Rows are packed by expert,
 * and so by destination. MPI_Alltoall exchanges the counts, MPI_Alltoallv the
 * rows. Rows arrive ordered by source and expert, and are copied block by block
 * to expert-major order. After the experts have computed, rows are copied back
 * in the same way. So no ids are sent.
 *
 * The caller makes the calls of MPI, and allocates the memory for rows. Expert
 * e is on rank e * ranks / experts.
 */
#ifndef TRAIN_BASELINE_H
#define TRAIN_BASELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

/* The shape of all routings. The caller sets the fields before `bytes`. */
struct baseline {
    int rank, ranks, experts, topk;
    size_t hidden;
    enum shunt_dtype dtype; /* type of rows as sent: SHUNT_BF16 or SHUNT_F32 */
    /* Conversions of n elements, for rows that are sent as bf16 while the
     * experts use f32. NULL: experts use rows as they are sent. */
    void (*widen)(size_t n, const uint16_t *from, float *to);
    void (*narrow)(size_t n, const float *from, uint16_t *to);

    size_t bytes; /* bytes of a row as sent */
    int most;     /* experts of the rank that has most */
    int *first;   /* (ranks + 1) first expert of each rank */
    int *next;    /* (experts) scratch */
    int *at;      /* (ranks) scratch */
    const struct shunti_rows *kernels;
    struct shunti_rows_term *terms; /* (topk) scratch */
};

/* A term of a token's sum. */
struct baseline_term {
    int assignment; /* index in (tokens, topk) */
    uint16_t op;    /* enum shunti_rows_op */
};

/* The plan of a routing. */
struct baseline_plan {
    size_t tokens;
    int *packed;     /* (tokens, topk) packed index of each assignment's row */
    int *send_table; /* (ranks, most) rows sent to each expert, by rank */
    int *recv_table; /* (ranks, most) rows from each rank, by own expert */
    int *send_counts, *send_displs; /* (ranks) rows sent to each rank, and where
                                       they begin */
    int *recv_counts, *recv_displs;
    size_t total; /* rows of this rank's experts */
    /* (tokens, topk) the order in which rows are added. The caller owns this
     * array. NULL: the order of `choice`, without a tree. */
    const struct baseline_term *order;
};

/* Returns false if memory runs out. */
bool baseline_init(struct baseline *b);
/* `b` may be zeroed. */
void baseline_finish(struct baseline *b);

/* Allocates a plan of up to `tokens` tokens. Returns false if memory runs
 * out. */
bool baseline_plan_init(const struct baseline *b, struct baseline_plan *p,
                        size_t tokens);
/* `p` may be zeroed. */
void baseline_plan_finish(struct baseline_plan *p);

/* Counts the rows for each expert, and finds where each row is packed. Next,
 * the caller exchanges `most` ints of each rank: MPI_Alltoall() from send_table
 * to recv_table.
 *
 * choice  (tokens, topk) experts */
void baseline_plan_packing(const struct baseline *b, struct baseline_plan *p,
                           const int32_t *choice, size_t tokens);
/* Finds where rows arrive, from recv_table. Returns false if MPI's int cannot
 * count `total`. */
bool baseline_plan_arrivals(const struct baseline *b, struct baseline_plan *p);

/* Packs one row for each assignment, from rows (tokens, hidden). */
void baseline_pack(const struct baseline *b, const struct baseline_plan *p,
                   const void *rows, void *packed);
/* Packs the gradients of weighted sums, from dy (tokens, hidden). The gradient
 * of a weight is the product of dy with the row that combine returned, so
 * nothing but rows is sent.
 *
 * weight, dweight  (tokens, topk)
 * home             the packed rows that combine received */
void baseline_pack_gradients(const struct baseline *b,
                             const struct baseline_plan *p, const void *dy,
                             const float *weight, const void *home,
                             void *packed, float *dweight);

/* Copies arrived rows to expert-major order, (total, hidden). */
void baseline_to_experts(const struct baseline *b,
                         const struct baseline_plan *p, void *arrived,
                         void *major);
/* Copies rows back, to the order in which they arrived. */
void baseline_from_experts(const struct baseline *b,
                           const struct baseline_plan *p, void *major,
                           void *arrived);

/* y (tokens, hidden) = sum of [weight *] row. weight NULL: a plain sum. */
void baseline_sum(const struct baseline *b, const struct baseline_plan *p,
                  const void *packed, const float *weight, void *y);

#endif
