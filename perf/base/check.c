// SPDX-License-Identifier: Apache-2.0
/*
 * Inputs and expected results. Expected results do not depend on the data that
 * was sent: inputs and expectations are both generated from the counters of
 * random.h. Buffers may be unaligned, so elements are accessed by memcpy().
 */
#include "perf/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/perf.h"
#include "perf/base/random.h"

#define BLOCK 1024 /* elements (or bytes) compared at a time */

/* --- bytes ---------------------------------------------------------------- */

void perf_fill_bytes(void *to, uint64_t key, size_t from, size_t bytes)
{
    unsigned char *p = to;

    while (bytes > 0) {
        uint64_t word = perf_random(key, from / 8);
        size_t skip = from % 8, n = 8 - skip;
        if (n == 8 && bytes >= 8) { /* fast path of the common case */
            memcpy(p, &word, 8);
            p += 8;
            from += 8;
            bytes -= 8;
            continue;
        }
        n = n < bytes ? n : bytes;
        memcpy(p, (unsigned char *)&word + skip, n);
        p += n;
        from += n;
        bytes -= n;
    }
}

size_t perf_check_bytes(const void *got, uint64_t key, size_t from,
                        size_t bytes, size_t size)
{
    unsigned char expected[BLOCK * 8]; /* a multiple of every element size */
    const unsigned char *p = got;
    size_t wrong = 0;

    while (bytes > 0) {
        size_t n = bytes < sizeof(expected) ? bytes : sizeof(expected);
        perf_fill_bytes(expected, key, from, n);
        if (memcmp(p, expected, n) != 0)
            for (size_t i = 0; i < n; i += size)
                wrong += memcmp(p + i, expected + i, size) != 0;
        p += n;
        from += n;
        bytes -= n;
    }
    return wrong;
}

/* --- types ---------------------------------------------------------------- */

static int is_float(enum shunt_dtype dtype)
{
    return dtype == SHUNT_F16 || dtype == SHUNT_BF16 || dtype == SHUNT_F32 ||
           dtype == SHUNT_F64;
}

static int is_signed(enum shunt_dtype dtype)
{
    return dtype == SHUNT_I8 || dtype == SHUNT_I32 || dtype == SHUNT_I64;
}

static double decode_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, sizeof(f));
    return f;
}

static double decode_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double sign = bits & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

/* Encode a value that f16 represents exactly as a normal number. */
static uint16_t encode_f16(double value)
{
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */

    if (value == 0)
        return 0;
    return (uint16_t)((signbit(value) ? 0x8000 : 0) | (exponent + 14) << 10 |
                      ((int)(fraction * 2048) & 1023));
}

static double load_float(enum shunt_dtype dtype, const void *p)
{
    uint16_t half;
    float f;
    double d;

    switch (dtype) {
    case SHUNT_F16:
        memcpy(&half, p, sizeof(half));
        return decode_f16(half);
    case SHUNT_BF16:
        memcpy(&half, p, sizeof(half));
        return decode_bf16(half);
    case SHUNT_F32:
        memcpy(&f, p, sizeof(f));
        return (double)f;
    default:
        memcpy(&d, p, sizeof(d));
        return d;
    }
}

/* Returns the number of bits of the significand, including the implicit bit. */
static int precision(enum shunt_dtype dtype)
{
    switch (dtype) {
    case SHUNT_F16:
        return 11;
    case SHUNT_BF16:
        return 8;
    case SHUNT_F32:
        return 24;
    default:
        return 53;
    }
}

/* Store `value`, which the type must represent exactly. */
static void store_float(enum shunt_dtype dtype, void *p, double value)
{
    float f = (float)value;
    uint32_t bits;
    uint16_t half;

    switch (dtype) {
    case SHUNT_F16:
        half = encode_f16(value);
        memcpy(p, &half, sizeof(half));
        break;
    case SHUNT_BF16:
        memcpy(&bits, &f, sizeof(bits));
        half = (uint16_t)(bits >> 16);
        memcpy(p, &half, sizeof(half));
        break;
    case SHUNT_F32:
        memcpy(p, &f, sizeof(f));
        break;
    default:
        memcpy(p, &value, sizeof(value));
    }
}

static void store_integer(enum shunt_dtype dtype, void *p, uint64_t value)
{
    /* Works on little and big endian machines: each size has its own
     * variable. */
    uint8_t small = (uint8_t)value;
    uint32_t medium = (uint32_t)value;

    switch (shunt_dtype_size(dtype)) {
    case 1:
        memcpy(p, &small, 1);
        break;
    case 4:
        memcpy(p, &medium, 4);
        break;
    default:
        memcpy(p, &value, 8);
    }
}

/* Returns the value in 64 bits, sign extended if the type has a sign. */
static uint64_t load_integer(enum shunt_dtype dtype, const void *p)
{
    uint8_t small;
    uint32_t medium;
    uint64_t large;

    switch (shunt_dtype_size(dtype)) {
    case 1:
        memcpy(&small, p, 1);
        return is_signed(dtype) ? (uint64_t)(int8_t)small : small;
    case 4:
        memcpy(&medium, p, 4);
        return is_signed(dtype) ? (uint64_t)(int32_t)medium : medium;
    default:
        memcpy(&large, p, 8);
        return large;
    }
}

/* --- values to reduce ----------------------------------------------------- */

/* Returns a value that uses all bits of the type: in [-1, 1), or for products
 * in ±[0.5, 1.5). */
static double float_value(enum shunt_dtype dtype, enum shunt_op op,
                          uint64_t bits)
{
    int p = precision(dtype) - 1;
    double unit = ldexp((double)(bits >> (64 - p)), -p); /* [0, 1) */
    double sign = bits & 1 ? -1 : 1;

    if (op == SHUNT_PROD)
        return sign * (0.5 + ldexp(floor(ldexp(unit, p - 1)), 1 - p));
    return sign * unit;
}

static uint64_t integer_value(enum shunt_op op, uint64_t bits)
{
    /* Sums wrap around, but averages of wrapped sums are not defined: keep the
     * values small. */
    return op == SHUNT_AVG ? bits >> 60 : bits;
}

void perf_fill_values(void *to, enum shunt_dtype dtype, enum shunt_op op,
                      uint64_t key, size_t from, size_t count)
{
    size_t size = shunt_dtype_size(dtype);
    char *p = to;

    for (size_t i = 0; i < count; i++, p += size) {
        uint64_t bits = perf_random(key, from + i);
        if (is_float(dtype))
            store_float(dtype, p, float_value(dtype, op, bits));
        else
            store_integer(dtype, p, integer_value(op, bits));
    }
}

struct accumulator {
    double value;
    double magnitude; /* sum of absolute values, to which rounding errors are
                       * relative */
    uint64_t integer;
};

static void add_float(struct accumulator *a, enum shunt_op op, double v,
                      int first)
{
    if (first) {
        a->value = v;
        a->magnitude = fabs(v);
        return;
    }
    switch (op) {
    case SHUNT_SUM:
    case SHUNT_AVG:
        a->value += v;
        break;
    case SHUNT_PROD:
        a->value *= v;
        break;
    case SHUNT_MIN:
        a->value = v < a->value ? v : a->value;
        break;
    case SHUNT_MAX:
        a->value = v > a->value ? v : a->value;
        break;
    }
    a->magnitude += fabs(v);
}

static void add_integer(struct accumulator *a, enum shunt_dtype dtype,
                        enum shunt_op op, uint64_t v, int first)
{
    int less =
        is_signed(dtype) ? (int64_t)v < (int64_t)a->integer : v < a->integer;
    if (first) {
        a->integer = v;
        return;
    }
    switch (op) {
    case SHUNT_SUM:
    case SHUNT_AVG:
        a->integer += v;
        break;
    case SHUNT_PROD:
        a->integer *= v;
        break;
    case SHUNT_MIN:
        a->integer = less ? v : a->integer;
        break;
    case SHUNT_MAX:
        a->integer = less ? a->integer : v;
        break;
    }
}

static int float_is_right(const struct accumulator *a, enum shunt_dtype dtype,
                          enum shunt_op op, int ranks, double got)
{
    double value = op == SHUNT_AVG ? a->value / ranks : a->value;
    double magnitude = op == SHUNT_PROD  ? fabs(value)
                       : op == SHUNT_AVG ? a->magnitude / ranks
                                         : a->magnitude;
    int steps = precision(dtype) < 24 ? 24 : precision(dtype);
    double bound = 0;

    if (op != SHUNT_MIN && op != SHUNT_MAX) {
        bound = (ranks + 1) * ldexp(magnitude, -steps);
        if (steps != precision(dtype))
            bound += ldexp(fabs(value) + bound, -precision(dtype));
    }
    /* The comparison is false for a NaN, which thus counts as wrong. */
    return fabs(got - value) <= bound;
}

static int integer_is_right(const struct accumulator *a, enum shunt_dtype dtype,
                            enum shunt_op op, int ranks, const void *got)
{
    uint64_t value = a->integer;
    unsigned char expected[8];

    if (op == SHUNT_AVG)
        value /= (uint64_t)ranks; /* the inputs are not negative */
    store_integer(dtype, expected, value);
    return memcmp(got, expected, shunt_dtype_size(dtype)) == 0;
}

size_t perf_check_values(const void *got, enum shunt_dtype dtype,
                         enum shunt_op op, const uint64_t *keys, int ranks,
                         size_t from, size_t count)
{
    static struct accumulator a[BLOCK];
    unsigned char values[BLOCK * 8];
    size_t size = shunt_dtype_size(dtype), wrong = 0;
    const char *p = got;

    while (count > 0) {
        size_t n = count < BLOCK ? count : BLOCK;
        for (int r = 0; r < ranks; r++) {
            perf_fill_values(values, dtype, op, keys[r], from, n);
            for (size_t i = 0; i < n; i++) {
                const void *v = values + i * size;
                if (is_float(dtype))
                    add_float(&a[i], op, load_float(dtype, v), r == 0);
                else
                    add_integer(&a[i], dtype, op, load_integer(dtype, v),
                                r == 0);
            }
        }
        for (size_t i = 0; i < n; i++, p += size)
            wrong += is_float(dtype)
                         ? !float_is_right(&a[i], dtype, op, ranks,
                                           load_float(dtype, p))
                         : !integer_is_right(&a[i], dtype, op, ranks, p);
        from += n;
        count -= n;
    }
    return wrong;
}

/* --- rows of tokens ------------------------------------------------------- */

enum { STREAM_X = 11, STREAM_OUT };

/* Fill a row with values between 2^-3 and 2, of either sign. */
static void fill_row(const struct perf_rows *rows, uint64_t key, void *to)
{
    char *p = to;

    if (rows->dtype == SHUNT_F32) {
        for (size_t i = 0; i < rows->hidden; i++, p += 4) {
            uint64_t r = perf_random(key, i);
            uint32_t bits = (uint32_t)(r & 0x807fffff) |
                            (uint32_t)(124 + (r >> 40 & 3)) << 23;
            memcpy(p, &bits, 4);
        }
        return;
    }
    for (size_t i = 0; i < rows->hidden; i += 4) {
        uint64_t r = perf_random(key, i / 4);
        size_t n = rows->hidden - i < 4 ? rows->hidden - i : 4;
        for (size_t j = 0; j < n; j++, p += 2, r >>= 16) {
            uint16_t bits =
                (uint16_t)((r & 0x807f) | (124 + (r >> 8 & 3)) << 7);
            memcpy(p, &bits, 2);
        }
    }
}

static void fill_x_row(const struct perf_rows *rows, int source, size_t token,
                       void *to)
{
    fill_row(rows, perf_key(rows->seed, STREAM_X, (uint64_t)source, token), to);
}

static void fill_out_row(const struct perf_rows *rows, int source, size_t token,
                         int slot, void *to)
{
    uint64_t topk = (uint64_t)rows->routing->topk;
    fill_row(rows,
             perf_key(rows->seed, STREAM_OUT, (uint64_t)source,
                      token * topk + (uint64_t)slot),
             to);
}

void perf_fill_x(const struct perf_rows *rows, void *x)
{
    size_t bytes = rows->hidden * shunt_dtype_size(rows->dtype);
    for (size_t t = 0; t < rows->routing->tokens; t++)
        fill_x_row(rows, rows->rank, t, (char *)x + t * bytes);
}

static size_t check_fp8_row(const struct perf_rows *rows, const char *expected,
                            const char *got)
{
    size_t size = shunt_dtype_size(rows->dtype), wrong = 0;

    for (size_t start = 0; start < rows->hidden; start += 128) {
        size_t end = start + 128 < rows->hidden ? start + 128 : rows->hidden;
        double largest = 1e-4;
        for (size_t i = start; i < end; i++)
            largest = fmax(largest,
                           fabs(load_float(rows->dtype, expected + i * size)));
        for (size_t i = start; i < end; i++) {
            double x = load_float(rows->dtype, expected + i * size);
            double y = load_float(rows->dtype, got + i * size);
            double bound = fmax(fabs(x) / 17, ldexp(largest / 448, -10));
            bound += ldexp(fabs(x) + bound, -precision(rows->dtype)) +
                     ldexp(fabs(x), -22); /* the scale is rounded as well */
            wrong += !(fabs(y - x) <= bound);
        }
    }
    return wrong;
}

size_t perf_check_dispatch(const struct perf_rows *rows, int fp8,
                           const void *got)
{
    size_t size = shunt_dtype_size(rows->dtype), bytes = rows->hidden * size;
    size_t count, wrong = 0;
    struct perf_arrival *arrivals =
        perf_routing_arrivals(rows->routing, rows->rank, &count);
    char *expected = perf_alloc(bytes);
    const char *p = got;

    for (size_t i = 0; i < count; i++, p += bytes) {
        fill_x_row(rows, arrivals[i].source, (size_t)arrivals[i].token,
                   expected);
        if (fp8)
            wrong += check_fp8_row(rows, expected, p);
        else if (memcmp(p, expected, bytes) != 0)
            for (size_t j = 0; j < bytes; j += size)
                wrong += memcmp(p + j, expected + j, size) != 0;
    }
    free(expected);
    free(arrivals);
    return wrong;
}

void perf_fill_out(const struct perf_rows *rows, void *out)
{
    size_t bytes = rows->hidden * shunt_dtype_size(rows->dtype), count;
    struct perf_arrival *arrivals =
        perf_routing_arrivals(rows->routing, rows->rank, &count);

    for (size_t i = 0; i < count; i++)
        fill_out_row(rows, arrivals[i].source, (size_t)arrivals[i].token,
                     arrivals[i].slot, (char *)out + i * bytes);
    free(arrivals);
}

size_t perf_check_combine_backward(const struct perf_rows *rows,
                                   const void *dout)
{
    size_t size = shunt_dtype_size(rows->dtype), count, wrong = 0;
    struct perf_arrival *arrivals =
        perf_routing_arrivals(rows->routing, rows->rank, &count);
    char *dy = perf_alloc(rows->hidden * size);
    const char *p = dout;

    for (size_t i = 0; i < count; i++) {
        size_t token = (size_t)arrivals[i].token;
        double weight = (double)perf_token_weights(
            rows->routing, arrivals[i].source, token)[arrivals[i].slot];
        fill_x_row(rows, arrivals[i].source, token, dy);
        for (size_t j = 0; j < rows->hidden; j++, p += size) {
            double v = weight * load_float(rows->dtype, dy + j * size);
            double bound = ldexp(fabs(v), -24);
            if (rows->dtype != SHUNT_F32)
                bound += ldexp(fabs(v) + bound, -precision(rows->dtype));
            wrong += !(fabs(load_float(rows->dtype, p) - v) <= bound);
        }
    }
    free(dy);
    free(arrivals);
    return wrong;
}

size_t perf_check_dweight(const struct perf_rows *rows, const float *dweight)
{
    size_t size = shunt_dtype_size(rows->dtype), hidden = rows->hidden;
    char *dy = perf_alloc(hidden * size), *out = perf_alloc(hidden * size);
    size_t wrong = 0;

    for (size_t t = 0; t < rows->routing->tokens; t++) {
        const int32_t *experts =
            perf_token_experts(rows->routing, rows->rank, t);

        fill_x_row(rows, rows->rank, t, dy);
        for (int k = 0; k < rows->routing->topk; k++, dweight++) {
            double sum = 0, magnitude = 0;
            fill_out_row(rows, rows->rank, t, k, out);
            for (size_t i = 0; i < hidden && experts[k] >= 0; i++) {
                double v = load_float(rows->dtype, dy + i * size) *
                           load_float(rows->dtype, out + i * size);
                sum += v;
                magnitude += fabs(v);
            }
            double bound = (double)(hidden + 1) * ldexp(magnitude, -24);
            wrong += !(fabs((double)*dweight - sum) <= bound);
        }
    }
    free(dy);
    free(out);
    return wrong;
}

/* Sums of the expert results for a token. */
struct sums {
    bool weighted;
    double *all;       /* (hidden) */
    double *magnitude; /* (hidden) sum of the results' absolute values */
    double *node;      /* (hidden) sum over the experts of one node */
    double *carried;   /* (hidden) sum of the absolute values of other nodes'
                        * sums */
    char *row;
};

static struct sums alloc_sums(const struct perf_rows *rows, bool weighted)
{
    size_t bytes = rows->hidden * sizeof(double);
    return (struct sums){
        .weighted = weighted,
        .all = perf_alloc(bytes),
        .magnitude = perf_alloc(bytes),
        .node = perf_alloc(bytes),
        .carried = perf_alloc(bytes),
        .row = perf_alloc(rows->hidden * shunt_dtype_size(rows->dtype)),
    };
}

static void free_sums(struct sums *s)
{
    free(s->all);
    free(s->magnitude);
    free(s->node);
    free(s->carried);
    free(s->row);
}

static void add_answer(const struct perf_rows *rows, size_t token, int slot,
                       struct sums *s)
{
    size_t size = shunt_dtype_size(rows->dtype);
    double weight = 1;

    if (perf_token_experts(rows->routing, rows->rank, token)[slot] < 0)
        return;
    if (s->weighted)
        weight =
            (double)perf_token_weights(rows->routing, rows->rank, token)[slot];

    fill_out_row(rows, rows->rank, token, slot, s->row);
    for (size_t i = 0; i < rows->hidden; i++) {
        double v = weight * load_float(rows->dtype, s->row + i * size);
        s->node[i] += v;
        s->magnitude[i] += fabs(v);
    }
}

static int node_of_slot(const struct perf_rows *rows, const int *node_of,
                        size_t token, int slot)
{
    const struct perf_routing *r = rows->routing;
    const int32_t *experts = perf_token_experts(r, rows->rank, token);
    int rank = perf_expert_rank(r, experts[slot]);
    return node_of && rank >= 0 ? node_of[rank] : 0;
}

/* Add the results node by node, in the order in which the slots name the
 * nodes. */
static void add_answers(const struct perf_rows *rows, const int *node_of,
                        size_t token, struct sums *s)
{
    int topk = rows->routing->topk, home = node_of ? node_of[rows->rank] : 0;
    size_t bytes = rows->hidden * sizeof(double);

    memset(s->all, 0, bytes);
    memset(s->magnitude, 0, bytes);
    memset(s->carried, 0, bytes);
    for (int first = 0; first < topk; first++) {
        int node = node_of_slot(rows, node_of, token, first), k = 0;

        while (node_of_slot(rows, node_of, token, k) != node)
            k++;
        if (k < first)
            continue; /* an earlier slot added this node */
        memset(s->node, 0, bytes);
        for (; k < topk; k++)
            if (node_of_slot(rows, node_of, token, k) == node)
                add_answer(rows, token, k, s);
        for (size_t i = 0; i < rows->hidden; i++) {
            s->all[i] += s->node[i];
            s->carried[i] += node != home ? fabs(s->node[i]) : 0;
        }
    }
}

size_t perf_check_combine(const struct perf_rows *rows, bool weighted,
                          const int *node_of, const void *y)
{
    const struct perf_routing *r = rows->routing;
    size_t size = shunt_dtype_size(rows->dtype), wrong = 0;
    struct sums s = alloc_sums(rows, weighted);
    const char *got = y;

    for (size_t t = 0; t < r->tokens; t++) {
        add_answers(rows, node_of, t, &s);
        for (size_t i = 0; i < rows->hidden; i++, got += size) {
            double bound = (r->topk + 1) * ldexp(s.magnitude[i], -24);
            if (rows->dtype != SHUNT_F32) {
                bound += ldexp(s.carried[i] + bound, -precision(rows->dtype));
                bound += ldexp(fabs(s.all[i]) + bound, -precision(rows->dtype));
            }
            wrong += !(fabs(load_float(rows->dtype, got) - s.all[i]) <= bound);
        }
    }
    free_sums(&s);
    return wrong;
}
