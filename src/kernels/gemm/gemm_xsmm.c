// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products with LIBXSMM, which writes a kernel for each shape at run
 * time (Heinecke, Henry, Hutchinson, Pabst: "LIBXSMM", SC 2016), for the CPU it
 * runs on. LIBXSMM is column-major: the row-major C = A B here is its C' = B'
 * A'. So LIBXSMM's m is this file's n, and LIBXSMM vectorizes over the columns
 * of this file.
 *
 * Kernels are looked up for each product: LIBXSMM keeps them in a table of its
 * own, which is safe to use from any thread once initialized.
 */
#include "src/kernels/gemm/gemm.h"

#include <libxsmm.h>
#include <pthread.h>

enum {
    BLOCK = 16,
    VECTOR = 16, /* floats in a vector, at most: AVX-512 */
    GROUP = 4 * VECTOR,
    /* B is read in panels of columns that stay in the second-level cache for
     * all rows. */
    PANEL_FLOATS = 64 * 1024,
    COLUMNS = 64, /* columns of C in one step of nt */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static libxsmm_smmfunction fetching(size_t m, size_t n, size_t k, size_t lda,
                                    size_t ldb, size_t ldc, int add, int flags,
                                    int prefetch)
{
    const libxsmm_blasint a = (libxsmm_blasint)lda, b = (libxsmm_blasint)ldb;
    const libxsmm_blasint c = (libxsmm_blasint)ldc;
    const float alpha = 1.0f, beta = add ? 1.0f : 0.0f;

    return libxsmm_smmdispatch((libxsmm_blasint)m, (libxsmm_blasint)n,
                               (libxsmm_blasint)k, &a, &b, &c, &alpha, &beta,
                               &flags, &prefetch);
}

static libxsmm_smmfunction kernel(size_t m, size_t n, size_t k, size_t lda,
                                  size_t ldb, size_t ldc, int add, int flags)
{
    return fetching(m, n, k, lda, ldb, ldc, add, flags,
                    LIBXSMM_GEMM_PREFETCH_NONE);
}

static bool usable(void)
{
    pthread_once(&once, libxsmm_init);
    /* LIBXSMM has no code generator for CPUs without AVX, nor for other
     * architectures. */
    return kernel(16, BLOCK, 16, 16, 16, 16, 0, LIBXSMM_GEMM_FLAG_NONE) &&
           kernel(16, 16, 16, 16, 16, 16, 1, LIBXSMM_GEMM_FLAG_TRANS_B);
}

/*
 * The number of columns of the next kernel, of `n` that are left. If the
 * remainder of groups of 64 has up to 16 columns, LIBXSMM 1.17 with AVX-512
 * adds several partial sums over k in some rows of a block. So LIBXSMM gets no
 * such remainder.
 */
static size_t panel(size_t n, size_t k)
{
    size_t width = PANEL_FLOATS / (k ? k : 1) / GROUP * GROUP;

    if (width < GROUP)
        width = GROUP;
    if (width < n)
        return width;
    if (n > GROUP && n % GROUP > 0 && n % GROUP <= VECTOR)
        return n - n % GROUP - VECTOR;
    return n;
}

/* The height of blocks. With up to 16 columns, LIBXSMM adds partial sums in
 * some rows of a block, and the height decides in which. */
static size_t block(size_t n)
{
    return n > VECTOR ? 1 : BLOCK;
}

/* Panels of B are read in strides of a row, often a page each, which no
 * hardware prefetcher follows. So the last kernel of a panel fetches the next
 * one. */
static void nn(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, const float *next,
               enum shunti_gemm_beta beta, float *c, size_t ldc)
{
    const int flags = LIBXSMM_GEMM_FLAG_NONE;
    const size_t whole = m < 2 * BLOCK ? 0 : (m / BLOCK - 1) * BLOCK;
    libxsmm_smmfunction f = NULL, last;
    size_t w;

    for (size_t j = 0; j < n; j += w) {
        const float *then;

        w = panel(n - j, k);
        then = j + w < n ? b + j + w : next;
        if (whole > 0)
            f = kernel(w, BLOCK, k, ldb, lda, ldc, beta, flags);
        last = fetching(w, m - whole, k, ldb, lda, ldc, beta, flags,
                        then ? LIBXSMM_GEMM_PREFETCH_AL2
                             : LIBXSMM_GEMM_PREFETCH_NONE);
        if ((whole > 0 && !f) || !last) {
            /* no kernel for this shape: use the same order, slowly */
            shunti_gemm_naive.nn(m, w, k, a, lda, b + j, ldb, NULL, beta, c + j,
                                 ldc);
            continue;
        }
        for (size_t i = 0; i < whole; i += BLOCK)
            f(b + j, a + i * lda, c + i * ldc + j);
        last(b + j, a + whole * lda, c + whole * ldc + j, then, a + whole * lda,
             c + whole * ldc + j);
    }
}

/* The rows of the block are the elements of a vector, and B is read without a
 * copy. With few columns LIBXSMM would add several partial sums over k. */
static void nt(size_t n, size_t k, const float *a, const float *b, size_t ldb,
               enum shunti_gemm_beta beta, float *c)
{
    libxsmm_smmfunction f =
        kernel(BLOCK, n, k, BLOCK, ldb, BLOCK, beta, LIBXSMM_GEMM_FLAG_NONE);

    if (f)
        f(a, b, c);
    else
        shunti_gemm_naive.nn(n, BLOCK, k, b, ldb, a, BLOCK, NULL, beta, c,
                             BLOCK);
}

static void tn(size_t m, size_t n, size_t k, const float *a, size_t lda,
               const float *b, size_t ldb, float *c, size_t ldc)
{
    libxsmm_smmfunction f =
        kernel(n, m, k, ldb, lda, ldc, 1, LIBXSMM_GEMM_FLAG_TRANS_B);

    if (f)
        f(b, a, c);
    else
        shunti_gemm_naive.tn(m, n, k, a, lda, b, ldb, c, ldc);
}

const struct shunti_gemm_backend shunti_gemm_xsmm = {
    .name = "xsmm",
    .usable = usable,
    .block = block,
    .nn = nn,
    .nt_rows = BLOCK,
    .nt_columns = COLUMNS,
    .nt = nt,
    .tn = tn,
};
