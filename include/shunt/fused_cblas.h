// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Tiles of a product of f32 matrices by cblas_sgemm(), for the fused calls
 * (fused.h).
 *
 * Include the header of your BLAS first:
 *
 *     #include <cblas.h>
 *     #include <shunt/fused_cblas.h>
 *
 *     struct shunt_cblas_product product = {
 *         .k = k, .a = a, .lda = k, .b = b, .ldb = n};
 *     struct shunt_gemm_reduce_scatter_args args = {
 *         .size = sizeof(args), .rows = m, .cols = n,
 *         .tile = shunt_cblas_tile, .arg = &product, ... };
 *
 * For shunt_allgather_gemm() `a` is `gathered`, and row_bytes is k floats.
 *
 * Everything here is inline: libshunt needs no BLAS.
 */
#ifndef SHUNT_FUSED_CBLAS_H
#define SHUNT_FUSED_CBLAS_H

#include <stddef.h>

/** The product C (rows, cols) = op(A) op(B), row-major. k, lda and ldb are
 * passed to cblas_sgemm(), so they must fit in its integers. */
struct shunt_cblas_product {
    size_t k;        /* columns of op(A), rows of op(B) */
    const float *a;  /* (rows, k); transposed: (k, rows) */
    size_t lda;      /* elements between rows of a */
    int transpose_a; /* not 0: op(A) is its transpose */
    const float *b;  /* (k, cols); transposed: (cols, k) */
    size_t ldb;      /* elements between rows of b */
    int transpose_b; /* not 0: op(B) is its transpose */
};

/** Compute a tile: a function for `tile`, with a struct shunt_cblas_product as
 * `arg`. */
static inline void shunt_cblas_tile(void *arg, size_t row, size_t rows,
                                    size_t col, size_t cols, float *out,
                                    size_t ld)
{
#ifdef __cplusplus
    const struct shunt_cblas_product *p =
        static_cast<const struct shunt_cblas_product *>(arg);
#else
    const struct shunt_cblas_product *p =
        (const struct shunt_cblas_product *)arg;
#endif
#ifdef __cplusplus
#define SHUNT_CBLAS_INT(n) static_cast<int>(n)
#elif !defined(DOXYGEN) /* of this file only */
#define SHUNT_CBLAS_INT(n) ((int)(n))
#endif

    cblas_sgemm(
        CblasRowMajor, p->transpose_a ? CblasTrans : CblasNoTrans,
        p->transpose_b ? CblasTrans : CblasNoTrans, SHUNT_CBLAS_INT(rows),
        SHUNT_CBLAS_INT(cols), SHUNT_CBLAS_INT(p->k), 1.0f,
        p->a + row * (p->transpose_a ? 1 : p->lda), SHUNT_CBLAS_INT(p->lda),
        p->b + col * (p->transpose_b ? p->ldb : 1), SHUNT_CBLAS_INT(p->ldb),
        0.0f, out, SHUNT_CBLAS_INT(ld));
#undef SHUNT_CBLAS_INT
}

#endif
