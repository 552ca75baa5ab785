// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products as three loops: the reference of the tests, and the fallback
 * on a machine with neither LIBXSMM nor a CBLAS.
 */
#include "src/kernels/gemm/gemm.h"

#include <string.h>

static bool usable(void)
{
    return true;
}

static size_t block(size_t n)
{
    (void)n;
    return 1;
}

static void nn(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, const float *next,
               enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    (void)next;
    for (size_t i = 0; i < m; i++, a += lda, c += ldc) {
        if (beta == SHUNTI_GEMM_SET)
            memset(c, 0, n * sizeof(float));
        for (size_t p = 0; p < k; p++)
            for (size_t j = 0; j < n; j++)
                c[j] += a[p] * b[p * ldb + j];
    }
}

static void tn(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, float *c, size_t ldc)
{
    for (size_t p = 0; p < k; p++, a += lda, b += ldb)
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                c[i * ldc + j] += a[i] * b[j];
}

const struct shunti_gemm_backend shunti_gemm_naive = {
    .name = "naive",
    .usable = usable,
    .block = block,
    .nn = nn,
    .tn = tn,
};
