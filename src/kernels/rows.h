// SPDX-License-Identifier: Apache-2.0
/*
 * Row kernels: all operations on the elements of tokens.
 *
 * All instruction sets give the bits of the plain reference. Each element
 * passes through the same f32 operations in the same order, without
 * contraction, whatever the width of the vectors. (A NaN stays a NaN; which of
 * its bits survive is unspecified.)
 */
#ifndef SHUNTI_ROWS_H
#define SHUNTI_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

#include "src/kernels/cpu.h"

/* The place of a term in the reduction tree, relative to the term before it. */
enum shunti_rows_op {
    SHUNTI_ROWS_ADD,  /* same rank: add to the rank's partial sum */
    SHUNTI_ROWS_RANK, /* first term of another rank of the same node */
    SHUNTI_ROWS_NODE, /* first term of another node */
};

struct shunti_rows_term {
    const void *row;
    float weight;
    uint16_t op;   /* enum shunti_rows_op; ignored in the first term */
    uint16_t wide; /* the row is f32 whatever the element type, because another
                      node has summed it */
};

/* Kernels for one element type. Rows need no alignment and must not overlap,
 * except that `bias` may be `y`. */
struct shunti_rows {
    /* y = bias + sum of weight * row, in the canonical tree: terms are added
     * within a rank, ranks within a node, and nodes to the bias. The result is
     * rounded once. bias may be NULL. Without terms y is the bias, or zero.
     * next: the terms of the next call, whose rows are prefetched. */
    void (*sum)(const struct shunti_rows_term *terms, size_t nterms,
                const struct shunti_rows_term *next, size_t nnext,
                const void *bias, void *y, size_t n);
    /* The same without a bias, as unrounded f32. The result is a `wide` term of
     * a sum on another node. */
    void (*partial)(const struct shunti_rows_term *terms, size_t nterms,
                    const struct shunti_rows_term *next, size_t nnext, void *y,
                    size_t n);
    /* dst = weight * src, rounded. */
    void (*scale)(void *dst, const void *src, float weight, size_t n);
    /* The dot product <a, b>: element i is added to lane i % 64 in ascending
     * order. Then lane j += lane j + 32, then + 16, and so on. next: the `b` of
     * the next call, which is prefetched. */
    float (*dot)(const void *a, const void *b, const void *next, size_t n);
    /* dst = src rounded through e4m3, slice by slice (fp8.h). */
    void (*fp8)(void *dst, const void *src, size_t n);
    /* fp8() in two halves. `packed` has the bytes that are sent: codes, then
     * scales, shunti_fp8_bytes() in all. */
    void (*pack)(void *packed, const void *src, size_t n);
    void (*unpack)(void *dst, const void *packed, size_t n);
};

/* The kernels of one instruction set. */
struct shunti_rows_set {
    struct shunti_rows f32;
    struct shunti_rows bf16;
};

/* The kernels for SHUNT_F32 or SHUNT_BF16. */
const struct shunti_rows *shunti_rows(enum shunt_dtype dtype);

/* One element at a time: the reference that all sets must equal. */
extern const struct shunti_rows_set shunti_rows_ref;

extern const struct shunti_rows_set shunti_rows_plain;
extern const struct shunti_rows_set shunti_rows_neon;
extern const struct shunti_rows_set shunti_rows_avx2;
extern const struct shunti_rows_set shunti_rows_avx512;

/* Indexed by enum shunti_isa; NULL for sets of another architecture. */
extern const struct shunti_rows_set *const shunti_rows_sets[SHUNTI_ISA_COUNT];

#endif
