// SPDX-License-Identifier: Apache-2.0
/*
 * `shunt-perf copy`: chooses the rows, and measures plain copies.
 *
 * A copy by the engine is timed from its submission until a polling caller sees
 * the signal. In alternation, the caller copies the same with memcpy() and with
 * non-temporal stores. Rows by strides and by an index list are gathered from a
 * matrix with twice as many rows, as a dispatch does.
 */
#include "perf/copies/copy.h"

#include <stdlib.h>

#include "perf/base/random.h"
#include "perf/copies/copy_bench.h"
#include "perf/sampling/sample.h"
#include "src/kernels/gemm/gemm.h"

#define STREAM_INDEX 42
#define LATENCY_BYTES 4096

/* --- one row -------------------------------------------------------------- */

void perf_copy_shape_row(struct perf_copy_bench *b, const char *op)
{
    const struct perf_options *o = b->o;
    const struct perf_plan plan = {o->warmup, o->samples, o->batch, o->seconds};
    const int first = perf_copy_taken(b) ? PERF_BY_ENGINE : PERF_BY_MEMCPY;
    struct perf_series series[PERF_MAX_SIDES];
    struct perf_side sides[PERF_MAX_SIDES];
    struct perf_copy_side state[PERF_MAX_SIDES];
    double wrong[PERF_MAX_SIDES] = {0};
    struct perf_row_copy copy = {
        .engine = b->copier.engine->name,
        .cache = perf_cache_name(o->cache),
        .row_bytes = b->shape.from_stride ? b->shape.bytes : 0,
    };
    struct perf_row row = {
        .op = op,
        .bytes = perf_copy_bytes(&b->shape),
        .count = b->shape.rows,
        .bus = 1,
        .pair = -1,
        .checked = true,
        .has = {[PERF_OURS] = first == PERF_BY_ENGINE, [PERF_PEER] = true},
        .sent_rows = -1,
        .copy = &copy,
    };

    for (int s = 0; s < PERF_MAX_SIDES; s++) {
        state[s] = (struct perf_copy_side){b, (enum perf_copy_way)s};
        sides[s] = (struct perf_side){
            .state = &state[s],
            .phases = 1,
            .phase = {perf_copy_run},
            .prepare = perf_copy_prepare,
        };
    }
    for (int s = first; s < PERF_MAX_SIDES; s++)
        wrong[s] = perf_copy_try(&state[s]);
    perf_measure(&b->alone, &plan, sides + first, PERF_MAX_SIDES - first,
                 series + first);
    for (int s = first; s < PERF_MAX_SIDES; s++)
        wrong[s] += perf_copy_try(&state[s]);
    if (first == PERF_BY_ENGINE)
        row.times[PERF_OURS] = perf_series_times(&series[PERF_BY_ENGINE], 0, 0);
    row.times[PERF_PEER] = perf_series_times(&series[PERF_BY_MEMCPY], 0, 0);
    copy.stream = perf_series_times(&series[PERF_BY_STREAM], 0, 0);
    row.wrong[PERF_OURS] = wrong[PERF_BY_ENGINE];
    row.wrong[PERF_PEER] = wrong[PERF_BY_MEMCPY] + wrong[PERF_BY_STREAM];
    row.samples = series[first].samples;
    row.batch = series[first].batch;
    for (int s = first; s < PERF_MAX_SIDES; s++)
        perf_series_finish(&series[s]);
    perf_copy_row(b, &row);
    if (first != PERF_BY_ENGINE)
        perf_table_note("  the engine does not take such copies");
}

/* --- copies of many rows -------------------------------------------------- */

/* Returns `rows` different numbers below 2 * rows, in random order. */
static uint32_t *make_index(const struct perf_options *o, size_t rows)
{
    const uint64_t key = perf_key(o->seed, STREAM_INDEX, rows, 0);
    uint32_t *all = perf_alloc(2 * rows * sizeof(*all));

    for (size_t i = 0; i < 2 * rows; i++)
        all[i] = (uint32_t)i;
    for (size_t i = 0; i < rows; i++) {
        const size_t other = i + perf_random(key, i) % (2 * rows - i);
        const uint32_t swapped = all[i];

        all[i] = all[other];
        all[other] = swapped;
    }
    return all;
}

static void measure_rows(struct perf_copy_bench *b, size_t size, size_t bytes)
{
    struct perf_copy_shape shape = {
        .rows = size / bytes,
        .bytes = bytes,
        .from_stride = 2 * bytes,
        .from_bytes = 2 * (size / bytes) * bytes,
    };
    uint32_t *index;

    if (!shape.rows || shape.rows > UINT32_MAX / 2)
        return;
    perf_copy_shape_use(b, &shape);
    perf_copy_shape_row(b, "copy-strided");
    index = make_index(b->o, shape.rows);
    shape.from_stride = bytes;
    shape.index = index;
    perf_copy_shape_use(b, &shape);
    perf_copy_shape_row(b, "copy-index");
    free(index);
}

/* --- all rows ------------------------------------------------------------- */

static void use_contiguous(struct perf_copy_bench *b, size_t size)
{
    perf_copy_shape_use(b, &(struct perf_copy_shape){
                               .rows = 1,
                               .bytes = size,
                               .from_bytes = size,
                           });
}

static void print_notes(const struct perf_copy_bench *b, const char *gemm)
{
    const double mib = 1.0 / (1 << 20);
    const char *memory = b->ring.there != b->ring.to ? "page-locked" : "malloc";

    perf_table_note("engine: %s, %s", b->copier.engine->name,
                    b->copier.engine->summary);
    if (b->o->cache == PERF_CACHE_COLD)
        perf_table_note("memory: %s, cold: copies rotate through buffers of at "
                        "least %.0f MiB, twice the last-level cache (%.0f MiB)",
                        memory, (double)b->ring.least * mib,
                        (double)b->ring.least * mib / 2);
    else
        perf_table_note("memory: %s, warm: each side copies between the "
                        "same two buffers, which are in the caches before "
                        "each sample",
                        memory);
    if (b->ring.there != b->ring.to)
        perf_table_note("the engine copies from there to its device, the "
                        "other sides within the host");
    perf_table_note("before each sample a copy%s wakes the engine; the caller "
                    "polls for the end of a copy",
                    b->o->cache == PERF_CACHE_COLD ? " of one byte" : "");
    perf_table_note("copy-beside: a copy while the caller computes products of "
                    "about the same length (by %s)",
                    gemm);
    perf_table_note("ratio: time of memcpy(), or of non-temporal stores "
                    "('stream'), / time of the engine; above 1 the engine is "
                    "faster");
}

static void measure(struct perf_copy_bench *b, struct shunti_gemm *gemm)
{
    const struct perf_options *o = b->o;

    perf_copy_ring_open(b,
                        2 * o->end > LATENCY_BYTES ? 2 * o->end : LATENCY_BYTES,
                        o->end > LATENCY_BYTES ? o->end : LATENCY_BYTES);
    print_notes(b, shunti_gemm_name(gemm));
    use_contiguous(b, LATENCY_BYTES);
    perf_copy_latency_row(b, false);
    perf_copy_latency_row(b, true);
    perf_copy_idle_row(b);
    for (size_t size = o->begin; size <= o->end;) {
        const double next = (double)size * o->factor;

        use_contiguous(b, size);
        perf_copy_shape_row(b, "copy");
        perf_copy_beside_row(b, gemm);
        for (int i = 0; i < o->nrow_bytes; i++)
            measure_rows(b, size, o->row_bytes[i]);
        size = next < (double)size + 1 ? size + 1 : (size_t)next;
    }
    perf_table_note("engine %s: %llu copies, %llu bytes in all%s%s",
                    b->copier.engine->name,
                    (unsigned long long)b->copier.copies,
                    (unsigned long long)b->copier.bytes,
                    *perf_copier_counters(&b->copier) ? "; counts " : "",
                    perf_copier_counters(&b->copier));
    perf_copy_ring_close(b);
}

/* --- ranks ---------------------------------------------------------------- */

static void no_memory(void)
{
    perf_die(PERF_EXIT_FAILED, "no memory for a product");
}

/* Rank 0 sends one of these after each row: MORE, or END. The other ranks sleep
 * in perf_max(), which may not last longer than SHUNT_TIMEOUT. */
enum { MORE = 1, END };

void perf_copy_row(struct perf_copy_bench *b, const struct perf_row *row)
{
    for (int r = 0; r < PERF_ROLES; r++)
        b->wrong += row->wrong[r];
    perf_table_row(row);
    perf_max(b->g, MORE);
}

static void run_alone(struct perf_copy_bench *b,
                      const struct shunt_engine *engine)
{
    struct shunti_gemm *gemm;

    if (shunti_gemm_create(NULL, SHUNTI_GEMM_F32, no_memory, &gemm))
        perf_die(PERF_EXIT_FAILED, "no product runs on this machine");
    if (b->g->ranks > 1)
        perf_table_note("rank 0 copies alone, the other ranks sleep");
    perf_copier_open(&b->copier, engine, &b->g->cpus);
    measure(b, gemm);
    perf_copier_close(&b->copier);
    shunti_gemm_destroy(gemm);
}

void perf_copy(const struct perf_contest *contest)
{
    const struct perf_group *g = contest->group;
    const struct perf_options *o = contest->options;
    const struct shunt_engine *engine =
        perf_copier_find(perf_copier_name(o->engine), &g->cpus);
    struct perf_copy_bench b = {
        .o = o,
        .g = g,
        .alone = {.ranks = 1, .crowded = g->processors < 2},
    };
    double wrong;

    if (g->rank == 0) {
        run_alone(&b, engine);
        perf_max(g, END);
    } else {
        while (perf_max(g, 0) < END)
            ;
    }
    /* All ranks must end with the same status. */
    wrong = perf_sum(g, b.wrong);
    if (g->rank != 0)
        perf_table_row(&(struct perf_row){.wrong = {wrong}});
}
