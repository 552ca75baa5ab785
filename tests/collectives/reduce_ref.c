// SPDX-License-Identifier: Apache-2.0
/* The reduction by its definition; see reduce_ref.h. */
#include "tests/collectives/reduce_ref.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/dtype.h"

/* The comparisons are written so that the result is NaN if a or b is. */
static double float_op(double a, double b, enum shunt_op op)
{
    if (op == SHUNT_MIN)
        return a != a ? a : b != b ? b : b < a ? b : a;
    return a != a ? a : b != b ? b : b > a ? b : a;
}

static float f32_op(float a, float b, enum shunt_op op)
{
    switch (op) {
    case SHUNT_SUM:
    case SHUNT_AVG:
        return a + b;
    case SHUNT_PROD:
        return a * b;
    default:
        return (float)float_op((double)a, (double)b, op);
    }
}

static double f64_op(double a, double b, enum shunt_op op)
{
    switch (op) {
    case SHUNT_SUM:
    case SHUNT_AVG:
        return a + b;
    case SHUNT_PROD:
        return a * b;
    default:
        return float_op(a, b, op);
    }
}

/* Integers of all types as 64 bits of two's complement. Sums and products
 * modulo 2^64 are also right modulo 2^8 and 2^32. Values are sign- or
 * zero-extended on entry, and again after each step. */
static uint64_t int_op(uint64_t a, uint64_t b, bool is_signed, enum shunt_op op)
{
    bool less = is_signed ? (int64_t)b < (int64_t)a : b < a;

    switch (op) {
    case SHUNT_SUM:
    case SHUNT_AVG:
        return a + b;
    case SHUNT_PROD:
        return a * b;
    case SHUNT_MIN:
        return less ? b : a;
    default:
        return less ? a : b;
    }
}

static uint64_t extend(uint64_t value, size_t size, bool is_signed)
{
    unsigned shift = 64 - 8 * (unsigned)size;

    value <<= shift;
    return is_signed ? (uint64_t)((int64_t)value >> shift) : value >> shift;
}

/* Load a little-endian integer; all machines of the library are little-endian.
 * A memcpy() of a constant size compiles to no call. */
static uint64_t load_int(const unsigned char *p, size_t size)
{
    uint64_t value = 0;

    switch (size) {
    case 1:
        return *p;
    case 4:
        memcpy(&value, p, 4);
        return value;
    default:
        memcpy(&value, p, 8);
        return value;
    }
}

static void store_int(unsigned char *p, uint64_t value, size_t size)
{
    switch (size) {
    case 1:
        *p = (unsigned char)value;
        break;
    case 4:
        memcpy(p, &value, 4);
        break;
    default:
        memcpy(p, &value, 8);
        break;
    }
}

static void reduce_int(unsigned char *dst, const void *const *srcs, int n,
                       size_t i, size_t size, bool is_signed, enum shunt_op op,
                       int divisor)
{
    uint64_t result = 0;

    for (int k = 0; k < n; k++) {
        const unsigned char *src = srcs[k];
        uint64_t value =
            extend(load_int(src + i * size, size), size, is_signed);

        result = k == 0 ? value : int_op(result, value, is_signed, op);
        result = extend(result, size, is_signed);
    }
    if (op == SHUNT_AVG)
        result = is_signed ? (uint64_t)((int64_t)result / divisor)
                           : result / (uint64_t)divisor;
    store_int(dst + i * size, result, size);
}

static float load_float(const void *src, size_t i, enum shunt_dtype dtype)
{
    const unsigned char *p = src;
    uint16_t half;
    float value;

    if (dtype == SHUNT_F32) {
        memcpy(&value, p + 4 * i, 4);
        return value;
    }
    memcpy(&half, p + 2 * i, 2);
    return dtype == SHUNT_F16 ? shunti_f16_to_f32(half)
                              : shunti_bf16_to_f32(half);
}

static void reduce_float(unsigned char *dst, const void *const *srcs, int n,
                         size_t i, enum shunt_dtype dtype, enum shunt_op op,
                         int divisor)
{
    float result = load_float(srcs[0], i, dtype);
    uint16_t half;

    for (int k = 1; k < n; k++)
        result = f32_op(result, load_float(srcs[k], i, dtype), op);
    if (op == SHUNT_AVG)
        result /= (float)divisor;
    if (dtype == SHUNT_F32) {
        memcpy(dst + 4 * i, &result, 4);
        return;
    }
    half = dtype == SHUNT_F16 ? shunti_f32_to_f16(result)
                              : shunti_f32_to_bf16(result);
    memcpy(dst + 2 * i, &half, 2);
}

static void reduce_f64(unsigned char *dst, const void *const *srcs, int n,
                       size_t i, enum shunt_op op, int divisor)
{
    double result, value;

    memcpy(&result, (const unsigned char *)srcs[0] + 8 * i, 8);
    for (int k = 1; k < n; k++) {
        memcpy(&value, (const unsigned char *)srcs[k] + 8 * i, 8);
        result = f64_op(result, value, op);
    }
    if (op == SHUNT_AVG)
        result /= divisor;
    memcpy(dst + 8 * i, &result, 8);
}

void reduce_ref(void *dst, const void *const *srcs, int n, size_t count,
                enum shunt_dtype dtype, enum shunt_op op, int divisor)
{
    size_t size = shunt_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        switch (dtype) {
        case SHUNT_F16:
        case SHUNT_BF16:
        case SHUNT_F32:
            reduce_float(dst, srcs, n, i, dtype, op, divisor);
            break;
        case SHUNT_F64:
            reduce_f64(dst, srcs, n, i, op, divisor);
            break;
        case SHUNT_I8:
        case SHUNT_I32:
        case SHUNT_I64:
            reduce_int(dst, srcs, n, i, size, true, op, divisor);
            break;
        default:
            reduce_int(dst, srcs, n, i, size, false, op, divisor);
            break;
        }
    }
}

static bool is_nan(const unsigned char *p, enum shunt_dtype dtype)
{
    double d;

    if (dtype == SHUNT_F64) {
        memcpy(&d, p, 8);
        return d != d;
    }
    if (dtype == SHUNT_F32 || dtype == SHUNT_F16 || dtype == SHUNT_BF16) {
        float f = load_float(p, 0, dtype);

        return f != f;
    }
    return false;
}

/* Returns a copy, with f16 and bf16 as f32. The caller frees the copy. */
static void *widened(const void *src, size_t count, enum shunt_dtype dtype)
{
    float *wide = malloc(count * 8 + 1);

    if (dtype != SHUNT_F16 && dtype != SHUNT_BF16)
        return memcpy(wide, src, count * shunt_dtype_size(dtype));
    for (size_t i = 0; i < count; i++)
        wide[i] = load_float(src, i, dtype);
    return wide;
}

/* Combine the partials of nodes: the first h, then the rest, then both, where h
 * is the largest power of two below the number of nodes. */
static void over_nodes(void *dst, const void *const *partials, int nodes,
                       size_t count, enum shunt_dtype dtype, enum shunt_op op,
                       int divisor)
{
    const enum shunt_op part_op = op == SHUNT_AVG ? SHUNT_SUM : op;
    void *half[2];
    int h = 1;

    if (nodes == 1) {
        reduce_ref(dst, partials, 1, count, dtype, op, divisor);
        return;
    }
    while (2 * h < nodes)
        h *= 2;
    half[0] = malloc(count * 8 + 1);
    half[1] = malloc(count * 8 + 1);
    over_nodes(half[0], partials, h, count, dtype, part_op, 1);
    over_nodes(half[1], partials + h, nodes - h, count, dtype, part_op, 1);
    reduce_ref(dst, (const void *const *)half, 2, count, dtype, op, divisor);
    free(half[0]);
    free(half[1]);
}

void reduce_ref_tree(void *dst, const void *const *srcs, const int *node, int n,
                     size_t count, enum shunt_dtype dtype, enum shunt_op op)
{
    enum { MOST = 64 };
    const bool half = dtype == SHUNT_F16 || dtype == SHUNT_BF16;
    const enum shunt_dtype wide = half ? SHUNT_F32 : dtype;
    void *partials[MOST] = {NULL}, *inputs[MOST] = {NULL};
    int nodes = 0;

    for (int k = 0; k < n; k++) {
        int ranks = 0;

        for (int i = 0; i < n; i++)
            if (node[i] == k)
                inputs[ranks++] = widened(srcs[i], count, dtype);
        if (!ranks)
            continue;
        partials[nodes] = malloc(count * 8 + 1);
        reduce_ref(partials[nodes++], (const void *const *)inputs, ranks, count,
                   wide, op == SHUNT_AVG ? SHUNT_SUM : op, 1);
        while (ranks)
            free(inputs[--ranks]);
    }
    inputs[0] = malloc(count * 8 + 1);
    over_nodes(inputs[0], (const void *const *)partials, nodes, count, wide, op,
               n);
    for (size_t i = 0; i < count && half; i++) {
        float value = ((const float *)inputs[0])[i];
        uint16_t bits = dtype == SHUNT_F16 ? shunti_f32_to_f16(value)
                                           : shunti_f32_to_bf16(value);

        memcpy((unsigned char *)dst + 2 * i, &bits, sizeof(bits));
    }
    if (!half)
        memcpy(dst, inputs[0], count * shunt_dtype_size(dtype));
    free(inputs[0]);
    while (nodes)
        free(partials[--nodes]);
}

size_t reduce_compare(const void *a, const void *b, size_t count,
                      enum shunt_dtype dtype)
{
    size_t size = shunt_dtype_size(dtype), i;

    /* Usually all is equal, and a sanitizer checks one memcmp() faster than
     * each byte. */
    if (memcmp(a, b, count * size) == 0)
        return count;
    for (i = 0; i < count; i++) {
        const unsigned char *x = (const unsigned char *)a + i * size;
        const unsigned char *y = (const unsigned char *)b + i * size;

        if (memcmp(x, y, size) != 0 && !(is_nan(x, dtype) && is_nan(y, dtype)))
            break;
    }
    return i;
}
