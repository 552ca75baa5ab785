// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of bf16 for CPUs that have an instruction for them; gemm.h
// says what is computed. gemm_bf16.c rounds and packs, for a tile to multiply:
// the only part that is written for an instruction set.
//
// LIBXSMM has such kernels as well. It writes them as machine code, which only a
// CPU with the instruction can run: the tests could not, elsewhere.
#ifndef TRAIN_GEMM_BF16_H
#define TRAIN_GEMM_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/gemm/gemm.h"

enum {
    TILE_ROWS = 6,
    TILE_LANES = 16,
    TILE_VECTORS = 4, // of TILE_LANES columns each
    TILE_COLUMNS = TILE_VECTORS * TILE_LANES,
};

// A word is a pair of bf16: that of an even index in the lower half, the next
// one in the upper half.
struct bf16_tile {
    const char *name;

    // C (rows, vectors * TILE_LANES) [+]= the product of `pairs` pairs:
    // a       the word of a row and a pair stands at row * a_row + pair * a_pair
    // b       (pairs, vectors * TILE_LANES) words, aligned to 64 bytes
    // rows    1 to TILE_ROWS; vectors: 1 to TILE_VECTORS
    // Each element is summed by itself over ascending pairs.
    void (*multiply)(size_t rows, size_t vectors, size_t pairs,
                     const uint32_t *a, size_t a_row, size_t a_pair,
                     const uint32_t *b, bool add, float *c, size_t ldc);

    // As peak_baseline() and the others of peak.h, by the same instruction.
    double (*peak)(size_t rounds, float *sink);
};

// The tile for this CPU; NULL if it has no instruction for products of bf16.
const struct bf16_tile *bf16_tile(void);
// Tests: in place of the CPU's. NULL: none.
void bf16_tile_stand_in(const struct bf16_tile *tile);

#ifdef TRAIN_TILE_AVX512
extern const struct bf16_tile bf16_tile_avx512;
#endif

// Memory of packed matrices, which grows to the largest product seen.
struct bf16_packed {
    uint32_t *words;
    size_t room;
};

struct bf16_scratch {
    struct bf16_packed a, b, rows;
};

void bf16_scratch_free(struct bf16_scratch *scratch);

// As the functions of gemm.h. In `tn` beta is GEMM_ADD.
void bf16_nn(const struct bf16_tile *tile, struct bf16_scratch *scratch,
             size_t m, size_t n, size_t k, const float *a, size_t lda,
             const float *b, size_t ldb, enum gemm_beta beta, float *c,
             size_t ldc);
void bf16_nt(const struct bf16_tile *tile, struct bf16_scratch *scratch,
             size_t m, size_t n, size_t k, const float *a, size_t lda,
             const float *b, size_t ldb, enum gemm_beta beta, float *c,
             size_t ldc);
void bf16_tn(const struct bf16_tile *tile, struct bf16_scratch *scratch,
             size_t m, size_t n, size_t k, const float *a, size_t lda,
             const float *b, size_t ldb, float *c, size_t ldc);

#endif
