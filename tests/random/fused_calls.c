// SPDX-License-Identifier: Apache-2.0
/*
 * Fused products of a random program, and their right results by the definition
 * in fused.h. All numbers are small integers, so that sums are exact, also in
 * bf16.
 */

#include <stdlib.h>
#include <string.h>

#include "tests/random/world.h"

/* A product. It is kept as long as its request. */
struct product {
    uint64_t seed;
    int rank;
    /* the gathered rows; NULL if the call gathers none */
    const unsigned char *gathered;
    size_t row_bytes;
    struct shunt_epilogue epilogue;
    float bias[];
};

static float element(const struct product *p, int rank, size_t row, size_t col)
{
    const uint64_t at = (uint64_t)row << 32 | col;

    return (float)((int)(hash(p->seed, (uint64_t)rank, at) % 7) - 3);
}

static unsigned char input(uint64_t seed, size_t row, size_t byte)
{
    return (unsigned char)hash(seed + 1, row, byte);
}

/* Returns the number that the last byte of a row adds to the products of that
 * row. */
static float last_byte(const struct product *p, unsigned char byte)
{
    return p->row_bytes ? (float)(byte % 4) : 0;
}

static void tile(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld)
{
    const struct product *p = arg;

    for (size_t i = 0; i < rows; i++) {
        const unsigned char *end = p->gathered + (row + i + 1) * p->row_bytes;
        const float more = p->row_bytes ? last_byte(p, end[-1]) : 0;

        for (size_t j = 0; j < cols; j++)
            out[i * ld + j] = element(p, p->rank, row + i, col + j) + more;
    }
}

static float after(const struct product *p, float sum, float old, size_t col)
{
    const struct shunt_epilogue *e = &p->epilogue;
    /* may be -0, which would change if 0 were added */
    float t = e->alpha * sum;

    if (e->beta != 0)
        t += e->beta * old;
    return e->bias ? t + e->bias[col] : t;
}

/* --- both calls --- */

struct draws {
    bool scatters, start, in_place;
    size_t rows, cols, row_bytes, gap, counts[MAX_RANKS], first;
    enum shunt_dtype dtype;
};

static void draw_all(struct draws *d, const struct group *g,
                     const struct event *e, struct chance *c)
{
    d->scatters = e->kind == GEMM_REDUCE_SCATTER;
    d->start = one_in(c, 2);
    d->in_place = one_in(c, 2);
    d->dtype = one_in(c, 2) ? SHUNT_F32 : SHUNT_BF16;
    d->cols = (size_t)PICK(c, 0, 1, 30, 64, 200, 700);
    d->row_bytes = d->scatters ? 0 : (size_t)PICK(c, 0, 1, 40, 900);
    d->gap = (size_t)PICK(c, 0, 0, 3);
    for (int r = 0; r < g->size; r++) {
        d->counts[r] =
            one_in(c, 4) ? 0 : (size_t)below(c, one_in(c, 3) ? 400 : 20);
        if (r < g->rank)
            d->first += d->counts[r];
        d->rows += d->counts[r];
    }
}

static struct product *make_product(const struct group *g,
                                    const struct event *e,
                                    const struct draws *d, struct chance *c)
{
    struct product *p = need(sizeof(*p) + d->cols * sizeof(float));
    const bool bias = one_in(c, 2);

    *p = (struct product){
        .seed = e->seed, .rank = g->rank, .row_bytes = d->row_bytes};
    p->epilogue.alpha = (float)PICK(c, 1, 1, -2);
    p->epilogue.beta = (float)PICK(c, 0, 0, 3);
    for (size_t j = 0; j < d->cols; j++)
        p->bias[j] = (float)(j % 5) - 1;
    p->epilogue.bias = bias ? p->bias : NULL;
    return p;
}

/* Makes the output: its content before the call, and the expected content. */
static struct buffer *make_out(struct world *w, struct op *op,
                               const struct group *g, const struct draws *d,
                               const struct product *p)
{
    const size_t size = shunt_dtype_size(d->dtype), ld = d->cols + d->gap;
    const size_t rows = d->scatters ? d->counts[g->rank] : d->rows;
    struct buffer *out = take_any(w, op, rows * ld * size, size);
    unsigned char *want;

    for (size_t i = 0; i < rows * ld; i++)
        put_number(out->at, i, d->dtype, (double)(i % 4), 0);
    want = expects(out, out->bytes);
    if (out->bytes)
        memcpy(want, out->at, out->bytes);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < d->cols; j++) {
            const size_t row = i + (d->scatters ? d->first : 0);
            float sum = 0;

            for (int r = 0; r < g->size; r++)
                if (d->scatters || r == g->rank)
                    sum += element(p, r, row, j);
            if (d->row_bytes)
                sum += last_byte(p, input(p->seed, row, d->row_bytes - 1));
            put_number(want, i * ld + j, d->dtype,
                       after(p, sum, (float)((i * ld + j) % 4), j), 0);
        }
    return out;
}

static enum shunt_status scatter(struct group *g, struct op *op,
                                 const struct draws *d, struct product *p,
                                 const struct buffer *out)
{
    const struct shunt_gemm_reduce_scatter_args args = {
        .size = sizeof(args),
        .rows = d->rows,
        .cols = d->cols,
        .counts = d->counts,
        .tile = tile,
        .arg = p,
        .epilogue = &p->epilogue,
        .out = out->at,
        .ld = d->cols + d->gap,
        .dtype = d->dtype,
    };

    return d->start
               ? shunt_gemm_reduce_scatter_start(g->comm, &args, &op->request)
               : shunt_gemm_reduce_scatter(g->comm, &args);
}

static enum shunt_status gather(struct world *w, struct group *g, struct op *op,
                                const struct draws *d, struct product *p,
                                const struct buffer *out)
{
    const size_t n = d->row_bytes, own = d->counts[g->rank] * n;
    struct buffer *all = take_any(w, op, d->rows * n, 1), *shard = NULL;
    unsigned char *want = expects(all, all->bytes),
                  *at = all->at + d->first * n;
    struct shunt_allgather_gemm_args args = {
        .size = sizeof(args),
        .rows = d->rows,
        .cols = d->cols,
        .counts = d->counts,
        .row_bytes = n,
        .shard = SHUNT_IN_PLACE,
        .gathered = all->at,
        .tile = tile,
        .arg = p,
        .epilogue = &p->epilogue,
        .out = out->at,
        .ld = d->cols + d->gap,
        .dtype = d->dtype,
    };

    for (size_t i = 0; i < all->bytes; i++)
        want[i] = input(p->seed, i / n, i % n);
    if (!d->in_place) {
        shard = take_any(w, op, own, 1);
        args.shard = at = shard->at;
    }
    if (own)
        memcpy(at, want + d->first * n, own);
    if (shard)
        keeps(shard);
    p->gathered = all->at;
    return d->start ? shunt_allgather_gemm_start(g->comm, &args, &op->request)
                    : shunt_allgather_gemm(g->comm, &args);
}

int do_fused(struct world *w, struct group *g, const struct event *e)
{
    struct chance c = {e->seed};
    struct draws d = {0};
    struct product *p;
    struct buffer *out;
    struct op *op;

    draw_all(&d, g, e, &c);
    op = new_op(w, g, "%s of %zu rows, %zu columns, %zu bytes%s",
                d.scatters ? "gemm_reduce_scatter" : "allgather_gemm", d.rows,
                d.cols, d.row_bytes, d.start ? ", started" : "");
    op->owned = p = make_product(g, e, &d, &c);
    out = make_out(w, op, g, &d, p);
    return begun(w, op,
                 d.scatters ? scatter(g, op, &d, p, out)
                            : gather(w, g, op, &d, p, out));
}
