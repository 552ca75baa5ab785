// SPDX-License-Identifier: Apache-2.0
/*
 * A tensor-parallel layer: y = relu(x W1) W2. The columns of W1 and the rows of
 * W2 are split over the ranks, and so are the tokens of x and y.
 *
 *     cc fused_layer.c $(pkg-config --cflags --libs shunt) -o fused_layer
 *     shunt-run -n 4 ./fused_layer
 *
 * shunt_allgather_gemm() gathers x and computes h = relu(x W1) for this rank's
 * columns of W1. shunt_gemm_reduce_scatter() multiplies h by this rank's rows
 * of W2 and adds the results of all ranks; each rank gets its tokens of y.
 * shunt/fused_cblas.h has the tiles for a BLAS.
 */
#include <stdio.h>
#include <stdlib.h>

#include <shunt/shunt.h>

enum { TOKENS = 100, HIDDEN = 96, INNER = 64 }; /* per rank, except HIDDEN */

static void check(enum shunt_status st, const struct shunt_comm *comm)
{
    if (st == SHUNT_OK)
        return;
    fprintf(stderr, "%s: %s\n", shunt_strerror(st), shunt_last_error(comm));
    exit(1);
}

/* C (rows, cols) = A (rows, k) B (k, cols). A and B are packed; C has `ld`
 * floats a row. */
struct product {
    const float *a, *b;
    size_t k, cols;
};

static void tile(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld)
{
    const struct product *p = arg;

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float sum = 0;

            for (size_t k = 0; k < p->k; k++)
                sum += p->a[(row + i) * p->k + k] * p->b[k * p->cols + col + j];
            out[i * ld + j] = sum;
        }
}

/* Small integers, so that sums are exact. */
static float x_of(size_t token, size_t i)
{
    return (float)((int)((token + 3 * i) % 5) - 2);
}

static float w1_of(size_t i, size_t j)
{
    return (float)((int)((2 * i + j) % 3) - 1);
}

static float w2_of(size_t j, size_t i)
{
    return (float)((int)((j + 5 * i) % 3) - 1);
}

/* One element of y, by its definition. */
static float expected(size_t token, size_t col, size_t width)
{
    float y = 0;

    for (size_t j = 0; j < width; j++) {
        float h = 0;

        for (size_t i = 0; i < HIDDEN; i++)
            h += x_of(token, i) * w1_of(i, j);
        y += (h > 0 ? h : 0) * w2_of(j, col);
    }
    return y;
}

int main(void)
{
    static float x[TOKENS * HIDDEN], y[TOKENS * HIDDEN];
    static float w1[HIDDEN * INNER], w2[INNER * HIDDEN];
    struct shunt_comm *comm;
    void *all;
    int wrong = 0;

    check(shunt_comm_create_env(NULL, &comm), NULL);
    const size_t ranks = (size_t)shunt_comm_size(comm);
    const size_t rank = (size_t)shunt_comm_rank(comm);
    float *h = malloc(ranks * TOKENS * INNER * sizeof(*h));
    if (!h)
        return 1;
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < HIDDEN; i++)
            x[t * HIDDEN + i] = x_of(rank * TOKENS + t, i);
    for (size_t i = 0; i < HIDDEN; i++)
        for (size_t j = 0; j < INNER; j++) {
            w1[i * INNER + j] = w1_of(i, rank * INNER + j);
            w2[j * HIDDEN + i] = w2_of(rank * INNER + j, i);
        }
    /* With the gathered rows in a window, each is copied only once. */
    check(shunt_mem_alloc(comm, ranks * sizeof(x), &all), comm);

    struct product up = {all, w1, HIDDEN, INNER};
    struct shunt_allgather_gemm_args gather = {
        .size = sizeof(gather),
        .rows = ranks * TOKENS,
        .cols = INNER,
        .row_bytes = HIDDEN * sizeof(float),
        .shard = x,
        .gathered = all,
        .tile = tile,
        .arg = &up,
        .out = h,
        .dtype = SHUNT_F32,
    };
    check(shunt_allgather_gemm(comm, &gather), comm);
    for (size_t i = 0; i < ranks * TOKENS * INNER; i++)
        h[i] = h[i] > 0 ? h[i] : 0;

    struct product down = {h, w2, INNER, HIDDEN};
    struct shunt_gemm_reduce_scatter_args scatter = {
        .size = sizeof(scatter),
        .rows = ranks * TOKENS,
        .cols = HIDDEN,
        .tile = tile,
        .arg = &down,
        .out = y,
        .dtype = SHUNT_F32,
    };
    check(shunt_gemm_reduce_scatter(comm, &scatter), comm);

    for (size_t t = 0; t < TOKENS; t += 9)
        for (size_t i = 0; i < HIDDEN; i += 7)
            wrong += y[t * HIDDEN + i] !=
                     expected(rank * TOKENS + t, i, ranks * INNER);
    if (rank == 0 || wrong)
        printf("rank %zu: %d elements are wrong\n", rank, wrong);
    free(h);
    check(shunt_mem_free(comm, all), comm);
    check(shunt_comm_finish(comm), comm);
    shunt_comm_destroy(comm);
    return wrong != 0;
}
