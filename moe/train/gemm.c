// SPDX-License-Identifier: Apache-2.0
//
// Cuts matrix products into the fixed blocks that a backend computes; gemm.h
// says why. Incomplete blocks are completed with zeros in scratch memory.
#include "gemm.h"

#include "error.h"
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

// In tn, rows are summed in blocks of these heights, the highest that fits
// first. C is read and written once for each block.
static const size_t heights[] = {256, 64, 16};
enum { LOWEST = 16 };

struct gemm {
    const struct gemm_backend *backend;
    double flops;

    float *scratch; // one block of A and of C, or of A and B
    size_t scratch_floats;
    float *turned; // B transposed
    size_t turned_floats;
};

static const struct gemm_backend *const backends[] = {
#ifdef TRAIN_XSMM
    &gemm_xsmm,
#endif
#ifdef TRAIN_CBLAS
    &gemm_blas,
#endif
    &gemm_naive,
};

int gemm_create(const char *backend, struct gemm **gemm)
{
    size_t n = sizeof(backends) / sizeof(backends[0]);

    for (size_t i = 0; i < n; i++) {
        if (backend && strcmp(backend, backends[i]->name) != 0)
            continue;
        if (backends[i]->usable())
            return gemm_create_with(backends[i], gemm);
        if (backend)
            return train_error("matrix products by \"%s\" do not work on this "
                               "CPU; leave --gemm out",
                               backend);
    }
    return train_error("no matrix products by \"%s\" in this build; leave "
                       "--gemm out, or take \"%s\"",
                       backend, backends[0]->name);
}

int gemm_create_with(const struct gemm_backend *backend, struct gemm **gemm)
{
    *gemm = calloc(1, sizeof(**gemm));
    if (!*gemm)
        return train_error("out of memory");
    (*gemm)->backend = backend;
    return 0;
}

void gemm_destroy(struct gemm *gemm)
{
    if (!gemm)
        return;
    free(gemm->scratch);
    free(gemm->turned);
    free(gemm);
}

const char *gemm_name(const struct gemm *gemm)
{
    return gemm->backend->name;
}

double gemm_flops(const struct gemm *gemm)
{
    return gemm->flops;
}

// Memory that grows to the largest product seen. Its size is bounded by the
// model's shapes, which were allocated before: failing here means that the
// machine is out of memory in the middle of a step, and nothing can be saved.
static float *reserve(float **memory, size_t *have, size_t floats)
{
    if (floats > *have) {
        free(*memory);
        *have = (floats + 1023) & ~(size_t)1023;
        *memory = aligned_alloc(64, *have * sizeof(float));
        if (!*memory)
            train_out_of_memory();
    }
    return *memory;
}

static void copy_rows(size_t rows, size_t n, const float *a, size_t lda,
                      float *b, size_t ldb)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(b + i * ldb, a + i * lda, n * sizeof(float));
}

static void nn(struct gemm *g, size_t m, size_t n, size_t k, const float *a,
               size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
               float *c, size_t ldc)
{
    size_t block = g->backend->block;
    size_t whole = m - m % block, rest = m % block;

    g->backend->nn(whole / block, n, k, a, lda, b, ldb, beta, c, ldc);
    if (!rest)
        return;
    a += whole * lda;
    c += whole * ldc;
    float *ta = reserve(&g->scratch, &g->scratch_floats, block * (k + n));
    float *tc = ta + block * k;
    copy_rows(rest, k, a, lda, ta, k);
    memset(ta + rest * k, 0, (block - rest) * k * sizeof(float));
    if (beta == GEMM_ADD) {
        copy_rows(rest, n, c, ldc, tc, n);
        memset(tc + rest * n, 0, (block - rest) * n * sizeof(float));
    }
    g->backend->nn(1, n, k, ta, k, b, ldb, beta, tc, n);
    copy_rows(rest, n, tc, n, c, ldc);
}

static void clear(size_t m, size_t n, float *c, size_t ldc)
{
    for (size_t i = 0; i < m; i++)
        memset(c + i * ldc, 0, n * sizeof(float));
}

void gemm_nn(struct gemm *g, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
             float *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    g->flops += 2.0 * (double)m * (double)n * (double)k;
    nn(g, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

void gemm_nt(struct gemm *g, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
             float *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    g->flops += 2.0 * (double)m * (double)n * (double)k;
    float *bt = reserve(&g->turned, &g->turned_floats, k * n);
    kernels()->transpose(n, k, b, ldb, bt, n);
    nn(g, m, n, k, a, lda, bt, n, beta, c, ldc);
}

void gemm_tn(struct gemm *g, size_t m, size_t n, size_t k, const float *a,
             size_t lda, const float *b, size_t ldb, enum gemm_beta beta,
             float *c, size_t ldc)
{
    if (m == 0 || n == 0)
        return;
    g->flops += 2.0 * (double)m * (double)n * (double)k;
    if (beta == GEMM_SET)
        clear(m, n, c, ldc);
    for (size_t i = 0; i < sizeof(heights) / sizeof(heights[0]); i++) {
        for (; k >= heights[i]; k -= heights[i]) {
            g->backend->tn(m, n, heights[i], a, lda, b, ldb, c, ldc);
            a += heights[i] * lda;
            b += heights[i] * ldb;
        }
    }
    if (k) {
        float *ta = reserve(&g->scratch, &g->scratch_floats, LOWEST * (m + n));
        float *tb = ta + LOWEST * m;
        copy_rows(k, m, a, lda, ta, m);
        memset(ta + k * m, 0, (LOWEST - k) * m * sizeof(float));
        copy_rows(k, n, b, ldb, tb, n);
        memset(tb + k * n, 0, (LOWEST - k) * n * sizeof(float));
        g->backend->tn(m, n, LOWEST, ta, m, tb, n, c, ldc);
    }
}
