// SPDX-License-Identifier: Apache-2.0
/*
 * Measures a copy by the engine during a computation of its caller:
 *
 *     C  products alone             T  submit, products, wait for the signal
 *     R  the engine's copy alone    S  products, then memcpy() by the caller
 *
 *     hidden = (C + R - T) / min(C, R); S / T is the gain by the engine
 *
 * The products take about as long as the copy, rounded to whole products. They
 * multiply `m` rows with a matrix that stays in the core's own cache. So they
 * need the processor rather than memory, as a layer's products do.
 */
#include <stdlib.h>
#include <string.h>

#include "perf/copies/copy_bench.h"
#include "perf/sampling/sample.h"
#include "src/kernels/gemm/gemm.h"

#define SIDE 256 /* rows and columns of the square matrix */
#define MIN_M 8
#define MAX_M 512
#define TRIES 5

struct beside {
    struct perf_copy_side side; /* the side that copies with memcpy() */
    struct perf_copy_bench *bench;
    struct shunti_gemm *gemm;
    float *a, *b, *c; /* (MAX_M, SIDE), (SIDE, SIDE), (MAX_M, SIDE) */
    size_t m, products;
};

static void multiply(const struct beside *s)
{
    shunti_gemm_nn(s->gemm, s->m, SIDE, SIDE, s->a, SIDE, s->b, SIDE,
                   SHUNTI_GEMM_SET, s->c, SIDE);
}

static void run_products(void *state)
{
    const struct beside *s = state;

    for (size_t i = 0; i < s->products; i++)
        multiply(s);
}

static void run_copy(void *state)
{
    const struct beside *s = state;

    if (perf_copy_start(s->bench))
        perf_copier_wait(&s->bench->copier);
}

/* Compute during a copy. The engine is polled between products: an engine
 * without its own thread advances only in poll(). */
static void run_both(void *state)
{
    const struct beside *s = state;
    struct perf_copier *c = &s->bench->copier;
    const bool started = perf_copy_start(s->bench);

    for (size_t i = 0; i < s->products; i++) {
        multiply(s);
        c->engine->poll(c->ctx);
    }
    if (started)
        perf_copier_wait(c);
}

static void run_sequence(void *state)
{
    struct beside *s = state;

    run_products(s);
    perf_copy_run(&s->side);
}

static double least_of(void (*run)(void *), void *state)
{
    double best = 0;

    for (int i = 0; i < TRIES; i++) {
        double start = perf_now_us(), took;

        run(state);
        took = perf_now_us() - start;
        best = i == 0 || took < best ? took : best;
    }
    return best;
}

/* Choose the rows and the number of products by the time of the copy. */
static void choose_products(struct beside *s)
{
    double wanted = least_of(run_copy, s), rows;

    s->m = MAX_M;
    s->products = 1;
    rows = wanted / least_of(run_products, s) * MAX_M;
    if (rows > MAX_M) {
        s->products = (size_t)(rows / MAX_M + 0.5);
        return;
    }
    s->m = rows < MIN_M ? MIN_M : (size_t)rows;
}

static float *make_matrix(size_t rows)
{
    float *m = perf_alloc(rows * SIDE * sizeof(*m));

    for (size_t i = 0; i < rows * SIDE; i++)
        m[i] = (float)(i % 7) - 3;
    return m;
}

static void measure(struct beside *s)
{
    struct perf_copy_bench *b = s->bench;
    const struct perf_options *o = b->o;
    const struct perf_plan plan = {o->warmup, o->samples, o->batch, o->seconds};
    const struct perf_side sides[] = {
        {.state = s,
         .phases = 3,
         .phase = {run_products, run_copy, run_both},
         .apart = true},
        {.state = s, .phases = 1, .phase = {run_sequence}, .apart = true},
    };
    struct perf_series series[2];
    struct perf_copy_side engine = {b, PERF_BY_ENGINE};
    struct perf_row_copy copy = {
        .engine = b->copier.engine->name,
        .cache = perf_cache_name(o->cache),
    };
    struct perf_row row = {
        .op = "copy-beside",
        .bytes = perf_copy_bytes(&b->shape),
        .count = b->shape.rows,
        .bus = 1,
        .pair = -1,
        .checked = true,
        .has = {[PERF_OURS] = true},
        .sent_rows = -1,
        .copy = &copy,
    };

    row.wrong[PERF_OURS] = perf_copy_try(&engine);
    perf_measure(&b->alone, &plan, sides, 2, series);
    row.wrong[PERF_OURS] += perf_copy_try(&engine);
    copy.compute = perf_series_times(&series[0], 0, 0).median;
    copy.alone = perf_series_times(&series[0], 1, 1).median;
    copy.sequence = perf_series_times(&series[1], 0, 0).median;
    copy.sequence_cpu = perf_series_times(&series[1], 0, 0).cpu;
    row.times[PERF_OURS] = perf_series_times(&series[0], 2, 2);
    row.samples = series[0].samples;
    row.batch = series[0].batch;
    perf_series_finish(&series[0]);
    perf_series_finish(&series[1]);
    perf_copy_row(b, &row);
}

void perf_copy_beside_row(struct perf_copy_bench *b, struct shunti_gemm *gemm)
{
    struct beside s = {
        .side = {b, PERF_BY_MEMCPY},
        .bench = b,
        .gemm = gemm,
    };

    if (!perf_copy_taken(b))
        return;
    s.a = make_matrix(MAX_M);
    s.b = make_matrix(SIDE);
    s.c = make_matrix(MAX_M);
    choose_products(&s);
    measure(&s);
    free(s.a);
    free(s.b);
    free(s.c);
}
