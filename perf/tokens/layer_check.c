// SPDX-License-Identifier: Apache-2.0
/* Checks a layer's results against its definition, in f64; see layer.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf/tokens/layer.h"

enum { CHECKED = 3 }; /* number of tokens whose results are checked */
/* The rounding error of f32 sums of some thousand products, relative to the
 * largest element. */
#define TOLERANCE 1e-4

/* Add to y, for one row in f64, factor * x W, with x (rows) and W (rows,
 * columns). With `transposed`: factor * x W^T, with x (columns). */
static void product(const struct layer *m, enum layer_kind kind, int expert,
                    size_t rows, size_t columns, bool transposed,
                    const double *x, double factor, double *y)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) {
            const double w =
                layer_weight(m, kind, expert, rows, r * columns + c) * factor;

            if (transposed)
                y[r] += x[c] * w;
            else
                y[c] += x[r] * w;
        }
}

/* y += factor * (x M1) M2; with `transposed`: factor * (x M2^T) M1^T. */
static void two_products(const struct layer *m, enum layer_kind kind,
                         int expert, size_t inner, bool transposed,
                         const double *x, double factor, double *y)
{
    const size_t D = m->shape.D;
    const enum layer_kind second = (enum layer_kind)(kind + 1);
    double *mid = perf_alloc(inner * sizeof(double));

    memset(mid, 0, inner * sizeof(double));
    if (transposed) {
        product(m, second, expert, inner, D, true, x, 1, mid);
        product(m, kind, expert, D, inner, true, mid, factor, y);
    } else {
        product(m, kind, expert, D, inner, false, x, 1, mid);
        product(m, second, expert, inner, D, false, mid, factor, y);
    }
    free(mid);
}

static void attention(const struct layer *m, bool transposed, double *x,
                      double *scratch)
{
    memcpy(scratch, x, m->shape.D * sizeof(double));
    two_products(m, LAYER_KIND_WA, 0, m->shape.A, transposed, scratch, 1, x);
}

/* y += the results of token t's experts for x, times their weights. */
static void routed(const struct layer *m, size_t t, bool transposed,
                   const double *x, double *y)
{
    const struct perf_bench *b = m->bench;
    const int32_t *e = perf_token_experts(&b->routing, b->g->rank, t);
    const float *w = perf_token_weights(&b->routing, b->g->rank, t);

    for (int k = 0; k < b->o->topk; k++)
        if (e[k] >= 0)
            two_products(m, LAYER_KIND_W1, e[k], m->shape.F, transposed, x,
                         w[k], y);
}

static void experts(const struct layer *m, size_t t, bool transposed, double *x,
                    double *scratch)
{
    memcpy(scratch, x, m->shape.D * sizeof(double));
    two_products(m, LAYER_KIND_S1, 0, m->shape.S, transposed, scratch, 1, x);
    routed(m, t, transposed, scratch, x);
}

/* Returns how many elements of a row differ from x. */
static double differ(const struct layer *m, const float *row, const double *x)
{
    double most = 0, wrong = 0;

    for (size_t i = 0; i < m->shape.D; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    for (size_t i = 0; i < m->shape.D; i++)
        wrong += !(fabs((double)row[i] - x[i]) <= TOLERANCE * most);
    return wrong;
}

double layer_check(const struct layer *m, int layers)
{
    const size_t T = m->shape.T, D = m->shape.D;
    struct perf_rows rows = m->bench->rows;
    float *in = perf_alloc(T * D * sizeof(float));
    double *x = perf_alloc(D * sizeof(double));
    double *scratch = perf_alloc(D * sizeof(double)), wrong = 0;

    for (int back = 0; back < 2; back++) {
        rows.seed = m->bench->rows.seed + (uint64_t)back;
        perf_fill_x(&rows, in);
        for (size_t i = 0; i < CHECKED && i < T; i++) {
            const size_t t = i * (T - 1) / (CHECKED - 1);

            for (size_t d = 0; d < D; d++)
                x[d] = (double)in[t * D + d];
            for (int l = 0; l < layers; l++) {
                if (!back)
                    attention(m, false, x, scratch);
                experts(m, t, back, x, scratch);
                if (back)
                    attention(m, true, x, scratch);
            }
            wrong += differ(m, (back ? m->dy[layers % 2] : m->f.x1) + t * D, x);
        }
    }
    free(in);
    free(x);
    free(scratch);
    return wrong;
}

double layer_check_experts(const struct layer *m)
{
    const size_t T = m->shape.T, D = m->shape.D;
    double *x = perf_alloc(D * sizeof(double));
    double *y = perf_alloc(D * sizeof(double)), wrong = 0;

    for (size_t i = 0; i < CHECKED && i < T; i++) {
        const size_t t = i * (T - 1) / (CHECKED - 1);

        for (size_t d = 0; d < D; d++)
            x[d] = (double)m->f.x2[t * D + d];
        memset(y, 0, D * sizeof(double));
        routed(m, t, false, x, y);
        wrong += differ(m, m->yr + t * D, y);
    }
    free(x);
    free(y);
    return wrong;
}
