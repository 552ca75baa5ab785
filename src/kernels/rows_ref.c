// SPDX-License-Identifier: Apache-2.0
/*
 * Row kernels, one element at a time: the reference of rows_kernel.c.
 */
#include <stdbool.h>
#include <string.h>

#include "src/kernels/dtype.h"
#include "src/kernels/fp8.h"
#include "src/kernels/rows.h"

/* Functions that read and write an element type. */
struct element {
    float (*get)(const void *row, size_t i);
    void (*set)(void *row, size_t i, float value);
};

static float get_f32(const void *row, size_t i)
{
    float value;

    memcpy(&value, (const unsigned char *)row + 4 * i, 4);
    return value;
}

static void set_f32(void *row, size_t i, float value)
{
    memcpy((unsigned char *)row + 4 * i, &value, 4);
}

static float get_bf16(const void *row, size_t i)
{
    uint16_t bits;

    memcpy(&bits, (const unsigned char *)row + 2 * i, 2);
    return shunti_bf16_to_f32(bits);
}

static void set_bf16(void *row, size_t i, float value)
{
    uint16_t bits = shunti_f32_to_bf16(value);

    memcpy((unsigned char *)row + 2 * i, &bits, 2);
}

static const struct element f32 = {get_f32, set_f32};
static const struct element bf16 = {get_bf16, set_bf16};

static float sum_element(const struct element *type,
                         const struct shunti_rows_term *terms, size_t nterms,
                         const void *bias, size_t i)
{
    float rank = 0, node = 0, total = bias ? type->get(bias, i) : 0;
    bool have_node = false, have_total = bias != NULL;

    for (size_t t = 0; t < nterms; t++) {
        float x = terms[t].wide ? get_f32(terms[t].row, i)
                                : type->get(terms[t].row, i);
        float value = terms[t].weight * x;

        if (t > 0 && terms[t].op == SHUNTI_ROWS_ADD) {
            rank = rank + value;
            continue;
        }
        if (t > 0) {
            node = have_node ? node + rank : rank;
            have_node = true;
        }
        if (t > 0 && terms[t].op == SHUNTI_ROWS_NODE) {
            total = have_total ? total + node : node;
            have_total = true;
            have_node = false;
        }
        rank = value;
    }
    if (nterms == 0)
        return total;
    node = have_node ? node + rank : rank;
    return have_total ? total + node : node;
}

static void sum(const struct element *type,
                const struct shunti_rows_term *terms, size_t nterms,
                const void *bias, void *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        type->set(y, i, sum_element(type, terms, nterms, bias, i));
}

static void partial(const struct element *type,
                    const struct shunti_rows_term *terms, size_t nterms,
                    void *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        f32.set(y, i, sum_element(type, terms, nterms, NULL, i));
}

static void scale(const struct element *type, void *dst, const void *src,
                  float weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        type->set(dst, i, weight * type->get(src, i));
}

static float dot(const struct element *type, const void *a, const void *b,
                 size_t n)
{
    float lane[64] = {0};

    for (size_t i = 0; i < n; i++)
        lane[i % 64] += type->get(a, i) * type->get(b, i);
    for (size_t width = 32; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

static void fp8(const struct element *type, void *dst, const void *src,
                size_t n)
{
    for (size_t at = 0; at < n; at += SHUNTI_FP8_SLICE) {
        size_t end = n - at < SHUNTI_FP8_SLICE ? n : at + SHUNTI_FP8_SLICE;
        float amax = SHUNTI_FP8_AMAX_MIN, unit;

        for (size_t i = at; i < end; i++) {
            float x = type->get(src, i);

            x = x < 0 ? -x : x;
            amax = x > amax ? x : amax;
        }
        unit = amax / SHUNTI_FP8_MAX;
        for (size_t i = at; i < end; i++) {
            uint8_t code = shunti_f32_to_fp8(type->get(src, i) / unit);

            type->set(dst, i, shunti_fp8_to_f32(code) * unit);
        }
    }
}

static void sum_f32(const struct shunti_rows_term *terms, size_t nterms,
                    const struct shunti_rows_term *next, size_t nnext,
                    const void *bias, void *y, size_t n)
{
    (void)next;
    (void)nnext;
    sum(&f32, terms, nterms, bias, y, n);
}

static void sum_bf16(const struct shunti_rows_term *terms, size_t nterms,
                     const struct shunti_rows_term *next, size_t nnext,
                     const void *bias, void *y, size_t n)
{
    (void)next;
    (void)nnext;
    sum(&bf16, terms, nterms, bias, y, n);
}

static void partial_f32(const struct shunti_rows_term *terms, size_t nterms,
                        const struct shunti_rows_term *next, size_t nnext,
                        void *y, size_t n)
{
    (void)next;
    (void)nnext;
    partial(&f32, terms, nterms, y, n);
}

static void partial_bf16(const struct shunti_rows_term *terms, size_t nterms,
                         const struct shunti_rows_term *next, size_t nnext,
                         void *y, size_t n)
{
    (void)next;
    (void)nnext;
    partial(&bf16, terms, nterms, y, n);
}

static void scale_f32(void *dst, const void *src, float weight, size_t n)
{
    scale(&f32, dst, src, weight, n);
}

static void scale_bf16(void *dst, const void *src, float weight, size_t n)
{
    scale(&bf16, dst, src, weight, n);
}

static float dot_f32(const void *a, const void *b, const void *next, size_t n)
{
    (void)next;
    return dot(&f32, a, b, n);
}

static float dot_bf16(const void *a, const void *b, const void *next, size_t n)
{
    (void)next;
    return dot(&bf16, a, b, n);
}

static void fp8_f32(void *dst, const void *src, size_t n)
{
    fp8(&f32, dst, src, n);
}

static void fp8_bf16(void *dst, const void *src, size_t n)
{
    fp8(&bf16, dst, src, n);
}

static void pack_f32(void *packed, const void *src, size_t n)
{
    shunti_fp8_pack(SHUNT_F32, packed, src, n);
}

static void pack_bf16(void *packed, const void *src, size_t n)
{
    shunti_fp8_pack(SHUNT_BF16, packed, src, n);
}

static void unpack_f32(void *dst, const void *packed, size_t n)
{
    shunti_fp8_unpack(SHUNT_F32, dst, packed, n);
}

static void unpack_bf16(void *dst, const void *packed, size_t n)
{
    shunti_fp8_unpack(SHUNT_BF16, dst, packed, n);
}

const struct shunti_rows_set shunti_rows_ref = {
    .f32 = {sum_f32, partial_f32, scale_f32, dot_f32, fp8_f32, pack_f32,
            unpack_f32},
    .bf16 = {sum_bf16, partial_bf16, scale_bf16, dot_bf16, fp8_bf16, pack_bf16,
             unpack_bf16},
};
