// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of f32 matrices, row-major, behind one interface.
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
//
// GEMM_BF16 rounds each element of A and B to bf16 (nearest even) and computes
// with what comes out. C, and the sums, are f32. A product of two bf16 is exact
// in f32 (within its range), so all that is rounded after the inputs is each
// addition: to nearest even, and in an order that is fixed as above. There are
// two ways, and they differ in that order:
//
// - A CPU with AVX512-BF16 adds over k in pairs, (0, 1), (2, 3), ..., ascending,
//   and within a pair first the odd element and then the even one. It takes
//   denormal inputs and sums (below 1.2e-38) as zero. gemm_bf16.h.
// - Any other CPU rounds into scratch memory, and the f32 products of `backend`
//   do the rest: no faster than f32.
//
// So GEMM_BF16 has the same bits on any number of ranks as f32 has: on CPUs of
// the same kind.
#ifndef TRAIN_GEMM_H
#define TRAIN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

enum gemm_beta { GEMM_SET = 0, GEMM_ADD = 1 };
enum gemm_compute { GEMM_F32, GEMM_BF16 };

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

// backend  "xsmm", "blas" or "naive"; NULL: the best there is, which for
//          GEMM_BF16 is AVX512-BF16 where the CPU has it.
// Returns 0, or -1 with train_error_text().
int gemm_create(const char *backend, enum gemm_compute compute,
                struct gemm **gemm);
void gemm_destroy(struct gemm *gemm);

// The same by one backend, and for GEMM_BF16 by a tile; without one (NULL) by
// rounding.
struct bf16_tile;
int gemm_create_f32(const struct gemm_backend *backend, struct gemm **gemm);
int gemm_create_bf16(const struct gemm_backend *backend,
                     const struct bf16_tile *tile, struct gemm **gemm);

// What multiplies: a backend or a tile.
const char *gemm_name(const struct gemm *gemm);
// By whose instruction for bf16? NULL: in f32.
const struct bf16_tile *gemm_tile(const struct gemm *gemm);
// All of that in words: "xsmm, of inputs rounded to bf16".
void gemm_describe(const struct gemm *gemm, char *to, size_t room);
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
