// SPDX-License-Identifier: Apache-2.0
/*
 * Rows as fp8: one e4m3 code for each element, and behind them one f32 scale
 * for each slice of 128 (the last may be short).
 *
 *     scale = max(largest magnitude, 1e-4) / 448
 *     code  = e4m3(x / scale)
 *
 * A NaN does not count for the scale and arrives as NaN; an infinity makes
 * its whole slice NaN. The slicing is that of DeepSeek-V3 (2412.19437).
 */
#ifndef SHUNTI_FP8_H
#define SHUNTI_FP8_H

#include <stddef.h>

#include <shunt/coll.h>

/* Elements that share a scale. */
#define SHUNTI_FP8_SLICE 128
#define SHUNTI_FP8_AMAX_MIN 1e-4f

/* Bytes of a packed row of n elements. */
size_t shunti_fp8_bytes(size_t n);

/* Pack and unpack. row: n elements of SHUNT_F32 or SHUNT_BF16. */
void shunti_fp8_pack(enum shunt_dtype dtype, void *packed, const void *row,
                     size_t n);
void shunti_fp8_unpack(enum shunt_dtype dtype, void *row, const void *packed,
                       size_t n);

#endif
