// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products with any CBLAS: the portable fallback. Each block of rows is
 * one call, because a BLAS picks its kernel, and with it the order of sums, by
 * the number of rows. Blocks are low, because all rows of a block must be
 * treated alike. In blocks of 12 or more rows, OpenBLAS' kernels for Haswell
 * and Zen sum the last rows in another order than the first rows. (The tests
 * would detect a BLAS that does so with 8 rows.) OpenBLAS is set to start no
 * threads, because there is a rank for each core already.
 */
#include "src/kernels/gemm/gemm.h"

#include <cblas.h>
#include <pthread.h>

enum { BLOCK = 8 };

static pthread_once_t once = PTHREAD_ONCE_INIT;

#ifdef SHUNTI_HAVE_OPENBLAS
void openblas_set_num_threads(int threads);
#endif

static void init(void)
{
#ifdef SHUNTI_HAVE_OPENBLAS
    openblas_set_num_threads(1);
#endif
}

static bool usable(void)
{
    pthread_once(&once, init);
    return true;
}

static size_t block(size_t n)
{
    (void)n;
    return BLOCK;
}

static void nn(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, const float *next,
               enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    (void)next;
    for (size_t i = 0; i < m; i += BLOCK)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, BLOCK, (int)n,
                    (int)k, 1.0f, a + i * lda, (int)lda, b, (int)ldb,
                    beta == SHUNTI_GEMM_ADD ? 1.0f : 0.0f, c + i * ldc,
                    (int)ldc);
}

static void tn(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)k,
                1.0f, a, (int)lda, b, (int)ldb, 1.0f, c, (int)ldc);
}

const struct shunti_gemm_backend shunti_gemm_blas = {
    .name = "blas",
    .usable = usable,
    .block = block,
    .nn = nn,
    .tn = tn,
};
