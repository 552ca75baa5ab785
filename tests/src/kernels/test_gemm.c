// SPDX-License-Identifier: Apache-2.0
/*
 * Matrix products by every backend, in f32 and in bf16, compared with the
 * definition. The rest of the program relies on one more property: the bits of
 * a row do not depend on the other rows.
 */
#include "src/kernels/gemm/gemm.h"
#include "tests/harness/harness.h"
#include "tests/src/kernels/emulated_tile.h"
#include "tests/src/kernels/numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct shunti_gemm_backend *const backends[] = {
    &shunti_gemm_naive,
#ifdef SHUNTI_HAVE_XSMM
    &shunti_gemm_xsmm,
#endif
#if defined(SHUNTI_HAVE_CBLAS) || defined(TEST_GEMM_BLAS)
    &shunti_gemm_blas,
#endif
};
enum { BACKENDS = sizeof(backends) / sizeof(backends[0]) };

static bool rounds; /* the products under test round their inputs to bf16 */
static bool slow;   /* the products under test are emulated */

static void check_one(void (*check)(struct shunti_gemm *gemm),
                      enum shunt_status created, struct shunti_gemm *gemm)
{
    cr_assert_eq(created, SHUNT_OK);
    check(gemm);
    shunti_gemm_destroy(gemm);
}

/* Calls `check` with every backend and tile that this build has and this CPU
 * can run. */
static void each_backend(void (*check)(struct shunti_gemm *gemm))
{
    struct shunti_gemm *gemm;
    enum shunt_status st;

    for (size_t i = 0; i < BACKENDS; i++) {
        if (!backends[i]->usable())
            continue;
        rounds = false;
        st = shunti_gemm_create_f32(backends[i], abort, &gemm);
        check_one(check, st, gemm);
        rounds = true;
        st = shunti_gemm_create_bf16(backends[i], NULL, abort, &gemm);
        check_one(check, st, gemm);
    }
    if (shunti_bf16_tile()) {
        st = shunti_gemm_create_bf16(&shunti_gemm_naive, shunti_bf16_tile(),
                                     abort, &gemm);
        check_one(check, st, gemm);
    }
#ifdef TEST_SIMDE
    slow = true;
    st = shunti_gemm_create_bf16(&shunti_gemm_naive, &shunti_bf16_tile_emulated,
                                 abort, &gemm);
    check_one(check, st, gemm);
    slow = false;
#endif
}

/* Returns the value that a product uses for an input. By definition bf16 has 8
 * significant bits and rounds ties to even, as rint() does. */
static double as_input(float x)
{
    int exponent;
    double part = frexp(x, &exponent);

    return rounds ? ldexp(rint(ldexp(part, 8)), exponent - 8) : x;
}

static double *as_inputs(const float *x, size_t n)
{
    double *y = malloc(n * sizeof(*y));

    for (size_t i = 0; i < n; i++)
        y[i] = as_input(x[i]);
    return y;
}

static float *numbers(uint64_t seed, size_t n)
{
    float *x = malloc(n * sizeof(*x));

    numbers_fill(seed, n, 1.0, x);
    return x;
}

/* The elements of a product by the definition, and the sums of their terms'
 * magnitudes. */
struct sums {
    double *sum, *magnitude;
    size_t terms; /* the most terms that a sum has */
};

static struct sums sums_create(size_t m, size_t n, size_t k)
{
    return (struct sums){calloc(m * n, sizeof(double)),
                         calloc(m * n, sizeof(double)), k + 1};
}

static void sums_free(struct sums *s)
{
    free(s->sum);
    free(s->magnitude);
}

static void add_term(struct sums *s, size_t at, double term)
{
    s->sum[at] += term;
    s->magnitude[at] += fabs(term);
}

/* The sum is made by f32 additions in any order, of products that are rounded
 * or not. So no term takes part in more than terms + 1 roundings, each of
 * 2^-24. With these numbers, denormals that are taken as zero make no visible
 * difference. */
static void compare(const float *got, const struct sums *want, size_t m,
                    size_t n, size_t ldc, const char *what,
                    struct shunti_gemm *gemm)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double bound = ldexp((double)want->terms + 1, -24) *
                           want->magnitude[i * n + j];
            cr_assert(fabs(got[i * ldc + j] - want->sum[i * n + j]) <= bound,
                      "%s%s by %s: (%zu, %zu) of (%zu, %zu) is %.9g, not %.9g "
                      "within %g",
                      what, rounds ? " of bf16" : "", shunti_gemm_name(gemm), i,
                      j, m, n, got[i * ldc + j], want->sum[i * n + j], bound);
        }
}

static void all_forms(struct shunti_gemm *gemm)
{
    static const size_t sizes[][3] = {
        {1, 1, 1},     {5, 3, 2},
        {16, 64, 32},  {17, 65, 33},
        {70, 130, 9},  {33, 8, 300},
        {1, 256, 64},  {100, 48, 19},
        {130, 20, 31}, {64, 200, 150},
        {7, 70, 2051}, {20, 100, 923}, /* rows of B are 1024 apart */
    };

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
        if (slow && m * n * k > 500000)
            continue;
        size_t lda = m + k + 3, ldb = n + k + 1, ldc = n + 5;
        float *a = numbers(s, (m + k) * lda),
              *b = numbers(s + 50, (n + k) * ldb);
        float *c0 = numbers(s + 90, m * ldc), *c = malloc(m * ldc * sizeof(*c));
        double *x = as_inputs(a, (m + k) * lda);
        double *y = as_inputs(b, (n + k) * ldb);
        struct sums nn = sums_create(m, n, k), nt = sums_create(m, n, k);
        struct sums tn = sums_create(m, n, k);

        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++)
                for (size_t p = 0; p < k; p++) {
                    size_t at = i * n + j;
                    add_term(&nn, at, x[i * lda + p] * y[p * ldb + j]);
                    add_term(&nt, at, x[i * lda + p] * y[j * ldb + p]);
                    add_term(&tn, at, x[p * lda + i] * y[p * ldb + j]);
                }
        /* NaN in the old values must have no effect */
        memset(c, 0xff, m * ldc * sizeof(*c));
        shunti_gemm_nn(gemm, m, n, k, a, lda, b, ldb, SHUNTI_GEMM_SET, c, ldc);
        compare(c, &nn, m, n, ldc, "nn", gemm);
        memset(c, 0xff, m * ldc * sizeof(*c));
        shunti_gemm_nt(gemm, m, n, k, a, lda, b, ldb, SHUNTI_GEMM_SET, c, ldc);
        compare(c, &nt, m, n, ldc, "nt", gemm);
        memset(c, 0xff, m * ldc * sizeof(*c));
        shunti_gemm_tn(gemm, m, n, k, a, lda, b, ldb, SHUNTI_GEMM_SET, c, ldc);
        compare(c, &tn, m, n, ldc, "tn", gemm);
        /* elements beside the matrix are unchanged */
        for (size_t i = 0; i < m; i++)
            for (size_t j = n; j < ldc; j++)
                cr_assert(isnan(c[i * ldc + j]));

        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                add_term(&nn, i * n + j, c0[i * ldc + j]);
                add_term(&nt, i * n + j, c0[i * ldc + j]);
                add_term(&tn, i * n + j, c0[i * ldc + j]);
            }
        memcpy(c, c0, m * ldc * sizeof(*c));
        shunti_gemm_nn(gemm, m, n, k, a, lda, b, ldb, SHUNTI_GEMM_ADD, c, ldc);
        compare(c, &nn, m, n, ldc, "nn add", gemm);
        memcpy(c, c0, m * ldc * sizeof(*c));
        shunti_gemm_nt(gemm, m, n, k, a, lda, b, ldb, SHUNTI_GEMM_ADD, c, ldc);
        compare(c, &nt, m, n, ldc, "nt add", gemm);
        memcpy(c, c0, m * ldc * sizeof(*c));
        shunti_gemm_tn(gemm, m, n, k, a, lda, b, ldb, SHUNTI_GEMM_ADD, c, ldc);
        compare(c, &tn, m, n, ldc, "tn add", gemm);
        free(a);
        free(b);
        free(c);
        free(c0);
        free(x);
        free(y);
        sums_free(&nn);
        sums_free(&nt);
        sums_free(&tn);
    }
}

Test(gemm, all_forms, .timeout = 60)
{
    each_backend(all_forms);
}

/* Rows first .. first + count - 1 of a product, computed alone, must have the
 * same bits as among all rows. */
static void rows_alone(struct shunti_gemm *gemm)
{
    static const size_t shapes[][2] = {
        {256, 64}, {64, 256}, {768, 192}, {24, 40},  {8, 256},  {1024, 256},
        {65, 300}, {80, 64},  {127, 33},  {130, 64}, {208, 70}, {150, 1024}};
    /* Some counts are above, and some below, the number of rows for which nt
     * transposes its other input. */
    enum { ROWS = 131 };
    const size_t more = harness_sanitized() ? 41 : 11;

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        size_t n = shapes[s][0], k = shapes[s][1];
        /* Skip large products that are slow. For a sanitizer the naive loops
         * are the same with any sizes, and the large ones took nine tenths of
         * this program's time. */
        if ((rounds || harness_sanitized() || harness_brief()) && n * k > 20000)
            continue;
        float *a = numbers(s, ROWS * k), *b = numbers(s + 50, n * k);
        float *all = malloc(ROWS * n * sizeof(*all));
        float *part = malloc(ROWS * n * sizeof(*part));

        for (int form = 0; form < 2; form++) {
            void (*f)(struct shunti_gemm *, size_t, size_t, size_t,
                      const float *, size_t, const float *, size_t,
                      enum shunti_gemm_beta, float *, size_t) =
                form ? shunti_gemm_nt : shunti_gemm_nn;
            size_t ldb = form ? k : n;
            f(gemm, ROWS, n, k, a, k, b, ldb, SHUNTI_GEMM_SET, all, n);
            for (size_t first = 0; first < ROWS; first += 1 + first / 2)
                for (size_t count = 1; first + count <= ROWS; count += more) {
                    f(gemm, count, n, k, a + first * k, k, b, ldb,
                      SHUNTI_GEMM_SET, part, n);
                    cr_assert(memcmp(part, all + first * n,
                                     count * n * sizeof(*part)) == 0,
                              "%s: rows %zu to %zu of (%zu, %zu) differ when "
                              "computed alone",
                              shunti_gemm_name(gemm), first, first + count, n,
                              k);
                }
        }
        free(a);
        free(b);
        free(all);
        free(part);
    }
}

Test(gemm, a_row_does_not_depend_on_the_others, .timeout = 120)
{
    each_backend(rows_alone);
}

/* The last rows of a product, in every number that a kernel may compute at
 * once, must have the same bits. */
static void any_height(struct shunti_gemm *gemm)
{
    static const size_t widths[] = {2, 9, 16, 17, 64, 65, 80, 130};
    static const size_t depths[] = {1, 33, 100};
    enum { ROWS = 37, WIDEST = 130, DEEPEST = 100 };
    float *a = numbers(1, ROWS * DEEPEST), *b = numbers(2, DEEPEST * WIDEST);
    float *start = numbers(3, ROWS * WIDEST);
    float all[ROWS * WIDEST], part[ROWS * WIDEST];

    for (size_t s = 0; s < sizeof(widths) / sizeof(widths[0]); s++)
        for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
            size_t n = widths[s], k = depths[d];

            if ((slow || harness_sanitized()) && n * k > 2000)
                continue;
            memcpy(all, start, sizeof(all));
            shunti_gemm_nn(gemm, ROWS, n, k, a, k, b, n, SHUNTI_GEMM_ADD, all,
                           n);
            for (size_t rows = 1; rows < ROWS; rows++) {
                size_t first = ROWS - rows;

                memcpy(part, start + first * n, rows * n * sizeof(*part));
                shunti_gemm_nn(gemm, rows, n, k, a + first * k, k, b, n,
                               SHUNTI_GEMM_ADD, part, n);
                cr_assert(memcmp(part, all + first * n,
                                 rows * n * sizeof(*part)) == 0,
                          "%s: the last %zu rows of (%zu, %zu) differ when "
                          "computed alone",
                          shunti_gemm_name(gemm), rows, n, k);
            }
        }
    free(a);
    free(b);
    free(start);
}

Test(gemm, the_same_bits_in_a_block_of_any_height, .timeout = 60)
{
    each_backend(any_height);
}

/* A group of products with 0 to 40 rows each, compared with one product after
 * the other. */
static void grouped_nn(struct shunti_gemm *gemm)
{
    static const size_t shapes[][2] = {{64, 32}, {130, 70}, {9, 40}, {300, 3}};
    static const size_t groups[][6] = {
        {16, 0, 3, 40, 1, 17}, {0, 0, 33, 0, 0, 0}, {7, 16, 32, 5, 2, 0}};
    enum { COUNT = 6, N = 300, K = 70, ROWS = 77, BESIDE = 5 };
    float *a = numbers(1, ROWS * (K + BESIDE));
    float *b = numbers(2, COUNT * K * (N + BESIDE));
    float *start = numbers(3, ROWS * (N + BESIDE));
    float *one = malloc(ROWS * (N + BESIDE) * sizeof(*one));
    float *all = malloc(ROWS * (N + BESIDE) * sizeof(*all));

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
            for (int add = 0; add < 2; add++) {
                const enum shunti_gemm_beta beta =
                    add ? SHUNTI_GEMM_ADD : SHUNTI_GEMM_SET;
                size_t n = shapes[s][0], k = shapes[s][1], row = 0;
                size_t lda = k + BESIDE, ldb = n + BESIDE, ldc = n + BESIDE;
                struct shunti_gemm_item items[COUNT] = {{0}};

                memcpy(one, start, ROWS * ldc * sizeof(*one));
                memcpy(all, start, ROWS * ldc * sizeof(*all));
                for (size_t i = 0; i < COUNT; i++) {
                    size_t m = groups[g][i];

                    if (m == 0)
                        continue;
                    items[i] = (struct shunti_gemm_item){
                        m, a + row * lda, b + i * k * ldb, all + row * ldc};
                    shunti_gemm_nn(gemm, m, n, k, items[i].a, lda, items[i].b,
                                   ldb, beta, one + row * ldc, ldc);
                    row += m;
                }
                shunti_gemm_grouped_nn(gemm, items, COUNT, n, k, lda, ldb, beta,
                                       ldc);
                cr_assert(memcmp(one, all, ROWS * ldc * sizeof(*one)) == 0,
                          "%s: group %zu of (%zu, %zu) differs",
                          shunti_gemm_name(gemm), g, n, k);
            }
    shunti_gemm_grouped_nn(gemm, NULL, 0, 1, 1, 1, 1, SHUNTI_GEMM_SET, 1);
    free(a);
    free(b);
    free(start);
    free(one);
    free(all);
}

Test(gemm, a_group_is_its_products, .timeout = 60)
{
    each_backend(grouped_nn);
}

/* Without rows nothing is read. With SET, a product without terms is zero. */
static void empty(struct shunti_gemm *gemm)
{
    float c[4] = {1, 2, 3, 4};

    shunti_gemm_nn(gemm, 0, 4, 4, NULL, 4, c, 4, SHUNTI_GEMM_SET, NULL, 4);
    shunti_gemm_nt(gemm, 0, 4, 4, NULL, 4, c, 4, SHUNTI_GEMM_SET, NULL, 4);
    shunti_gemm_tn(gemm, 2, 2, 0, NULL, 2, NULL, 2, SHUNTI_GEMM_ADD, c, 2);
    cr_assert_eq(c[0], 1);
    shunti_gemm_tn(gemm, 2, 2, 0, NULL, 2, NULL, 2, SHUNTI_GEMM_SET, c, 2);
    cr_assert_eq(c[3], 0);
}

Test(gemm, empty)
{
    each_backend(empty);
}

Test(gemm, unknown_backend_is_an_error)
{
    struct shunti_gemm *gemm = NULL;

    cr_assert_eq(shunti_gemm_create("cublas", SHUNTI_GEMM_F32, abort, &gemm),
                 SHUNT_ERR_INVALID);
    cr_assert_null(gemm);
}

static const char *described(const char *backend,
                             enum shunti_gemm_compute compute)
{
    static char text[64];
    struct shunti_gemm *gemm;

    cr_assert_eq(shunti_gemm_create(backend, compute, abort, &gemm), 0);
    shunti_gemm_describe(gemm, text, sizeof(text));
    cr_assert_eq(shunti_gemm_tile(gemm) != NULL,
                 strstr(text, ", in bf16") != NULL);
    shunti_gemm_destroy(gemm);
    return text;
}

/* bf16 uses the CPU's own instruction, unless a backend is asked for. */
Test(gemm, bf16_takes_the_tile)
{
    static const struct shunti_bf16_tile tile = {.name = "tile"};

    shunti_bf16_tile_stand_in(NULL);
    cr_assert(strstr(described(NULL, SHUNTI_GEMM_BF16), ", of inputs rounded"));
    shunti_bf16_tile_stand_in(&tile);
    cr_assert_str_eq(described(NULL, SHUNTI_GEMM_BF16), "tile, in bf16");
    cr_assert_str_eq(described("naive", SHUNTI_GEMM_BF16),
                     "naive, of inputs rounded to bf16");
    cr_assert_str_eq(described("naive", SHUNTI_GEMM_F32), "naive");
    cr_assert_str_neq(described(NULL, SHUNTI_GEMM_F32), "tile, in bf16");
}

static void check_peak(const struct shunti_bf16_tile *tile)
{
    float sink = 1;

    /* Each product is two operations, and each instruction has 32 products. */
    cr_assert_eq(tile->peak(10, &sink),
                 10.0 * 2 * 32 * SHUNTI_TILE_ROWS * SHUNTI_TILE_VECTORS);
    cr_assert(fabsf(sink - 1) < 1e-4f, "%g", sink);
}

Test(gemm, peak_of_bf16)
{
    if (shunti_bf16_tile())
        check_peak(shunti_bf16_tile());
#ifdef TEST_SIMDE
    check_peak(&shunti_bf16_tile_emulated);
#endif
}

/* Kernels are made on first use. Threads that need the same new kernels at once
 * must all get right results. */
static pthread_barrier_t start;

static void *worker(void *backend)
{
    struct shunti_gemm *gemm;
    size_t wrong = 0;

    if (shunti_gemm_create_f32(backend, abort, &gemm) != 0)
        return (void *)(size_t)1;
    float *a = numbers(7, 40 * 96), *b = numbers(8, 96 * 96);
    float *c = malloc(40 * 96 * sizeof(*c)),
          *want = malloc(40 * 96 * sizeof(*c));
    pthread_barrier_wait(&start);
    for (size_t n = 3; n <= 96; n += 3) {
        shunti_gemm_nn(gemm, 40, n, n, a, 96, b, 96, SHUNTI_GEMM_SET, c, n);
        for (size_t i = 0; i < 40; i++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t p = 0; p < n; p++)
                    sum += (double)a[i * 96 + p] * b[p * 96 + j];
                wrong += !(fabs(sum - c[i * n + j]) < 1e-4);
            }
    }
    free(a);
    free(b);
    free(c);
    free(want);
    shunti_gemm_destroy(gemm);
    return (void *)wrong;
}

Test(gemm, threads, .timeout = 60)
{
    for (size_t i = 0; i < BACKENDS; i++) {
        pthread_t threads[4];
        if (!backends[i]->usable())
            continue;
        pthread_barrier_init(&start, NULL, 4);
        for (int t = 0; t < 4; t++)
            pthread_create(&threads[t], NULL, worker, (void *)backends[i]);
        for (int t = 0; t < 4; t++) {
            void *wrong;
            pthread_join(threads[t], &wrong);
            cr_assert_eq(wrong, NULL, "%s: %zu wrong elements",
                         backends[i]->name, (size_t)wrong);
        }
        pthread_barrier_destroy(&start);
    }
}
