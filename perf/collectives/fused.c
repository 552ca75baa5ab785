// SPDX-License-Identifier: Apache-2.0
/*
 * Measures fused products against the same product and collective one after the
 * other, in alternation, and each of the two alone:
 *
 *     T  fused                      C  the product as one call
 *     U  product, then collective   R  the collective alone
 *     M  the same as U, by MPI
 *
 *     hidden = (C + R - T) / min(C, R)
 *
 * Between hosts, C is measured while plain streams move the bytes that must
 * cross: the kernel's work for these bytes slows the product down, whichever
 * program sends them.
 *
 * The layer is one of tensor parallelism, in which each rank has `inner` of its
 * width: ag-gemm gathers (tokens, hidden) and multiplies it with (hidden,
 * inner); gemm-rs multiplies (tokens, inner) with (inner, hidden) and sums over
 * ranks.
 *
 * Inputs are small integers, so every sum is exact in any order. Some elements
 * are compared with the definition.
 */
#include "perf/collectives/fused.h"

#include <stdlib.h>
#include <string.h>

#include <shunt/fused.h>
#include <shunt/memory.h>

#include "perf/base/check.h"
#include "perf/base/random.h"
#include "perf/ranks/pair.h"
#include "perf/sampling/background_streams.h"
#include "perf/sampling/sample.h"
#include "perf/sampling/traffic.h"
#include "perf/tables/table.h"
#include "src/kernels/gemm/gemm.h"

enum { STREAM_A = 31, STREAM_B, STREAM_PLACES };
enum { CHECKED = 400 }; /* elements that one check compares */

struct bench {
    const struct perf_options *o;
    const struct perf_group *g;
    const struct perf_engine *engine;
    struct shunti_gemm *gemm;
    bool scatters;                 /* true: gemm-rs; false: ag-gemm */
    size_t tokens;                 /* tokens per rank */
    size_t m, k, n;                /* shape of this rank's product */
    size_t out_rows;               /* rows of the result */
    float *a, *b;                  /* (m, k), gathered by ag-gemm; (k, n) */
    float *shard;                  /* ag-gemm: this rank's rows of a */
    float *product;                /* gemm-rs, unfused: (m, n) */
    float *out;                    /* (out_rows, n) */
    uint64_t a_key;                /* key of `a` for ag-gemm, the same on all
                                    * ranks */
    size_t parts;                  /* parts that a fused call sends */
    const struct perf_engine *mpi; /* NULL: not measured */
    void *by_mpi;                  /* MPI's state for the collective */
    struct perf_beside *beside;    /* background streams; NULL: no bytes cross
                                    * between hosts */
    double wrong[2];               /* wrong elements of T and U; of M */
};

/* The sides, which are measured in alternation. */
enum { FUSED, UNFUSED, ALONE, BESIDE, MPI, SIDES };

static void must(const struct bench *b, enum shunt_status st, const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(b->g->comm));
}

/* --- inputs and results --------------------------------------------------- */

static float value(uint64_t key, size_t i)
{
    return (float)((int)(perf_random(key, i) % 5) - 2);
}

static uint64_t key_of(const struct bench *b, int stream, int rank)
{
    return perf_key(b->o->seed, (uint64_t)stream, (uint64_t)rank, b->tokens);
}

/* ag-gemm gathers one matrix, so all ranks use one key. For gemm-rs each rank
 * has its own. */
static uint64_t a_key(const struct bench *b, int rank)
{
    return key_of(b, STREAM_A, b->scatters ? rank : 0);
}

static void fill(float *to, uint64_t key, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = value(key, from + i);
}

/* Returns an element of one rank's product, in f64. */
static double product_at(const struct bench *b, int rank, size_t row,
                         size_t col)
{
    const uint64_t ka = a_key(b, rank), kb = key_of(b, STREAM_B, rank);
    double sum = 0;

    for (size_t i = 0; i < b->k; i++)
        sum += (double)value(ka, row * b->k + i) *
               (double)value(kb, i * b->n + col);
    return sum;
}

static double expected(const struct bench *b, size_t row, size_t col)
{
    double sum = 0;

    if (!b->scatters)
        return product_at(b, b->g->rank, row, col);
    for (int r = 0; r < b->g->ranks; r++)
        sum += product_at(b, r, (size_t)b->g->rank * b->tokens + row, col);
    return sum;
}

/* Make one call on poisoned output. Returns how many of the compared elements
 * are wrong. */
static double try_once(struct bench *b, void (*run)(void *), uint64_t round)
{
    const uint64_t key = perf_key(b->o->seed, STREAM_PLACES, round, 0);
    double wrong = 0;

    memset(b->out, PERF_POISON, b->out_rows * b->n * sizeof(float));
    if (!b->scatters)
        memset(b->a, PERF_POISON, b->m * b->k * sizeof(float));
    run(b);
    if (b->engine->settle)
        b->engine->settle();
    for (uint64_t i = 0; i < CHECKED; i++) {
        const size_t row = perf_random(key, 2 * i) % b->out_rows;
        const size_t col = perf_random(key, 2 * i + 1) % b->n;

        wrong += (double)b->out[row * b->n + col] != expected(b, row, col);
    }
    return wrong;
}

/* --- the calls ------------------------------------------------------------ */

static void multiply(void *arg, size_t row, size_t rows, size_t col,
                     size_t cols, float *out, size_t ld)
{
    const struct bench *b = arg;

    shunti_gemm_nn(b->gemm, rows, cols, b->k, b->a + row * b->k, b->k,
                   b->b + col, b->n, SHUNTI_GEMM_SET, out, ld);
}

static void fused(void *state)
{
    struct bench *b = state;

    if (b->scatters)
        must(b,
             shunt_gemm_reduce_scatter(
                 b->g->comm,
                 &(struct shunt_gemm_reduce_scatter_args){
                     .size = sizeof(struct shunt_gemm_reduce_scatter_args),
                     .rows = b->m,
                     .cols = b->n,
                     .tile = multiply,
                     .arg = b,
                     .out = b->out,
                     .dtype = SHUNT_F32,
                 }),
             "gemm_reduce_scatter");
    else
        must(b,
             shunt_allgather_gemm(
                 b->g->comm,
                 &(struct shunt_allgather_gemm_args){
                     .size = sizeof(struct shunt_allgather_gemm_args),
                     .rows = b->m,
                     .cols = b->n,
                     .row_bytes = b->k * sizeof(float),
                     .shard = b->shard,
                     .gathered = b->a,
                     .tile = multiply,
                     .arg = b,
                     .out = b->out,
                     .dtype = SHUNT_F32,
                 }),
             "allgather_gemm");
}

static void compute(void *state)
{
    struct bench *b = state;

    multiply(b, 0, b->m, 0, b->n, b->scatters ? b->product : b->out, b->n);
}

static void communicate(void *state)
{
    struct bench *b = state;

    if (b->scatters)
        must(b,
             shunt_reduce_scatter(b->g->comm, b->product, b->out,
                                  b->tokens * b->n, SHUNT_F32, SHUNT_SUM),
             "reduce_scatter");
    else
        must(b,
             shunt_allgather(b->g->comm, b->shard, b->a, b->tokens * b->k,
                             SHUNT_F32),
             "allgather");
}

static void unfused(void *state)
{
    struct bench *b = state;

    if (b->scatters)
        compute(b);
    communicate(b);
    if (!b->scatters)
        compute(b);
}

static void unfused_by_mpi(void *state)
{
    struct bench *b = state;

    if (b->scatters)
        compute(b);
    b->mpi->call_run(b->by_mpi);
    if (!b->scatters)
        compute(b);
}

static void compute_beside(void *state)
{
    struct bench *b = state;

    perf_beside_begin(b->beside);
    compute(b);
}

static void end_streams(void *state)
{
    perf_beside_end(((struct bench *)state)->beside);
}

/* --- one row -------------------------------------------------------------- */

/* The lower bound of docs/fused.md: the least time of any schedule of p ranks
 * and q parts that keeps link and processor busy from the first part to the
 * last. */
static double bound(double c, double r, double p, double q)
{
    double most = c;

    if (p < 2)
        return c;
    if (c / (p * q) + r > most)
        most = c / (p * q) + r;
    if (c * (p - 1) / p + r / ((p - 1) * q) > most)
        most = c * (p - 1) / p + r / ((p - 1) * q);
    return most;
}

static size_t count_parts(struct bench *b)
{
    struct shunt_comm_stats before, after;
    size_t operations;

    must(b, shunt_comm_get_stats(b->g->comm, &before, sizeof(before)), "stats");
    fused(b);
    must(b, shunt_comm_get_stats(b->g->comm, &after, sizeof(after)), "stats");
    operations = (size_t)(after.operations - before.operations);
    /* One operation is the agreement of the ranks. A small call has no
     * agreement. */
    return operations > 1 ? operations - 1 : operations;
}

/* List the sides to measure. Set place[side] to its index in `sides`, or -1.
 * Returns the number of sides. */
static int list_sides(struct bench *b, struct perf_side *sides, int *place)
{
    static const struct {
        int phases;
        void (*phase[2])(void *);
    } all[SIDES] = {
        [FUSED] = {1, {fused}},
        [UNFUSED] = {1, {unfused}},
        [ALONE] = {2, {compute, communicate}},
        [BESIDE] = {2, {compute_beside, end_streams}},
        [MPI] = {1, {unfused_by_mpi}},
    };
    int n = 0;

    for (int s = 0; s < SIDES; s++) {
        place[s] = -1;
        if ((s == BESIDE && !b->beside) || (s == MPI && !b->mpi))
            continue;
        place[s] = n;
        sides[n++] = (struct perf_side){
            .state = b,
            .phases = all[s].phases,
            .phase = {all[s].phase[0], all[s].phase[1]},
            .apart = true,
            .settle = s == MPI ? b->mpi->settle : b->engine->settle,
        };
    }
    return n;
}

static void measure(struct bench *b)
{
    const struct perf_options *o = b->o;
    const struct perf_plan plan = {o->warmup, o->samples, o->batch, o->seconds};
    struct perf_series series[SIDES];
    struct perf_side sides[SIDES];
    int at[SIDES];
    const int nsides = list_sides(b, sides, at);
    const size_t moved = b->scatters ? b->n : b->k;
    struct perf_row row = {
        .op = perf_op_name(o->op),
        .bytes = b->m * moved * sizeof(float),
        .count = b->tokens,
        .bus = (double)(b->g->ranks - 1) / b->g->ranks,
        .pair = perf_pair_latency(b->g),
        .checked = true,
        .has = {[PERF_OURS] = true, [PERF_PEER] = b->mpi != NULL},
        .sent_rows = -1,
        .fused = true,
    };
    double t, c, r;

    b->parts = count_parts(b);
    b->wrong[0] = try_once(b, fused, 0) + try_once(b, unfused, 1);
    b->wrong[1] = b->mpi ? try_once(b, unfused_by_mpi, 2) : 0;
    perf_measure(b->g, &plan, sides, nsides, series);
    b->wrong[0] += try_once(b, fused, 3) + try_once(b, unfused, 4);
    b->wrong[1] += b->mpi ? try_once(b, unfused_by_mpi, 5) : 0;
    row.samples = series[0].samples;
    row.batch = series[0].batch;
    row.times[PERF_OURS] = perf_series_times(&series[at[FUSED]], 0, 0);
    if (b->mpi)
        row.times[PERF_PEER] = perf_series_times(&series[at[MPI]], 0, 0);
    for (int s = 0; s < 2; s++)
        row.wrong[s] = perf_sum(b->g, b->wrong[s]);
    t = row.times[PERF_OURS].median;
    row.alone.unfused = perf_series_times(&series[at[UNFUSED]], 0, 0).median;
    row.alone.compute = c = perf_series_times(&series[at[ALONE]], 0, 0).median;
    row.alone.communicate = r =
        perf_series_times(&series[at[ALONE]], 1, 1).median;
    if (b->beside)
        row.alone.beside = c =
            perf_series_times(&series[at[BESIDE]], 0, 0).median;
    row.alone.hidden = (c + r - t) / (c < r ? c : r);
    row.alone.bound = bound(c, r, b->g->ranks, (double)b->parts);
    row.alone.parts = b->parts;
    for (int s = 0; s < nsides; s++)
        perf_series_finish(&series[s]);
    perf_table_row(&row);
}

/* --- background streams, and the collective by MPI ------------------------ */

/* Describe the layer's collective. */
static struct perf_call collective(const struct bench *b)
{
    return (struct perf_call){
        .op = b->scatters ? PERF_REDUCE_SCATTER : PERF_ALLGATHER,
        .dtype = SHUNT_F32,
        .reduce = SHUNT_SUM,
        .rank = b->g->rank,
        .ranks = b->g->ranks,
        .send = b->scatters ? b->product : b->shard,
        .recv = b->scatters ? b->out : b->a,
        .count = b->tokens * (b->scatters ? b->n : b->k),
    };
}

static void open_mpi(struct bench *b)
{
    const struct perf_call call = collective(b);
    const char *why;

    if (!b->mpi)
        return;
    why = b->mpi->call_open(&call, &b->by_mpi);
    if (why)
        perf_die(PERF_EXIT_FAILED, "--peer mpi: %s", why);
}

/* Prepare the streams that run during the product. The caller frees *bytes
 * after they are closed. */
static void open_streams(struct bench *b, uint64_t **bytes)
{
    const struct perf_places hosts = {b->g->hosts.n, b->g->hosts.of};
    const struct perf_call call = collective(b);

    *bytes = NULL;
    if (!b->g->net)
        return;
    *bytes = perf_alloc((size_t)hosts.n * (size_t)hosts.n * sizeof(**bytes));
    perf_traffic_call(&call, NULL, &hosts, *bytes);
    b->beside = perf_beside_open(b->g->net, *bytes);
}

/* --- memory --------------------------------------------------------------- */

static float *take(const struct bench *b, size_t elements, bool window)
{
    void *p = NULL;

    if (!window || b->o->mem != PERF_MEM_WINDOW)
        return perf_alloc(elements * sizeof(float));
    must(b, shunt_mem_alloc(b->g->comm, elements * sizeof(float), &p),
         "memory");
    return p;
}

static void drop(const struct bench *b, float *p, bool window)
{
    if (!window || b->o->mem != PERF_MEM_WINDOW)
        free(p);
    else
        must(b, shunt_mem_free(b->g->comm, p), "memory");
}

static void no_memory(void)
{
    perf_die(PERF_EXIT_FAILED, "no memory for a product");
}

static void run(struct bench *b)
{
    const int rank = b->g->rank;
    uint64_t *streams;

    b->m = b->tokens * (size_t)b->g->ranks;
    b->k = b->scatters ? b->o->inner : b->o->hidden;
    b->n = b->scatters ? b->o->hidden : b->o->inner;
    b->out_rows = b->scatters ? b->tokens : b->m;
    b->a = take(b, b->m * b->k, !b->scatters);
    b->b = take(b, b->k * b->n, false);
    b->out = take(b, b->out_rows * b->n, false);
    fill(b->b, key_of(b, STREAM_B, rank), 0, b->k * b->n);
    if (b->scatters) {
        b->product = take(b, b->m * b->n, true);
        fill(b->a, a_key(b, rank), 0, b->m * b->k);
    } else {
        b->shard = take(b, b->tokens * b->k, true);
        fill(b->shard, a_key(b, rank), (size_t)rank * b->tokens * b->k,
             b->tokens * b->k);
    }
    open_mpi(b);
    open_streams(b, &streams);
    measure(b);
    if (b->beside)
        perf_beside_close(b->beside);
    b->beside = NULL;
    free(streams);
    if (b->mpi)
        b->mpi->call_close(b->by_mpi);
    drop(b, b->a, !b->scatters);
    drop(b, b->b, false);
    drop(b, b->out, false);
    drop(b, b->scatters ? b->product : b->shard, true);
}

void perf_fused(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;
    struct bench b = {
        .o = o,
        .g = contest->group,
        .engine = contest->engine[PERF_OURS],
        .scatters = o->op == PERF_GEMM_RS,
        .mpi = contest->engine[PERF_PEER],
    };

    if (shunti_gemm_create(NULL, SHUNTI_GEMM_F32, no_memory, &b.gemm))
        perf_die(PERF_EXIT_FAILED, "no product runs on this machine");
    perf_table_note("products by %s", shunti_gemm_name(b.gemm));
    for (int i = 0; i < o->ntokens; i++) {
        b.tokens = o->tokens[i];
        if (b.tokens)
            run(&b);
    }
    shunti_gemm_destroy(b.gemm);
}
