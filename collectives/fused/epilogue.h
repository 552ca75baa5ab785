// SPDX-License-Identifier: Apache-2.0
/* The epilogue: what becomes of a block of the product before it is written. */
#ifndef SHUNTI_FUSED_EPILOGUE_H
#define SHUNTI_FUSED_EPILOGUE_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/fused/terms.h"

/* out is the block: f32 with no more to do. */
bool shunti_epilogue_is_none(const struct shunti_fused_out *out);

/* From `block` (rows, cols), with `ld` floats between rows, to the elements of
 * out from (row, col) on. */
void shunti_epilogue(const struct shunti_fused_out *out, size_t row, size_t col,
                     size_t rows, size_t cols, const float *block, size_t ld);

#endif
