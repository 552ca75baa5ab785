// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products of bf16 for CPUs that have an instruction for them; gemm.h
 * defines the result. gemm_bf16.c rounds and packs the inputs. A tile
 * multiplies them, which is the only part that is written for an instruction
 * set.
 *
 * LIBXSMM has such kernels as well. It writes them as machine code, which runs
 * only on a CPU with the instruction: tests on other CPUs could not run it.
 */
#ifndef SHUNTI_GEMM_BF16_H
#define SHUNTI_GEMM_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/kernels/gemm/gemm.h"

enum {
    SHUNTI_TILE_ROWS = 6,
    SHUNTI_TILE_LANES = 16,
    SHUNTI_TILE_VECTORS = 4, /* of SHUNTI_TILE_LANES columns each */
    SHUNTI_TILE_COLUMNS = SHUNTI_TILE_VECTORS * SHUNTI_TILE_LANES,
};

/* The product of packed inputs. A word is a pair of bf16, with the element of
 * an even index in the lower half and the next element in the upper half. */
struct shunti_bf16_tile {
    const char *name;

    /*
     * C (rows, vectors * SHUNTI_TILE_LANES) [+]= the product of `pairs` pairs:
     *
     *     a        the word of a row and a pair is at
     *              row * a_row + pair * a_pair
     *     b        (pairs, vectors * SHUNTI_TILE_LANES) words, aligned to 64
     *              bytes
     *     rows     1 to SHUNTI_TILE_ROWS
     *     vectors  1 to SHUNTI_TILE_VECTORS
     *
     * Each element is summed by itself over ascending pairs.
     */
    void (*multiply)(size_t rows, size_t vectors, size_t pairs,
                     const uint32_t *a, size_t a_row, size_t a_pair,
                     const uint32_t *b, bool add, float *c, size_t ldc);

    /* As those of elementwise.h, by an instruction that rounds. Denormal inputs
     * count as zero, as they do in the product. NULL: there is no such
     * instruction. */
    void (*to_bf16)(size_t n, const float *x, uint16_t *y);
    void (*pair_bf16)(size_t n, const float *x, const float *y,
                      uint32_t *pairs);

    /* As the peaks of peak.h, with the same instruction. */
    double (*peak)(size_t rounds, float *sink);
};

/* The tile for this CPU. NULL if the CPU has no instruction for products of
 * bf16, or the kernels may not use it (cpu.h). */
const struct shunti_bf16_tile *shunti_bf16_tile(void);
/* For tests: use this tile instead of the CPU's. NULL: none. */
void shunti_bf16_tile_stand_in(const struct shunti_bf16_tile *tile);

#ifdef SHUNTI_HAVE_BF16_TILE
extern const struct shunti_bf16_tile shunti_bf16_tile_avx512;
#endif

/* Memory of packed matrices, which grows to the largest product seen. */
struct shunti_bf16_packed {
    uint32_t *words;
    size_t room;
};

struct shunti_bf16_scratch {
    struct shunti_bf16_packed a, b, rows;
    void (*no_memory)(void); /* as in shunti_gemm_create() */
};

void shunti_bf16_scratch_free(struct shunti_bf16_scratch *scratch);

/* As shunti_gemm_nn(). turned: as shunti_gemm_nt(), and `next` is NULL.
 * Otherwise `next` is as for a backend. */
void shunti_bf16_by_rows(const struct shunti_bf16_tile *tile,
                         struct shunti_bf16_scratch *scratch, bool turned,
                         size_t m, size_t n, size_t k, const float *a,
                         size_t lda, const float *b, size_t ldb,
                         const float *next, enum shunti_gemm_beta beta,
                         float *c, size_t ldc);
/* As shunti_gemm_tn(), adding to C. */
void shunti_bf16_tn(const struct shunti_bf16_tile *tile,
                    struct shunti_bf16_scratch *scratch, size_t m, size_t n,
                    size_t k, const float *a, size_t lda, const float *b,
                    size_t ldb, float *c, size_t ldc);

#endif
