// SPDX-License-Identifier: Apache-2.0
/* The tiles of shunt/fused_cblas.h, compared with the definition of the
 * product. All numbers are small integers, so that sums are exact. */
#include <cblas.h>
#include <stdio.h>

#include <shunt/fused_cblas.h>

enum { ROWS = 37, COLS = 29, K = 23, GAP = 3, LD = COLS + 2 };

static float a_of(size_t row, size_t k)
{
    return (float)((int)((3 * row + 5 * k) % 11) - 5);
}

static float b_of(size_t k, size_t col)
{
    return (float)((int)((7 * k + 2 * col) % 9) - 4);
}

static float expected(size_t row, size_t col)
{
    float sum = 0;

    for (size_t k = 0; k < K; k++)
        sum += a_of(row, k) * b_of(k, col);
    return sum;
}

/* Compute one tile inside a matrix that is filled with another number. Elements
 * around the tile must keep that number. */
static int check(const struct shunt_cblas_product *p, size_t row, size_t rows,
                 size_t col, size_t cols)
{
    float out[ROWS * LD];

    for (size_t i = 0; i < ROWS * LD; i++)
        out[i] = 12345;
    shunt_cblas_tile((void *)(size_t)p, row, rows, col, cols,
                     out + row * LD + col, LD);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < LD; j++) {
            const int inside =
                i >= row && i < row + rows && j >= col && j < col + cols;

            if (out[i * LD + j] == (inside ? expected(i, j) : 12345.0f))
                continue;
            fprintf(stderr, "transposed %d %d: row %zu, column %zu is %g\n",
                    p->transpose_a, p->transpose_b, i, j,
                    (double)out[i * LD + j]);
            return 1;
        }
    return 0;
}

int main(void)
{
    static float a[(ROWS + GAP) * (K + GAP)], b[(K + GAP) * (COLS + GAP)];
    int wrong = 0;

    for (int ta = 0; ta < 2; ta++)
        for (int tb = 0; tb < 2; tb++) {
            const struct shunt_cblas_product p = {
                .k = K,
                .a = a,
                .lda = (ta ? ROWS : K) + GAP,
                .transpose_a = ta,
                .b = b,
                .ldb = (tb ? K : COLS) + GAP,
                .transpose_b = tb,
            };

            for (size_t i = 0; i < ROWS; i++)
                for (size_t k = 0; k < K; k++)
                    a[ta ? k * p.lda + i : i * p.lda + k] = a_of(i, k);
            for (size_t k = 0; k < K; k++)
                for (size_t j = 0; j < COLS; j++)
                    b[tb ? j * p.ldb + k : k * p.ldb + j] = b_of(k, j);
            wrong += check(&p, 0, ROWS, 0, COLS);
            wrong += check(&p, 5, 16, 7, 9);
            wrong += check(&p, ROWS - 1, 1, COLS - 1, 1);
        }
    return wrong != 0;
}
