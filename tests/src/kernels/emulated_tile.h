// SPDX-License-Identifier: Apache-2.0
/*
 * The tile of gemm_bf16_tile.c, compiled with SIMDe. Any CPU can run it, but
 * the source is that of CPUs with AVX512-BF16.
 */
#ifndef TEST_EMULATED_TILE_H
#define TEST_EMULATED_TILE_H

#include "src/kernels/gemm/gemm_bf16.h"

#ifdef TEST_SIMDE
extern const struct shunti_bf16_tile shunti_bf16_tile_emulated;
#endif

#endif
