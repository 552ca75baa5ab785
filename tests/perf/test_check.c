// SPDX-License-Identifier: Apache-2.0
/* Tests that shunt-perf's checks accept right results and count wrong
 * elements. */

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/check.h"
#include "perf/collectives/coll.h"
#include "perf/peers/engine.h"
#include "perf/tables/table.h"
#include "perf/tokens/moe.h"

TestSuite(check, .timeout = 60);

#define N 5000

/* Filling a stream in pieces, at any offset and alignment, gives the same
 * bytes. */
Test(check, bytes_in_pieces)
{
    static unsigned char all[N + 16], pieces[N + 16];

    perf_fill_bytes(all, 42, 3, N);
    for (size_t at = 0, step = 1; at < N; at += step, step = step * 3 % 29 + 1)
        perf_fill_bytes(pieces + at, 42, 3 + at, at + step < N ? step : N - at);
    cr_assert_eq(memcmp(all, pieces, N), 0);
    perf_fill_bytes(pieces, 43, 3, N);
    cr_assert_neq(memcmp(all, pieces, N), 0);
    cr_assert_eq(perf_check_bytes(all, 42, 3, N, 1), 0);
}

Test(check, bytes_count_wrong_elements)
{
    static unsigned char buffer[32768];
    const size_t n = sizeof(buffer);

    perf_fill_bytes(buffer, 1, 0, n);
    cr_assert_eq(perf_check_bytes(buffer, 1, 0, n, 4), 0);
    buffer[0] ^= 1;
    buffer[3] ^= 1; /* in the same element as byte 0 */
    buffer[8191] ^= 128;
    buffer[n - 1] ^= 1;
    cr_assert_eq(perf_check_bytes(buffer, 1, 0, n, 4), 3);
    /* The data of an offset that is 4 bytes higher. */
    perf_fill_bytes(buffer, 1, 4, n);
    cr_assert_eq(perf_check_bytes(buffer, 1, 0, n, 4), n / 4);
    memset(buffer, PERF_POISON, n);
    cr_assert_eq(perf_check_bytes(buffer, 1, 0, n, 8), n / 8);
}

/* Compare integers with plain loops in the integers' own type. */
#define TEST_INTEGER(name, type, dtype)                                       \
    Test(check, name)                                                         \
    {                                                                         \
        static type in[3][N], out[N];                                         \
        const uint64_t keys[] = {11, 22, 33};                                 \
        for (int op = SHUNT_SUM; op <= SHUNT_PROD; op++) {                    \
            for (int r = 0; r < 3; r++)                                       \
                perf_fill_values(in[r], dtype, (enum shunt_op)op, keys[r], 7, \
                                 N);                                          \
            for (int i = 0; i < N; i++) {                                     \
                type a = in[0][i], b = in[1][i], c = in[2][i];                \
                type low = a < b ? a : b, high = a > b ? a : b;               \
                out[i] =                                                      \
                    op == SHUNT_SUM                                           \
                        ? (type)((uint64_t)a + (uint64_t)b + (uint64_t)c)     \
                    : op == SHUNT_MIN ? (low < c ? low : c)                   \
                    : op == SHUNT_MAX ? (high > c ? high : c)                 \
                    : op == SHUNT_AVG                                         \
                        ? (type)((a + b + c) / 3)                             \
                        : (type)((uint64_t)a * (uint64_t)b * (uint64_t)c);    \
            }                                                                 \
            cr_assert_eq(perf_check_values(out, dtype, (enum shunt_op)op,     \
                                           keys, 3, 7, N),                    \
                         0, "op %d", op);                                     \
            out[0]++;                                                         \
            out[N - 1]--;                                                     \
            cr_assert_eq(perf_check_values(out, dtype, (enum shunt_op)op,     \
                                           keys, 3, 7, N),                    \
                         2, "op %d", op);                                     \
        }                                                                     \
    }

TEST_INTEGER(i8, int8_t, SHUNT_I8)
TEST_INTEGER(u8, uint8_t, SHUNT_U8)
TEST_INTEGER(i32, int32_t, SHUNT_I32)
TEST_INTEGER(u32, uint32_t, SHUNT_U32)
TEST_INTEGER(i64, int64_t, SHUNT_I64)
TEST_INTEGER(u64, uint64_t, SHUNT_U64)

Test(check, f32_sums_in_any_order_and_nothing_worse)
{
    static float in[4][N], out[N];
    const uint64_t keys[] = {1, 2, 3, 4};

    for (int r = 0; r < 4; r++)
        perf_fill_values(in[r], SHUNT_F32, SHUNT_SUM, keys[r], 0, N);
    for (int i = 0; i < N; i++)
        out[i] = (in[0][i] + in[1][i]) + (in[2][i] + in[3][i]);
    cr_assert_eq(perf_check_values(out, SHUNT_F32, SHUNT_SUM, keys, 4, 0, N),
                 0);
    for (int i = 0; i < N; i++)
        out[i] = ((in[3][i] + in[1][i]) + in[0][i]) + in[2][i];
    cr_assert_eq(perf_check_values(out, SHUNT_F32, SHUNT_SUM, keys, 4, 0, N),
                 0);
    /* If a rank is left out, or counted twice, nearly all elements are
     * wrong. */
    for (int i = 0; i < N; i++)
        out[i] = (in[0][i] + in[1][i]) + in[2][i];
    cr_assert_gt(perf_check_values(out, SHUNT_F32, SHUNT_SUM, keys, 4, 0, N),
                 N - 10);
    out[5] = NAN;
    cr_assert_eq(
        perf_check_values(out + 5, SHUNT_F32, SHUNT_SUM, keys, 4, 5, 1), 1);
}

static float wide(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t narrow(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* Sums in f32, rounded once, pass; sums rounded at each step do not. */
Test(check, bf16_is_rounded_once)
{
    static uint16_t in[4][N], out[N];
    const uint64_t keys[] = {1, 2, 3, 4};

    for (int r = 0; r < 4; r++)
        perf_fill_values(in[r], SHUNT_BF16, SHUNT_SUM, keys[r], 0, N);
    for (int i = 0; i < N; i++)
        out[i] = narrow(wide(in[0][i]) + wide(in[1][i]) + wide(in[2][i]) +
                        wide(in[3][i]));
    cr_assert_eq(perf_check_values(out, SHUNT_BF16, SHUNT_SUM, keys, 4, 0, N),
                 0);
    for (int i = 0; i < N; i++) {
        out[i] = narrow(wide(in[0][i]) + wide(in[1][i]));
        out[i] = narrow(wide(out[i]) + wide(in[2][i]));
        out[i] = narrow(wide(out[i]) + wide(in[3][i]));
    }
    cr_assert_gt(perf_check_values(out, SHUNT_BF16, SHUNT_SUM, keys, 4, 0, N),
                 N / 100);
}

Test(check, f16)
{
    static uint16_t in[N];

    perf_fill_values(in, SHUNT_F16, SHUNT_SUM, 9, 0, N);
    size_t different = 0;
    for (int i = 0; i < N; i++) {
        /* the exponent of values in (-1, 1) is below that of 1.0, which is
         * 15 */
        cr_assert_lt(in[i] >> 10 & 31, 15);
        different += i > 0 && in[i] != in[i - 1];
    }
    cr_assert_gt(different, N - 50);
    /* A copy of one rank's values is their sum over one rank. */
    const uint64_t key = 9;
    for (int op = SHUNT_SUM; op <= SHUNT_PROD; op++) {
        perf_fill_values(in, SHUNT_F16, (enum shunt_op)op, key, 0, N);
        cr_assert_eq(
            perf_check_values(in, SHUNT_F16, (enum shunt_op)op, &key, 1, 0, N),
            0, "op %d", op);
        in[1] ^= 0x8000;
        in[2] += 2;
        cr_assert_eq(
            perf_check_values(in, SHUNT_F16, (enum shunt_op)op, &key, 1, 0, N),
            2, "op %d", op);
    }
}

Test(check, f64_min_is_exact)
{
    static double in[2][N], out[N];
    const uint64_t keys[] = {5, 6};

    for (int r = 0; r < 2; r++)
        perf_fill_values(in[r], SHUNT_F64, SHUNT_MIN, keys[r], 0, N);
    for (int i = 0; i < N; i++)
        out[i] = in[0][i] < in[1][i] ? in[0][i] : in[1][i];
    cr_assert_eq(perf_check_values(out, SHUNT_F64, SHUNT_MIN, keys, 2, 0, N),
                 0);
    out[17] = nextafter(out[17], 2);
    cr_assert_eq(perf_check_values(out, SHUNT_F64, SHUNT_MIN, keys, 2, 0, N),
                 1);
}

/* -- exchanges, by a plain gather ------------------------------------------ */

struct world {
    struct perf_routing routing;
    struct perf_rows rows[2]; /* rows of each rank */
    void *x[2];
    size_t bytes;
};

static void make_world(struct world *w, enum shunt_dtype dtype)
{
    struct perf_routing_config config = {2, 6, 3, 40, PERF_SKEW_ZIPF,
                                         1, 2, 3, 0};

    *w = (struct world){.bytes = 200 * shunt_dtype_size(dtype)};
    cr_assert_null(perf_routing_init(&w->routing, &config));
    for (int r = 0; r < 2; r++) {
        w->rows[r] = (struct perf_rows){
            .routing = &w->routing,
            .rank = r,
            .hidden = 200,
            .dtype = dtype,
            .seed = 77,
        };
        w->x[r] = malloc(40 * w->bytes);
        perf_fill_x(&w->rows[r], w->x[r]);
    }
}

/* Returns the rows of rank 1, expert by expert, computed from the
 * definition. */
static char *gather(const struct world *w, size_t *count)
{
    char *rows = malloc(2 * 40 * 3 * w->bytes);
    size_t n = 0;

    for (int e = 3; e < 6; e++)
        for (int s = 0; s < 2; s++)
            for (size_t t = 0; t < 40; t++)
                for (size_t k = 0; k < 3; k++)
                    if (w->routing.index[((size_t)s * 40 + t) * 3 + k] == e)
                        memcpy(rows + n++ * w->bytes,
                               (const char *)w->x[s] + t * w->bytes, w->bytes);
    *count = n;
    return rows;
}

static void free_world(struct world *w)
{
    free(w->x[0]);
    free(w->x[1]);
    perf_routing_finish(&w->routing);
}

/* Calls `add` for each result row that an expert of `rank` returns to rank
 * 0. */
static void each_answer(const struct world *w, int rank,
                        void (*add)(const struct world *w,
                                    const struct perf_arrival *a,
                                    const void *row, float *to),
                        float *to)
{
    size_t count;
    struct perf_arrival *a = perf_routing_arrivals(&w->routing, rank, &count);
    char *out = malloc(count * w->bytes);

    perf_fill_out(&w->rows[rank], out);
    for (size_t i = 0; i < count; i++)
        if (a[i].source == 0)
            add(w, &a[i], out + i * w->bytes, to);
    free(out);
    free(a);
}

static float element(const struct world *w, const void *row, size_t h)
{
    return w->bytes == 200 * sizeof(float) ? ((const float *)row)[h]
                                           : wide(((const uint16_t *)row)[h]);
}

/* Add a row times its weight to `sums`, (tokens, 200). */
static void add_weighted(const struct world *w, const struct perf_arrival *a,
                         const void *row, float *sums)
{
    float weight = w->routing.weight[(size_t)a->token * 3 + (size_t)a->slot];

    for (size_t h = 0; h < 200; h++)
        sums[(size_t)a->token * 200 + h] += weight * element(w, row, h);
}

/* Add the product of dy and a row to `dweight`, (tokens, 3). */
static void add_product(const struct world *w, const struct perf_arrival *a,
                        const void *row, float *dweight)
{
    const float *dy = (const float *)w->x[0] + (size_t)a->token * 200;

    for (size_t h = 0; h < 200; h++)
        dweight[a->token * 3 + a->slot] += dy[h] * element(w, row, h);
}

static const enum shunt_dtype row_types[] = {SHUNT_BF16, SHUNT_F32};

Test(check, dispatch)
{
    for (int i = 0; i < 2; i++) {
        struct world w;
        size_t count;

        make_world(&w, row_types[i]);
        char *rows = gather(&w, &count);

        cr_assert_eq(perf_check_dispatch(&w.rows[1], 0, rows), 0);
        cr_assert_eq(perf_check_dispatch(&w.rows[1], 1, rows), 0);
        rows[0] ^= 1;
        rows[(count - 1) * w.bytes + w.bytes - 1] ^= 0x40;
        cr_assert_eq(perf_check_dispatch(&w.rows[1], 0, rows), 2);
        memset(rows, PERF_POISON, count * w.bytes);
        cr_assert_eq(perf_check_dispatch(&w.rows[1], 0, rows), count * 200);
        cr_assert_eq(perf_check_dispatch(&w.rows[1], 1, rows), count * 200);
        free(rows);
        free_world(&w);
    }
}

/* A sum whose parts were rounded is right only if rounding is expected. */
Test(check, combine_of_rounded_sums)
{
    static const int apart[] = {0, 1}, together[] = {0, 0};
    struct world w;

    make_world(&w, SHUNT_BF16);
    uint16_t *y = calloc(40, w.bytes);

    /* Round rank 1's part to bf16, and then the whole sum. */
    float *home = calloc(40 * 200, sizeof(*home));
    float *away = calloc(40 * 200, sizeof(*away));
    each_answer(&w, 0, add_weighted, home);
    each_answer(&w, 1, add_weighted, away);
    for (size_t i = 0; i < 40 * 200; i++)
        y[i] = narrow(home[i] + wide(narrow(away[i])));
    cr_assert_eq(perf_check_combine(&w.rows[0], true, apart, y), 0);
    cr_assert_gt(perf_check_combine(&w.rows[0], true, NULL, y), 0);
    cr_assert_gt(perf_check_combine(&w.rows[0], true, together, y), 0);
    for (size_t i = 0; i < 40 * 200; i++)
        y[i] = narrow(1.02F * home[i] + 1.02F * away[i]);
    cr_assert_gt(perf_check_combine(&w.rows[0], true, apart, y), 4000);
    free(home);
    free(away);
    free(y);
    free_world(&w);
}

/* Compute the results of all experts, and their sum, from perf_fill_out()
 * alone. */
Test(check, combine)
{
    struct world w;

    make_world(&w, SHUNT_F32);
    float *y = calloc(40, w.bytes);

    for (int rank = 0; rank < 2; rank++)
        each_answer(&w, rank, add_weighted, y);
    cr_assert_eq(perf_check_combine(&w.rows[0], true, NULL, y), 0);
    cr_assert_gt(perf_check_combine(&w.rows[0], false, NULL, y), 7000);
    y[3] *= 1.00001F;
    y[7999] = -y[7999];
    cr_assert_eq(perf_check_combine(&w.rows[0], true, NULL, y), 2);
    memset(y, PERF_POISON, 40 * w.bytes);
    cr_assert_eq(perf_check_combine(&w.rows[0], true, NULL, y), 8000);
    free(y);
    free_world(&w);
}

/* Compute the gradients of combine from x and perf_fill_out() alone. */
Test(check, combine_backward)
{
    struct world w;
    size_t count;

    make_world(&w, SHUNT_F32);
    struct perf_arrival *a = perf_routing_arrivals(&w.routing, 1, &count);
    float *dout = malloc(count * w.bytes);
    for (size_t i = 0; i < count; i++) {
        const float *weight =
            perf_token_weights(&w.routing, a[i].source, (size_t)a[i].token);
        const float *dy =
            (const float *)w.x[a[i].source] + (size_t)a[i].token * 200;
        for (size_t h = 0; h < 200; h++)
            dout[i * 200 + h] = weight[a[i].slot] * dy[h];
    }
    cr_assert_eq(perf_check_combine_backward(&w.rows[1], dout), 0);
    dout[0] *= 1.000001F;
    dout[count * 200 - 1] = 0;
    cr_assert_eq(perf_check_combine_backward(&w.rows[1], dout), 2);
    memset(dout, PERF_POISON, count * w.bytes);
    cr_assert_eq(perf_check_combine_backward(&w.rows[1], dout), count * 200);
    free(dout);
    free(a);
    free_world(&w);
}

Test(check, gradients_of_weights)
{
    struct world w;
    float dweight[40 * 3] = {0};

    make_world(&w, SHUNT_F32);
    for (int rank = 0; rank < 2; rank++)
        each_answer(&w, rank, add_product, dweight);
    cr_assert_eq(perf_check_dweight(&w.rows[0], dweight), 0);
    dweight[7] += 0.1F;
    dweight[119] = -dweight[119];
    cr_assert_eq(perf_check_dweight(&w.rows[0], dweight), 2);
    memset(dweight, PERF_POISON, sizeof(dweight));
    cr_assert_eq(perf_check_dweight(&w.rows[0], dweight), 120);
    free_world(&w);
}

/* -- a whole run with an engine that is wrong at times --------------------- */

static size_t spoil; /* the element to make wrong; SIZE_MAX: none */

static const char *open_copy(const struct perf_call *call, void **state)
{
    static struct perf_call kept;
    kept = *call;
    *state = &kept;
    return NULL;
}

static void run_copy(void *state)
{
    const struct perf_call *c = state;
    memcpy(c->recv, c->send, c->count * shunt_dtype_size(c->dtype));
    if (spoil < c->count)
        ((float *)c->recv)[spoil] += 1;
}

static void close_copy(void *state)
{
    (void)state;
}

static const struct perf_engine copy_engine = {
    .name = "copy",
    .delivers = true,
    .call_open = open_copy,
    .call_run = run_copy,
    .call_close = close_copy,
};

static bool sweep(enum perf_op op)
{
    struct perf_options options = {
        .op = op,
        .begin = 64,
        .end = 4096,
        .factor = 8,
        .dtype = SHUNT_F32,
        .reduce = SHUNT_SUM,
        .samples = 2,
        .batch = 1,
        .json = true,
    };
    int zero = 0, one = 1;
    struct perf_group group = {
        .ranks = 1,
        .hosts = {.n = 1, .of = &zero, .size = &one},
        .node_of = &zero,
        .processors = 1,
    };
    struct perf_settings settings = {
        .options = &options, .group = &group, .pinning = "no"};

    struct perf_contest contest = {
        .options = &options,
        .group = &group,
        .engine = {[PERF_PEER] = &copy_engine},
    };

    perf_table_open(&settings);
    perf_coll(&contest);
    return perf_table_close();
}

Test(check, a_right_sweep_is_right)
{
    spoil = SIZE_MAX;
    cr_assert(sweep(PERF_ALLREDUCE));
    cr_assert(sweep(PERF_ALLTOALL));
    cr_assert(sweep(PERF_ALLGATHER));
}

Test(check, one_wrong_element_makes_a_sweep_wrong)
{
    spoil = 900; /* only in the largest size */
    cr_assert_not(sweep(PERF_ALLREDUCE));
}

Test(check, one_wrong_element_makes_a_move_wrong)
{
    spoil = 0;
    cr_assert_not(sweep(PERF_ALLTOALL));
}
