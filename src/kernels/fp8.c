// SPDX-License-Identifier: Apache-2.0
/* Rows as fp8, one element at a time: the reference of rows_kernel.c. */
#include "src/kernels/fp8.h"

#include <string.h>

#include "src/kernels/dtype.h"

static size_t slices(size_t n)
{
    return (n + SHUNTI_FP8_SLICE - 1) / SHUNTI_FP8_SLICE;
}

size_t shunti_fp8_bytes(size_t n)
{
    return n + 4 * slices(n);
}

static float get(enum shunt_dtype dtype, const void *row, size_t i)
{
    if (dtype == SHUNT_F32) {
        float value;

        memcpy(&value, (const unsigned char *)row + 4 * i, 4);
        return value;
    } else {
        uint16_t bits;

        memcpy(&bits, (const unsigned char *)row + 2 * i, 2);
        return shunti_bf16_to_f32(bits);
    }
}

static void set(enum shunt_dtype dtype, void *row, size_t i, float value)
{
    if (dtype == SHUNT_F32) {
        memcpy((unsigned char *)row + 4 * i, &value, 4);
    } else {
        uint16_t bits = shunti_f32_to_bf16(value);

        memcpy((unsigned char *)row + 2 * i, &bits, 2);
    }
}

void shunti_fp8_pack(enum shunt_dtype dtype, void *packed, const void *row,
                     size_t n)
{
    unsigned char *codes = packed;

    for (size_t s = 0; s < slices(n); s++) {
        size_t at = s * SHUNTI_FP8_SLICE;
        size_t end = n - at < SHUNTI_FP8_SLICE ? n : at + SHUNTI_FP8_SLICE;
        float amax = SHUNTI_FP8_AMAX_MIN, scale;

        for (size_t i = at; i < end; i++) {
            float x = get(dtype, row, i);

            x = x < 0 ? -x : x;
            amax = x > amax ? x : amax;
        }
        scale = amax / SHUNTI_FP8_MAX;
        for (size_t i = at; i < end; i++)
            codes[i] = shunti_f32_to_fp8(get(dtype, row, i) / scale);
        memcpy(codes + n + 4 * s, &scale, 4);
    }
}

void shunti_fp8_unpack(enum shunt_dtype dtype, void *row, const void *packed,
                       size_t n)
{
    const unsigned char *codes = packed;

    for (size_t i = 0; i < n; i++) {
        float scale;

        memcpy(&scale, codes + n + i / SHUNTI_FP8_SLICE * 4, 4);
        set(dtype, row, i, shunti_fp8_to_f32(codes[i]) * scale);
    }
}
