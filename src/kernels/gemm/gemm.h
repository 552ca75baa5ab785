// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products of f32 matrices, row-major, behind one interface.
 *
 *     nn   C (m, n) [+]= A (m, k)    B (k, n)
 *     nt   C (m, n) [+]= A (m, k)    B (n, k)^T
 *     tn   C (m, n) [+]= A (k, m)^T  B (k, n)
 *
 * In nn and nt the bits of a row of C do not depend on the other rows, nor on
 * their number. A kernel adds over k in ascending order. Either it gives a row
 * the same bits in a block of any height, or it is only used for blocks of one
 * height (the last block is filled up with zero rows). So a token's result
 * depends neither on the other tokens of the batch nor on how tokens are spread
 * over ranks. In tn, which sums over rows, the order is that of the rows, in
 * blocks counted from the first.
 *
 * SHUNTI_GEMM_BF16 rounds each element of A and B to bf16 (nearest even) and
 * multiplies the rounded values. C, and the sums, are f32. A product of two
 * bf16 is exact in f32 (within its range). So after the inputs only the
 * additions are rounded: to nearest even, and in an order that is fixed as
 * above. There are two implementations, which differ in that order:
 *
 * - A CPU with AVX512-BF16 adds over k in pairs, (0, 1), (2, 3), ...,
 *   ascending, and within a pair first the odd element and then the even one.
 *   It takes denormal inputs and sums (below 1.2e-38) as zero. gemm_bf16.h.
 * - Any other CPU rounds into scratch memory, and the f32 products of `backend`
 *   do the rest: no faster than f32.
 *
 * So SHUNTI_GEMM_BF16 gives the same bits on any number of ranks, as f32 does,
 * if the CPUs are of the same kind.
 *
 * This folder is a library of its own, since a backend may be LIBXSMM or a
 * BLAS, which libshunt does not depend on.
 */
#ifndef SHUNTI_GEMM_H
#define SHUNTI_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

enum shunti_gemm_beta { SHUNTI_GEMM_SET = 0, SHUNTI_GEMM_ADD = 1 };
enum shunti_gemm_compute { SHUNTI_GEMM_F32, SHUNTI_GEMM_BF16 };

/* A library that multiplies whole blocks. */
struct shunti_gemm_backend {
    const char *name;

    /* False if the backend cannot run here. Called once in each
     * shunti_gemm_create(). */
    bool (*usable)(void);
    /* In products of nn with n columns, the number of rows must be a multiple
     * of this. */
    size_t (*block)(size_t n);
    /* C (m, n) [+]= A (m, k) B (k, n). `next`, which may be NULL, is the B of
     * the following product, and as large as this B. The backend may prefetch
     * it meanwhile. */
    void (*nn)(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, const float *next,
               enum shunti_gemm_beta beta, float *c, size_t ldc);
    /* A block of nt, transposed: C' (n, nt_rows) [+]= B (n, k) A' (k, nt_rows).
     * n is at least nt_columns and less than twice that. Each element has the
     * bits that nn gives. NULL: the backend has no such product. */
    size_t nt_rows, nt_columns;
    void (*nt)(size_t n, size_t k, const float *a, const float *b, size_t ldb,
               enum shunti_gemm_beta beta, float *c);
    /* C (m, n) += A (k, m)^T B (k, n); k is 256, 64 or 16. */
    void (*tn)(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, float *c, size_t ldc);
};

/* Products for one thread: a backend and its scratch memory. */
struct shunti_gemm;

/*
 * backend    "xsmm", "blas" or "naive"; NULL: the best there is, which for
 *            SHUNTI_GEMM_BF16 is AVX512-BF16 where the CPU has it.
 * no_memory  is called in a product whose scratch memory cannot be had, and
 *            must not return: a product has no way to fail. Scratch is bounded
 *            by the shapes that the caller has in memory anyway.
 *
 * Errors: SHUNT_ERR_INVALID, this build has no such backend;
 * SHUNT_ERR_UNSUPPORTED, it does not run on this CPU; SHUNT_ERR_MEMORY.
 */
enum shunt_status shunti_gemm_create(const char *backend,
                                     enum shunti_gemm_compute compute,
                                     void (*no_memory)(void),
                                     struct shunti_gemm **gemm);
/* `gemm` may be NULL. */
void shunti_gemm_destroy(struct shunti_gemm *gemm);

/* The name of the backend that NULL selects, if that runs here. */
const char *shunti_gemm_default(void);

/* As shunti_gemm_create(), for one given backend. For SHUNTI_GEMM_BF16 also
 * with a given tile; if that is NULL, inputs are rounded. */
struct shunti_bf16_tile;
enum shunt_status
shunti_gemm_create_f32(const struct shunti_gemm_backend *backend,
                       void (*no_memory)(void), struct shunti_gemm **gemm);
enum shunt_status
shunti_gemm_create_bf16(const struct shunti_gemm_backend *backend,
                        const struct shunti_bf16_tile *tile,
                        void (*no_memory)(void), struct shunti_gemm **gemm);

/* The name of the backend or tile that multiplies. */
const char *shunti_gemm_name(const struct shunti_gemm *gemm);
/* The tile that multiplies bf16. NULL: f32 products do. */
const struct shunti_bf16_tile *shunti_gemm_tile(const struct shunti_gemm *gemm);
/* Describe the backend and the rounding in words: "xsmm, of inputs rounded to
 * bf16". */
void shunti_gemm_describe(const struct shunti_gemm *gemm, char *to,
                          size_t room);
/* Floating-point operations done so far. */
double shunti_gemm_flops(const struct shunti_gemm *gemm);

/* lda, ldb, ldc: elements between rows. C overlaps neither A nor B. */
void shunti_gemm_nn(struct shunti_gemm *gemm, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    enum shunti_gemm_beta beta, float *c, size_t ldc);
void shunti_gemm_nt(struct shunti_gemm *gemm, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    enum shunti_gemm_beta beta, float *c, size_t ldc);
void shunti_gemm_tn(struct shunti_gemm *gemm, size_t m, size_t n, size_t k,
                    const float *a, size_t lda, const float *b, size_t ldb,
                    enum shunti_gemm_beta beta, float *c, size_t ldc);

/* One of several products. If m is 0, only `m` is read. */
struct shunti_gemm_item {
    size_t m;
    const float *a, *b;
    float *c;
};

/* shunti_gemm_nn() of each item, with the same bits. For many B with few rows
 * each, as those of experts. The next B is fetched into the cache while one is
 * multiplied. No C may overlap an A or a B of any item, or another C. */
void shunti_gemm_grouped_nn(struct shunti_gemm *gemm,
                            const struct shunti_gemm_item *items, size_t count,
                            size_t n, size_t k, size_t lda, size_t ldb,
                            enum shunti_gemm_beta beta, size_t ldc);

extern const struct shunti_gemm_backend
    shunti_gemm_naive; /* the reference; always available */
extern const struct shunti_gemm_backend shunti_gemm_blas;
extern const struct shunti_gemm_backend shunti_gemm_xsmm;

#endif
