// SPDX-License-Identifier: Apache-2.0
/*
 * Row kernels and fp8, for each instruction set and for the reference, compared
 * with definitions. check_rows.c compares the sets over random shapes.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/kernels/dtype.h"
#include "src/kernels/fp8.h"
#include "src/kernels/rows.h"
#include "tests/moe/reference.h"

TestSuite(rows, .timeout = 60);

static const size_t lengths[] = {0,   1,   3,   4,   7,   8,    15,  16,
                                 17,  31,  63,  64,  65,  100,  127, 128,
                                 129, 191, 255, 256, 300, 1000, 2048};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* Makes a row of `n` elements at an unaligned address, with one more element on
 * each side. */
static unsigned char *row_of(enum shunt_dtype dtype, size_t n, uint64_t seed)
{
    size_t bytes = shunt_dtype_size(dtype);
    unsigned char *row = malloc((n + 2) * bytes + 1);

    memset(row, 0xff, (n + 2) * bytes + 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t dice = mix(seed, n, i, 0);
        float value = ldexpf((float)(int)(dice % 4001) - 2000,
                             (int)(dice >> 20 & 15) - 14);

        element_set(dtype, row + 1 + bytes, i, value);
    }
    return row;
}

static unsigned char *at(unsigned char *row, enum shunt_dtype dtype)
{
    return row + 1 + shunt_dtype_size(dtype);
}

/* The number of sets of kernels. The last one is the reference. */
enum { SETS = SHUNTI_ISA_COUNT + 1 };

static const struct shunti_rows_set *rows_set(size_t s)
{
    if (s == SHUNTI_ISA_COUNT)
        return &shunti_rows_ref;
    return shunti_isa_runs((enum shunti_isa)s) ? shunti_rows_sets[s] : NULL;
}

static const char *set_name(size_t s)
{
    return s < SHUNTI_ISA_COUNT ? shunti_isa_name((enum shunti_isa)s)
                                : "reference";
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, 4) == 0 || (isnan(a) && isnan(b));
}

/* No element before or behind the row was written. */
static void check_guards(unsigned char *row, enum shunt_dtype dtype, size_t n)
{
    size_t bytes = shunt_dtype_size(dtype);

    for (size_t i = 0; i < 1 + bytes; i++)
        cr_assert_eq(row[i], 0xff, "written before the row");
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(row[1 + (n + 1) * bytes + i], 0xff,
                     "written behind the row");
}

static void each_kernel(void (*check)(const struct shunti_rows *rows,
                                      const char *name, enum shunt_dtype dtype,
                                      size_t n))
{
    for (size_t s = 0; s < SETS; s++) {
        const struct shunti_rows_set *set = rows_set(s);

        for (size_t l = 0; set && l < LENGTHS; l++) {
            check(&set->f32, set_name(s), SHUNT_F32, lengths[l]);
            check(&set->bf16, set_name(s), SHUNT_BF16, lengths[l]);
        }
    }
}

/* The sum with explicit parentheses: ((v0 + v1) + (v2 + v3)) of node 0, (v4 +
 * (v5 + v6)) of node 1, and v7 of node 2. */
static float tree(const float *v, bool bias, float b)
{
    float node0 = (v[0] + v[1]) + (v[2] + v[3]);
    float node1 = v[4] + (v[5] + v[6]);
    float node2 = v[7];

    return bias ? ((b + node0) + node1) + node2 : (node0 + node1) + node2;
}

static void check_sum(const struct shunti_rows *rows, const char *name,
                      enum shunt_dtype dtype, size_t n)
{
    static const enum shunti_rows_op op[8] = {
        SHUNTI_ROWS_NODE, SHUNTI_ROWS_ADD,  SHUNTI_ROWS_RANK, SHUNTI_ROWS_ADD,
        SHUNTI_ROWS_NODE, SHUNTI_ROWS_RANK, SHUNTI_ROWS_ADD,  SHUNTI_ROWS_NODE,
    };
    struct shunti_rows_term terms[8];
    unsigned char *row[8], *bias = row_of(dtype, n, 99);

    for (int t = 0; t < 8; t++) {
        row[t] = row_of(dtype, n, (uint64_t)t);
        terms[t] = (struct shunti_rows_term){
            at(row[t], dtype), 1.0f / (float)(t + 3), (uint16_t)op[t], 0};
    }
    for (int biased = 0; biased < 3; biased++) {
        unsigned char *y = row_of(dtype, n, 50);

        if (biased == 2) /* in place */
            memcpy(at(y, dtype), at(bias, dtype), n * shunt_dtype_size(dtype));
        rows->sum(terms, 8, terms, biased ? 8 : 0,
                  biased == 0   ? NULL
                  : biased == 1 ? at(bias, dtype)
                                : at(y, dtype),
                  at(y, dtype), n);
        for (size_t i = 0; i < n; i++) {
            float v[8], want;

            for (int t = 0; t < 8; t++)
                v[t] = terms[t].weight * element_get(dtype, terms[t].row, i);
            want =
                round_to(dtype, tree(v, biased != 0,
                                     element_get(dtype, at(bias, dtype), i)));
            cr_assert(same(element_get(dtype, at(y, dtype), i), want),
                      "%s, %zu elements, number %zu", name, n, i);
        }
        check_guards(y, dtype, n);
        /* without terms */
        rows->sum(terms, 0, NULL, 0, biased ? at(bias, dtype) : NULL,
                  at(y, dtype), n);
        for (size_t i = 0; i < n; i++)
            cr_assert(same(element_get(dtype, at(y, dtype), i),
                           biased ? element_get(dtype, at(bias, dtype), i) : 0),
                      "%s, no terms", name);
        /* with a single term */
        rows->sum(terms, 1, NULL, 0, NULL, at(y, dtype), n);
        for (size_t i = 0; i < n; i++)
            cr_assert(
                same(element_get(dtype, at(y, dtype), i),
                     round_to(dtype, terms[0].weight *
                                         element_get(dtype, terms[0].row, i))),
                "%s, one term", name);
        free(y);
    }
    for (int t = 0; t < 8; t++)
        free(row[t]);
    free(bias);
}

/* Nodes 0 and 2 are added up elsewhere in f32. The result must have the same
 * bits as a sum of all terms at once. */
static void check_partial(const struct shunti_rows *rows, const char *name,
                          enum shunt_dtype dtype, size_t n)
{
    static const uint16_t op[8] = {
        SHUNTI_ROWS_NODE, SHUNTI_ROWS_ADD,  SHUNTI_ROWS_RANK, SHUNTI_ROWS_ADD,
        SHUNTI_ROWS_NODE, SHUNTI_ROWS_RANK, SHUNTI_ROWS_ADD,  SHUNTI_ROWS_NODE,
    };
    struct shunti_rows_term terms[8], parts[5];
    unsigned char *row[8], *bias = row_of(dtype, n, 99);
    unsigned char *y = row_of(dtype, n, 50);
    unsigned char *node0 = row_of(SHUNT_F32, n, 51);
    unsigned char *node2 = row_of(SHUNT_F32, n, 52);

    for (int t = 0; t < 8; t++) {
        row[t] = row_of(dtype, n, (uint64_t)t);
        terms[t] = (struct shunti_rows_term){at(row[t], dtype),
                                             1.0f / (float)(t + 3), op[t], 0};
    }
    rows->partial(terms, 4, terms + 7, 1, at(node0, SHUNT_F32), n);
    rows->partial(terms + 7, 1, NULL, 0, at(node2, SHUNT_F32), n);
    check_guards(node0, SHUNT_F32, n);
    parts[0] = (struct shunti_rows_term){at(node0, SHUNT_F32), 1, 0, 1};
    memcpy(parts + 1, terms + 4, 3 * sizeof(*parts));
    parts[4] =
        (struct shunti_rows_term){at(node2, SHUNT_F32), 1, SHUNTI_ROWS_NODE, 1};
    for (int biased = 0; biased < 2; biased++) {
        rows->sum(parts, 5, NULL, 0, biased ? at(bias, dtype) : NULL,
                  at(y, dtype), n);
        for (size_t i = 0; i < n; i++) {
            float v[8];

            for (int t = 0; t < 8; t++)
                v[t] = terms[t].weight * element_get(dtype, terms[t].row, i);
            cr_assert(
                same(element_get(dtype, at(y, dtype), i),
                     round_to(dtype,
                              tree(v, biased,
                                   element_get(dtype, at(bias, dtype), i)))),
                "%s, %zu elements, number %zu", name, n, i);
        }
    }
    for (int t = 0; t < 8; t++)
        free(row[t]);
    free(node0);
    free(node2);
    free(bias);
    free(y);
}

Test(rows, sums)
{
    each_kernel(check_sum);
}

Test(rows, nodes_that_are_added_up_elsewhere)
{
    each_kernel(check_partial);
}

static void check_scale(const struct shunti_rows *rows, const char *name,
                        enum shunt_dtype dtype, size_t n)
{
    unsigned char *src = row_of(dtype, n, 1), *dst = row_of(dtype, n, 2);

    if (n > 2) /* these values, too */
        element_set(dtype, at(src, dtype), n - 1, NAN),
            element_set(dtype, at(src, dtype), 0, INFINITY);
    rows->scale(at(dst, dtype), at(src, dtype), 1.0f / 3, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(
            same(element_get(dtype, at(dst, dtype), i),
                 round_to(dtype,
                          1.0f / 3 * element_get(dtype, at(src, dtype), i))),
            "%s, %zu elements, number %zu", name, n, i);
    check_guards(dst, dtype, n);
    free(src);
    free(dst);
}

Test(rows, scales)
{
    each_kernel(check_scale);
}

static void check_dot(const struct shunti_rows *rows, const char *name,
                      enum shunt_dtype dtype, size_t n)
{
    unsigned char *a = row_of(dtype, n, 1), *b = row_of(dtype, n, 2);
    float lane[64] = {0}, got;

    for (size_t i = 0; i < n; i++)
        lane[i % 64] += element_get(dtype, at(a, dtype), i) *
                        element_get(dtype, at(b, dtype), i);
    for (int width = 32; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    got = rows->dot(at(a, dtype), at(b, dtype), NULL, n);
    cr_assert(same(got, lane[0]), "%s, %zu elements: %.9g, expected %.9g", name,
              n, (double)got, (double)lane[0]);
    free(a);
    free(b);
}

Test(rows, products)
{
    each_kernel(check_dot);
}

/* Returns values around all special values of e4m3. */
static float special(size_t i)
{
    static const float list[] = {
        0,          -0.0f,    448,     449,      464,       480,
        0x1p-6f,    0x1p-7f,  0x1p-9f, 0x1p-10f, 0x1.8p-9f, 0x1.8p-10f,
        0x1.ffp-7f, 17,       18,      19,       -20,       1.0625f,
        1.1875f,    -1.0625f, 300,     0x1p-30f, 447,       432,
    };

    return list[i % (sizeof(list) / sizeof(list[0]))];
}

static void check_fp8(const struct shunti_rows *rows, const char *name,
                      enum shunt_dtype dtype, size_t n)
{
    unsigned char *src = row_of(dtype, n, 1), *dst = row_of(dtype, n, 2);
    unsigned char *packed = malloc(shunti_fp8_bytes(n) + 1), *back;
    unsigned char *kernels;

    /* The first slice gets the scale 1, or nearly 1. */
    for (size_t i = 0; i < n && i < 128; i++)
        element_set(dtype, at(src, dtype), i, special(i));
    if (n > 260)
        element_set(dtype, at(src, dtype), 258, NAN);
    rows->fp8(at(dst, dtype), at(src, dtype), n);
    for (size_t i = 0; i < n; i++) {
        size_t from = i / 128 * 128;
        float amax = 1e-4f, scale, x, want;

        for (size_t j = from; j < from + 128 && j < n; j++) {
            x = fabsf(element_get(dtype, at(src, dtype), j));
            amax = x > amax ? x : amax;
        }
        scale = amax / 448;
        x = element_get(dtype, at(src, dtype), i);
        want = round_to(dtype, nearest_e4m3(x / scale) * scale);
        cr_assert(same(element_get(dtype, at(dst, dtype), i), want),
                  "%s, %zu elements, number %zu: %.9g gave %.9g, not %.9g",
                  name, n, i, (double)x,
                  (double)element_get(dtype, at(dst, dtype), i), (double)want);
    }
    check_guards(dst, dtype, n);

    /* Packing to bytes and unpacking must give the same values. */
    packed[shunti_fp8_bytes(n)] = 0xaa;
    shunti_fp8_pack(dtype, packed, at(src, dtype), n);
    cr_assert_eq(packed[shunti_fp8_bytes(n)], 0xaa, "past its end");
    back = row_of(dtype, n, 3);
    shunti_fp8_unpack(dtype, at(back, dtype), packed, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(same(element_get(dtype, at(back, dtype), i),
                       element_get(dtype, at(dst, dtype), i)),
                  "packed, %zu elements, number %zu", n, i);
    /* The kernels must make the same bytes. */
    kernels = malloc(shunti_fp8_bytes(n) + 1);
    kernels[shunti_fp8_bytes(n)] = 0xaa;
    rows->pack(kernels, at(src, dtype), n);
    cr_assert_arr_eq(kernels, packed, shunti_fp8_bytes(n) + 1, "%s", name);
    free(back);
    back = row_of(dtype, n, 4);
    rows->unpack(at(back, dtype), packed, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(same(element_get(dtype, at(back, dtype), i),
                       element_get(dtype, at(dst, dtype), i)),
                  "%s, unpacked, %zu elements, number %zu", name, n, i);
    check_guards(back, dtype, n);
    free(src);
    free(dst);
    free(back);
    free(packed);
    free(kernels);
}

Test(rows, fp8)
{
    each_kernel(check_fp8);
}

Test(rows, fp8_bytes)
{
    cr_assert_eq(shunti_fp8_bytes(1), 5);
    cr_assert_eq(shunti_fp8_bytes(128), 132);
    cr_assert_eq(shunti_fp8_bytes(129), 137);
    cr_assert_eq(shunti_fp8_bytes(7168), 7168 + 4 * 56);
}

/* The exact results of these sums are in the middle between two bf16 numbers,
 * just above it or just below, and at the ends of the range. */
Test(rows, bf16_rounds_to_even)
{
    for (size_t s = 0; s < SETS; s++)
        for (uint32_t upper = 0; rows_set(s) && upper < 0x10000; upper += 64) {
            uint16_t a[64], b[64], y[64];
            struct shunti_rows_term terms[2] = {{a, 1, SHUNTI_ROWS_ADD, 0},
                                                {b, 1, SHUNTI_ROWS_ADD, 0}};

            for (uint32_t i = 0; i < 64; i++) {
                float big = shunti_bf16_to_f32((uint16_t)(upper + i));

                a[i] = (uint16_t)(upper + i);
                b[i] = shunti_f32_to_bf16(big * 0x1p-9f * (float)(1 + i % 3));
            }
            rows_set(s)->bf16.sum(terms, 2, NULL, 0, NULL, y, 64);
            for (uint32_t i = 0; i < 64; i++) {
                float want = round_to(SHUNT_BF16, shunti_bf16_to_f32(a[i]) +
                                                      shunti_bf16_to_f32(b[i]));

                cr_assert(same(shunti_bf16_to_f32(y[i]), want),
                          "%s: %04x + %04x gave %04x", set_name(s), a[i], b[i],
                          y[i]);
            }
        }
}
