// SPDX-License-Identifier: Apache-2.0
/* The epilogue: what is computed from a block of the product before it is
 * written to `out`. */
#ifndef SHUNTI_FUSED_EPILOGUE_H
#define SHUNTI_FUSED_EPILOGUE_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/fused/terms.h"

/* True if the epilogue changes nothing: `out` is f32, alpha 1, beta 0, no
 * bias. */
bool shunti_epilogue_is_none(const struct shunti_fused_out *out);

/* Apply the epilogue to `block` (rows, cols), with `ld` floats from row to row,
 * and write it to `out` from element (row, col) on. */
void shunti_epilogue(const struct shunti_fused_out *out, size_t row, size_t col,
                     size_t rows, size_t cols, const float *block, size_t ld);

#endif
