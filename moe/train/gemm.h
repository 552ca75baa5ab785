// SPDX-License-Identifier: Apache-2.0
//
// Matrix products, f32, row-major, behind one interface.
//
//     nn   C (m, n) [+]= A (m, k)    B (k, n)
//     nt   C (m, n) [+]= A (m, k)    B (n, k)^T
//     tn   C (m, n) [+]= A (k, m)^T  B (k, n)
//
// In nn and nt a row of C has the same bits whatever the other rows are, and
// however many: rows are computed in blocks of one fixed height by one kernel
// (the last block is filled up with zero rows), and the kernel adds over k in
// ascending order. So a token's result does not depend on who else is in the
// batch, nor on how tokens are spread over ranks. In tn, which sums over rows,
// the order is that of the rows, in blocks counted from the first.
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

enum gemm_beta { GEMM_SET = 0, GEMM_ADD = 1 };

// What a library has to offer: products of whole blocks.
struct gemm_backend {
    const char *name;
    size_t block; // rows of a block in nn

    // False if it cannot run here. Called once in each gemm_create().
    bool (*usable)(void);
    // C (blocks * block, n) [+]= A (blocks * block, k) B (k, n)
    void (*nn)(size_t blocks, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, enum gemm_beta beta, float *c,
               size_t ldc);
    // C (m, n) += A (k, m)^T B (k, n); k is 256, 64 or 16.
    void (*tn)(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, float *c, size_t ldc);
};

// Products for one thread: a backend and its scratch memory.
struct gemm;

// backend  "xsmm", "blas" or "naive"; NULL: the best there is.
// Returns 0, or -1 with train_error_text().
int gemm_create(const char *backend, struct gemm **gemm);
int gemm_create_with(const struct gemm_backend *backend, struct gemm **gemm);
void gemm_destroy(struct gemm *gemm);

const char *gemm_name(const struct gemm *gemm);
// Floating-point operations done so far.
double gemm_flops(const struct gemm *gemm);

// lda, ldb, ldc: elements between rows. C overlaps neither A nor B.
void gemm_nn(struct gemm *gemm, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
             float *c, size_t ldc);
void gemm_nt(struct gemm *gemm, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
             float *c, size_t ldc);
void gemm_tn(struct gemm *gemm, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
             float *c, size_t ldc);

extern const struct gemm_backend gemm_naive; // reference; always there
extern const struct gemm_backend gemm_blas;
extern const struct gemm_backend gemm_xsmm;

#endif
