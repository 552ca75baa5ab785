// SPDX-License-Identifier: Apache-2.0
/* Products of shards; see tensor.h. */
#include "train/parameters/tensor.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

int tensor_create(struct tensor_group *t, size_t floats)
{
    if (t->own == 1)
        return 0;
    t->sum = malloc((floats + 1) * sizeof(*t->sum));
    t->part = malloc((floats + 1) * sizeof(*t->part));
    return t->sum && t->part ? 0 : train_error("out of memory");
}

void tensor_destroy(struct tensor_group *t)
{
    free(t->sum);
    free(t->part);
    t->sum = t->part = NULL;
}

static void product(struct shunti_gemm *gemm, size_t rows, size_t n, size_t m,
                    const float *x, const float *w, bool transposed,
                    enum shunti_gemm_beta beta, float *y)
{
    if (transposed)
        linear_backward_input(gemm, rows, m, n, x, w, beta, y);
    else
        linear(gemm, rows, n, m, x, w, beta, y);
}

/* A product of a fused call, computed tile by tile. */
struct tiles {
    struct shunti_gemm *gemm;
    size_t n;       /* elements of a row of x, over which the product sums */
    size_t w_row;   /* floats between two rows of w */
    const float *x; /* (rows, n) */
    const float *w; /* (n, cols), or (cols, n) if transposed */
    bool transposed;
    struct spent spent; /* time in tiles */
};

static void tile(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld)
{
    struct tiles *p = arg;
    const float *x = p->x + row * p->n;
    const struct spent began = clock_read();

    if (p->transposed)
        shunti_gemm_nt(p->gemm, rows, cols, p->n, x, p->n,
                       p->w + col * p->w_row, p->w_row, SHUNTI_GEMM_SET, out,
                       ld);
    else
        shunti_gemm_nn(p->gemm, rows, cols, p->n, x, p->n, p->w + col, p->w_row,
                       SHUNTI_GEMM_SET, out, ld);
    const struct spent now = clock_read();
    clock_add_between(&p->spent, &began, &now);
}

/* Add the time of a fused call since `start`, without its tiles. */
static void add_but_tiles(struct tensor_group *t, const struct spent *start,
                          const struct tiles *p)
{
    const struct spent now = clock_read();

    clock_add_between(&t->spent, start, &now);
    clock_add_between(&t->spent, &p->spent, &(struct spent){0});
}

static int gather_from_all(struct tensor_group *t,
                           const struct tensor_rows *rows, size_t m,
                           const float *x, float *all, struct tiles *p,
                           float *y)
{
    struct shunt_allgather_gemm_args args = {
        .size = sizeof(args),
        .rows = rows->all,
        .cols = m,
        .counts = rows->counts,
        .row_bytes = p->n * sizeof(float),
        .shard = x,
        .gathered = all,
        .tile = tile,
        .arg = p,
        .out = y,
        .dtype = SHUNT_F32,
    };
    const struct spent start = clock_read();
    enum shunt_status st = shunt_allgather_gemm(t->team->comm, &args);

    add_but_tiles(t, &start, p);
    t->gathers++;
    return team_check(t->team, st, "gathering rows and multiplying");
}

static int scatter_to_all(struct tensor_group *t,
                          const struct tensor_rows *rows, size_t m,
                          struct tiles *p, enum shunti_gemm_beta beta, float *y)
{
    const struct shunt_epilogue added = {1, beta == SHUNTI_GEMM_ADD, NULL};
    struct shunt_gemm_reduce_scatter_args args = {
        .size = sizeof(args),
        .rows = rows->all,
        .cols = m,
        .counts = rows->counts,
        .tile = tile,
        .arg = p,
        .epilogue = &added,
        .out = y,
        .dtype = SHUNT_F32,
    };
    const struct spent start = clock_read();
    enum shunt_status st = shunt_gemm_reduce_scatter(t->team->comm, &args);

    add_but_tiles(t, &start, p);
    t->scatters++;
    return team_check(t->team, st, "multiplying and scattering sums");
}

int tensor_gather(struct tensor_group *t, struct shunti_gemm *gemm,
                  const struct tensor_rows *rows, size_t n, size_t m,
                  const float *x, float *all, const float *w, size_t stride,
                  bool transposed, float *y)
{
    if (t->team)
        return gather_from_all(t, rows, m, x, all,
                               &(struct tiles){.gemm = gemm,
                                               .n = n,
                                               .w_row = transposed ? n : m,
                                               .x = all,
                                               .w = w,
                                               .transposed = transposed},
                               y);
    if (all != x)
        memcpy(all, x, rows->own * n * sizeof(*x));
    for (size_t s = 0; s < t->own; s++)
        product(gemm, rows->own, n, m, x, w + s * stride, transposed,
                SHUNTI_GEMM_SET, y + s * rows->own * m);
    return 0;
}

int tensor_scatter(struct tensor_group *t, struct shunti_gemm *gemm,
                   const struct tensor_rows *rows, size_t n, size_t m,
                   const float *x, const float *w, size_t stride,
                   bool transposed, enum shunti_gemm_beta beta, float *y)
{
    const struct shunti_elementwise *kern = shunti_elementwise();
    const size_t floats = rows->own * m;

    if (t->team)
        return scatter_to_all(t, rows, m,
                              &(struct tiles){.gemm = gemm,
                                              .n = n,
                                              .w_row = transposed ? n : m,
                                              .x = x,
                                              .w = w,
                                              .transposed = transposed},
                              beta, y);
    if (t->own == 1) {
        product(gemm, rows->own, n, m, x, w, transposed, beta, y);
        return 0;
    }
    /* Add in the order in which the ranks of a group would add. */
    for (size_t s = 0; s < t->own; s++) {
        product(gemm, rows->own, n, m, x + s * rows->own * n, w + s * stride,
                transposed, SHUNTI_GEMM_SET, s ? t->part : t->sum);
        if (s)
            kern->add(floats, t->part, t->sum);
    }
    if (beta == SHUNTI_GEMM_ADD)
        kern->add(floats, t->sum, y);
    else
        memcpy(y, t->sum, floats * sizeof(*y));
    return 0;
}
