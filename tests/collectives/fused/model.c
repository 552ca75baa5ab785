// SPDX-License-Identifier: Apache-2.0
/* See model.h. */
#include "tests/collectives/fused/model.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POISON = 0xa5 };

static uint64_t mix(uint64_t a, uint64_t b)
{
    struct random r = {a * 0x9e3779b97f4a7c15 ^ (b + 0x632be59bd9b4e019)};

    return random_next(&r);
}

/* A number with 24 bits of mantissa and an exponent from -36 to -12, or now and
 * then a zero of either sign. The bits of a sum of them depend on the order. */
static float real(uint64_t bits)
{
    const uint32_t power = (uint32_t)(127 - 36 + (bits >> 8 & 0xff) % 25) << 23;
    float scale;

    memcpy(&scale, &power, sizeof(scale));
    if ((bits >> 1) % 16 == 0)
        scale = 0;
    return (float)(bits >> 40) * (bits & 1 ? -scale : scale);
}

/* The key of a row: its element in column `col` is real(mix(key, col)). */
static uint64_t row_key(const struct model *m, int rank, size_t row)
{
    return mix(m->seed + (uint64_t)rank, row);
}

static unsigned char input(const struct model *m, size_t row, size_t byte)
{
    return (unsigned char)mix(m->seed ^ 0x5851f42d4c957f2d,
                              row * m->shape.row_bytes + byte);
}

/* Returns a weight from three bytes of the row. */
static float weigh(const struct model *m, const unsigned char *row)
{
    const size_t n = m->shape.row_bytes;

    return n ? (float)(1 + row[0] + row[n / 2] + row[n - 1]) : 1.0f;
}

/* --- the order of tiles ----------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The rows of the rank that has the most. */
static size_t most_rows(const struct model *m)
{
    size_t most = 0;

    for (int r = 0; r < m->size; r++)
        most = m->counts[r] > most ? m->counts[r] : most;
    return most;
}

/* The number of columns of a panel. A panel has at least 64 columns, and 32 KiB
 * of the largest segment; there are at most 32 panels. On one node a panel has
 * at most 16 MiB of all rows. */
static size_t panel_columns(const struct model *m)
{
    const size_t cols = m->shape.cols;
    const size_t bytes = cols * most_rows(m) * sizeof(float);
    const size_t fit = ((size_t)4 << 20) / m->shape.rows, whole = fit / 64 * 64;
    const size_t most = m->nodes > 1  ? least(32, least(cols / 64, bytes >> 15))
                        : cols <= fit ? 1
                                      : (cols + whole - 1) / whole;
    const size_t each = most ? (cols + most - 1) / most : cols;

    return least((each + 63) / 64 * 64, cols);
}

/* The number of chunks. A chunk has at least 64 rows, and 32 KiB of the rank
 * that has the most rows. */
static size_t chunks(const struct model *m)
{
    const size_t rows = most_rows(m);
    const size_t most =
        least(32, least(rows / 64, rows * m->shape.row_bytes >> 15));

    return most ? most : 1;
}

static bool lies_in(size_t at, size_t n, size_t begin, size_t end)
{
    return at >= begin && at + n <= end;
}

size_t model_part(const struct model *m, size_t row, size_t rows, size_t col,
                  size_t cols)
{
    const size_t n = chunks(m), p = (size_t)m->size, step = panel_columns(m);

    if (m->shape.kind == GEMM_REDUCE_SCATTER)
        return col / step == (col + cols - 1) / step ? col / step : SIZE_MAX;
    if (m->nodes == 1 || m->shape.rows <= 32)
        return lies_in(row, rows, 0, m->shape.rows) ? 0 : SIZE_MAX;
    for (size_t r = 0, begin = 0; r < p; begin += m->counts[r++]) {
        const size_t distance = ((size_t)m->rank + p - r) % p;
        const size_t has = m->counts[r];

        if (!distance && lies_in(row, rows, begin, begin + has))
            return 0;
        for (size_t i = 0; distance && i < n; i++)
            if (lies_in(row, rows, begin + has * i / n,
                        begin + has * (i + 1) / n))
                return 1 + i * (p - 1) + distance - 1;
    }
    return SIZE_MAX;
}

static void note_part(struct model *m, size_t part)
{
    m->disordered += part == SIZE_MAX || part < m->part;
    m->part = part;
}

/* --- the tile function ------------------------------------------------------ */

static void delay(struct model *m)
{
    const struct timespec t = {
        0, (long)random_below(&m->delay, (uint64_t)m->shape.delays) * 1000};

    nanosleep(&t, NULL);
}

static void tile(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld)
{
    struct model *m = arg;

    m->tiles++;
    note_part(m, model_part(m, row, rows, col, cols));
    if (m->dies_at && m->tiles == (size_t)m->dies_at)
        raise(SIGKILL);
    if (m->shape.delays)
        delay(m);
    for (size_t i = 0; i < rows; i++) {
        const unsigned char *in =
            m->gathered ? m->gathered + (row + i) * m->shape.row_bytes : NULL;
        const float by = in ? weigh(m, in) : 1;
        const uint64_t key = row_key(m, m->rank, row + i);

        for (size_t j = 0; j < cols; j++) {
            out[i * ld + j] = by * real(mix(key, col + j));
            if (row + i < m->shape.rows && col + j < m->shape.cols)
                m->covered[(row + i) * m->shape.cols + col + j]++;
            else
                m->outside++; /* a tile of another call, or a wrong one */
        }
    }
}

/* --- expected results ----------------------------------------------------- */

/* The sum over the ranks: in rank order within each node, then over the nodes.
 * keys[r] is the key of rank r's row. */
static float sum(const struct model *m, const uint64_t *keys, size_t col)
{
    float total = 0;

    for (int node = 0; node < m->nodes; node++) {
        float of_node = 0;
        bool any = false;

        for (int r = 0; r < m->size; r++) {
            if (m->node[r] != node)
                continue;
            of_node = any ? of_node + real(mix(keys[r], col))
                          : real(mix(keys[r], col));
            any = true;
        }
        total = node ? total + of_node : of_node;
    }
    return total;
}

static float of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, 4);
    return value;
}

/* Round a finite number to the nearest of the two bf16 values around it, by
 * their distance. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    double below, above;

    memcpy(&bits, &value, 4);
    bits >>= 16; /* towards zero */
    below = fabs((double)value - (double)of_bf16((uint16_t)bits));
    above = fabs((double)value - (double)of_bf16((uint16_t)(bits + 1)));
    return (uint16_t)(above < below || (above == below && bits & 1) ? bits + 1
                                                                    : bits);
}

static void expect(const struct model *m, size_t row, size_t col, float t)
{
    const struct shunt_epilogue *e = &m->epilogue;
    const size_t at = row * (m->shape.cols + m->shape.gap) + col;
    uint16_t *narrow = m->want;
    float *wide = m->want;

    t = e->alpha * t;
    if (e->beta != 0) {
        const float old =
            m->shape.dtype == SHUNT_BF16 ? of_bf16(narrow[at]) : wide[at];
        const float term = e->beta * old;

        t = t + term;
    }
    if (e->bias)
        t = t + e->bias[col];
    if (m->shape.dtype == SHUNT_BF16)
        narrow[at] = to_bf16(t);
    else
        wide[at] = t;
}

static void expect_all(struct model *m)
{
    for (size_t i = 0; i < m->out_rows; i++) {
        unsigned char row[4096];
        const size_t n = m->shape.row_bytes;
        uint64_t keys[MODEL_MAX_RANKS];
        float by = 1;

        for (int r = 0; r < m->size; r++)
            keys[r] = row_key(
                m, r,
                i + (m->shape.kind == GEMM_REDUCE_SCATTER ? m->begin : 0));
        if (m->shape.kind == ALLGATHER_GEMM && n) {
            row[0] = input(m, i, 0);
            row[n / 2] = input(m, i, n / 2);
            row[n - 1] = input(m, i, n - 1);
            by = weigh(m, row);
        }
        for (size_t j = 0; j < m->shape.cols; j++)
            expect(m, i, j,
                   m->shape.kind == GEMM_REDUCE_SCATTER
                       ? sum(m, keys, j)
                       : by * real(mix(keys[m->rank], j)));
    }
}

/* --- set-up of a model ---------------------------------------------------- */

static void draw_counts(struct model *m)
{
    struct random r = {m->seed};
    size_t left = m->shape.rows;

    for (int i = 0; i < m->size; i++) {
        size_t n =
            (m->shape.rows + (size_t)(m->size - 1 - i)) / (size_t)m->size;

        if (m->shape.counts == COUNTS_ONE_RANK)
            n = i == m->size / 2 ? left : 0;
        else if (m->shape.counts == COUNTS_RANDOM)
            n = random_below(&r, 3) ? random_below(&r, left + 1) : 0;
        if (m->shape.counts == COUNTS_RANDOM && i == m->size - 1)
            n = left;
        m->counts[i] = n;
        left -= n;
    }
}

/* Fill `out` with numbers before the call, so that beta has something to
 * add. */
static void fill_out(struct model *m)
{
    struct random r = {m->seed + 77 + (uint64_t)m->rank};
    uint16_t *narrow = m->out;
    float *wide = m->out;

    for (size_t i = 0; i < m->out_bytes / shunt_dtype_size(m->shape.dtype);
         i++) {
        const float value = real(random_next(&r));

        if (m->shape.dtype == SHUNT_BF16)
            narrow[i] = to_bf16(value);
        else
            wide[i] = value;
    }
}

static void make_shard(struct model *m)
{
    const size_t n = m->shape.row_bytes, own = m->counts[m->rank];
    unsigned char *at;

    /* One row more than the shape has, because a mistake may claim another
     * row. */
    m->gathered = malloc((m->shape.rows + 1) * n + 1);
    memset(m->gathered, POISON, (m->shape.rows + 1) * n + 1);
    m->shard = calloc((own + 1) * n + 1, 1);
    at = m->shape.in_place ? m->gathered + m->begin * n : m->shard;
    for (size_t i = 0; i < own; i++)
        for (size_t b = 0; b < n; b++)
            at[i * n + b] = input(m, m->begin + i, b);
}

static void make_args(struct model *m)
{
    const struct model_shape *s = &m->shape;
    const size_t *counts = s->counts == COUNTS_NULL ? NULL : m->counts;
    const struct shunt_epilogue *epilogue =
        s->alpha || s->beta || s->bias ? &m->epilogue : NULL;
    const size_t ld = s->gap ? s->cols + s->gap : 0;

    if (s->kind == GEMM_REDUCE_SCATTER)
        m->args.rs = (struct shunt_gemm_reduce_scatter_args){
            .size = sizeof(m->args.rs),
            .rows = s->rows,
            .cols = s->cols,
            .counts = counts,
            .tile = tile,
            .arg = m,
            .epilogue = epilogue,
            .out = m->out,
            .ld = ld,
            .dtype = s->dtype,
        };
    else
        m->args.ag = (struct shunt_allgather_gemm_args){
            .size = sizeof(m->args.ag),
            .rows = s->rows,
            .cols = s->cols,
            .counts = counts,
            .row_bytes = s->row_bytes,
            .shard = s->in_place ? SHUNT_IN_PLACE : m->shard,
            .gathered = m->gathered,
            .tile = tile,
            .arg = m,
            .epilogue = epilogue,
            .out = m->out,
            .ld = ld,
            .dtype = s->dtype,
        };
}

int model_init(struct model *m, const struct rank *self,
               const struct model_shape *shape, uint64_t seed)
{
    memset(m, 0, sizeof(*m));
    m->shape = *shape;
    m->comm = self->comm;
    m->rank = self->rank;
    m->size = self->size;
    m->seed = seed;
    m->delay.state = seed * 31 + (uint64_t)self->rank;
    CHECK(m->size <= MODEL_MAX_RANKS && shape->row_bytes <= 4096, "too many");
    m->nodes = shunt_comm_nodes(m->comm);
    for (int r = 0; r < m->size; r++)
        m->node[r] = shunt_comm_node(m->comm, r);
    draw_counts(m);
    for (int r = 0; r < m->rank; r++)
        m->begin += m->counts[r];
    m->out_rows =
        shape->kind == GEMM_REDUCE_SCATTER ? m->counts[m->rank] : shape->rows;
    m->epilogue = (struct shunt_epilogue){
        .alpha = shape->alpha ? -1.75f : 1.0f,
        .beta = shape->beta ? 0.3f : 0.0f,
    };
    m->bias = malloc((shape->cols + 1) * sizeof(float));
    for (size_t j = 0; j < shape->cols; j++)
        m->bias[j] = real(mix(seed + 5, j));
    if (shape->bias)
        m->epilogue.bias = m->bias;
    m->out_bytes = m->out_rows * (shape->cols + shape->gap) *
                   shunt_dtype_size(shape->dtype);
    m->out = malloc(m->out_bytes + 1);
    m->want = malloc(m->out_bytes + 1);
    m->covered = calloc((shape->rows + 1) * shape->cols + 1, 1);
    if (shape->kind == ALLGATHER_GEMM)
        make_shard(m);
    fill_out(m);
    memcpy(m->want, m->out, m->out_bytes);
    expect_all(m);
    make_args(m);
    return 0;
}

void model_finish(struct model *m)
{
    free(m->bias);
    free(m->out);
    free(m->want);
    free(m->covered);
    free(m->shard);
    free(m->gathered);
}

enum shunt_status model_call(struct model *m, struct shunt_request **request)
{
    if (m->shape.kind == GEMM_REDUCE_SCATTER)
        return request ? shunt_gemm_reduce_scatter_start(m->comm, &m->args.rs,
                                                         request)
                       : shunt_gemm_reduce_scatter(m->comm, &m->args.rs);
    return request ? shunt_allgather_gemm_start(m->comm, &m->args.ag, request)
                   : shunt_allgather_gemm(m->comm, &m->args.ag);
}

/* --- checks after the call ------------------------------------------------ */

static int check_out(const struct model *m)
{
    const size_t size = shunt_dtype_size(m->shape.dtype);
    const size_t ld = m->shape.cols + m->shape.gap;
    const unsigned char *got = m->out, *want = m->want;

    if (!memcmp(got, want, m->out_bytes))
        return 0;
    for (size_t i = 0; i * size < m->out_bytes; i++)
        CHECK(!memcmp(got + i * size, want + i * size, size),
              "%zu rows, %zu columns: row %zu, column %zu differs",
              m->shape.rows, m->shape.cols, i / ld, i % ld);
    return 0;
}

int model_check(const struct model *m)
{
    const size_t n = m->shape.row_bytes;

    for (size_t i = 0; i < m->shape.rows * m->shape.cols; i++)
        CHECK(m->covered[i] == 1, "row %zu, column %zu computed %d times",
              i / m->shape.cols, i % m->shape.cols, m->covered[i]);
    CHECK(!m->outside, "%zu elements that are not of the product", m->outside);
    CHECK(!m->disordered, "%zu of %zu tiles out of order", m->disordered,
          m->tiles);
    CHECK_RUN(check_out(m));
    for (size_t i = 0; m->gathered && i < m->shape.rows * n; i++)
        CHECK(m->gathered[i] == input(m, i / n, i % n),
              "gathered: byte %zu of row %zu", i % n, i / n);
    return 0;
}

int model_untouched(const struct model *m)
{
    struct model before = *m;

    CHECK(m->tiles == 0 || m->shape.kind == GEMM_REDUCE_SCATTER,
          "%zu tiles were computed", m->tiles);
    before.out = malloc(m->out_bytes + 1);
    fill_out(&before);
    const int same = !memcmp(before.out, m->out, m->out_bytes);
    free(before.out);
    CHECK(same, "out was written");
    for (size_t i = 0; m->gathered && i < m->shape.rows * m->shape.row_bytes;
         i++)
        CHECK(m->gathered[i] == POISON, "byte %zu of gathered was written", i);
    return 0;
}
