// SPDX-License-Identifier: Apache-2.0
/*
 * All-gather + GEMM: the rows of each rank are cut into chunks. The all-gathers
 * of all chunks are under way at once. The product is computed from the rows
 * that have arrived: first this rank's own rows, then the first chunk of rank -
 * 1, rank - 2, ..., then the second chunks.
 *
 * Where chunks are too short for their link, one all-gather contains several of
 * them. Where nothing can be overlapped (worthwhile.h), one all-gather contains
 * all chunks, and the product waits for it. The tiles are the same. On one
 * node, and for few rows, a tile spans the rows of all ranks
 * (shunti_tiles_together()).
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/allgather.h"
#include "collectives/fused/composed.h"
#include "collectives/fused/epilogue.h"
#include "collectives/fused/grid.h"
#include "collectives/fused/worthwhile.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/device.h"
#include "src/trace/track.h"

/* Rows of one rank that one all-gather delivers. */
struct part {
    size_t row, rows;
    size_t gather; /* the number of that all-gather */
};

struct state {
    struct shunt_allgather_gemm_args args;
    struct shunti_fused_out out;
    size_t *counts, *begins; /* (nranks) rows of each rank; its first row */
    size_t *bytes, *displs;  /* (nranks) arguments of one all-gather */
    size_t chunks, gathers;  /* number of chunks; number of all-gathers */
    size_t together;         /* number of chunks in one all-gather */
    bool waits; /* the product of this rank's own rows also waits for the
                   all-gather */
    bool whole; /* tiles span all rows (shunti_tiles_together()) */
    /* If the terms were not gathered before the call, all rows arrive in this
     * memory. They are copied to `gathered` once the all-gather has succeeded.
     * NULL: the terms were gathered. */
    unsigned char *arrivals;
    struct shunt_request *gather[SHUNTI_PARTS_MAX]; /* NULL: this all-gather is
                                                       over */
    float *scratch; /* memory for one tile; NULL: tiles are written to `out` */
    /* The next tile: number `tile` of part number `part`. */
    size_t part, tile;
};

static struct state *state_of(struct shunt_request *request)
{
    return (struct state *)(void *)request->state;
}

/* --- before anything is gathered ------------------------------------------ */

static void cleanup(struct shunt_request *request)
{
    struct state *s = state_of(request);

    free(s->counts);
    shunti_scratch_put(request->comm, s->scratch);
    shunti_scratch_put(request->comm, s->arrivals);
}

static bool check(struct state *s, int rank, struct shunti_terms *terms)
{
    const struct shunt_allgather_gemm_args *a = &s->args;
    size_t bytes;

    if (__builtin_mul_overflow(a->rows, a->row_bytes, &bytes) ||
        bytes > PTRDIFF_MAX)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "%zu rows of %zu bytes do not fit into "
                                   "memory",
                                   a->rows, a->row_bytes);
    if (bytes && !a->gathered)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "gathered is NULL, but must hold %zu bytes",
                                   bytes);
    if (bytes && (shunti_is_device(a->gathered) || shunti_is_device(a->shard)))
        return shunti_terms_refuse(terms, SHUNT_ERR_UNSUPPORTED,
                                   "gathered or shard is memory of a device: "
                                   "copy it to the host first");
    if (s->counts[rank] && a->row_bytes && !a->shard)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "shard is NULL, but this rank has %zu rows",
                                   s->counts[rank]);
    if (a->rows && a->cols && !a->tile)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID, "tile is NULL");
    return true;
}

static bool get_memory(struct state *s, bool trusts, struct shunti_terms *terms)
{
    const size_t bytes = s->args.rows * s->args.row_bytes;

    if (trusts) {
        s->arrivals = shunti_scratch_get(bytes ? bytes : 1);
        if (!s->arrivals)
            return shunti_terms_refuse(terms, SHUNT_ERR_MEMORY,
                                       "no memory for %zu bytes", bytes);
    }
    if (shunti_epilogue_is_none(&s->out))
        return true;
    s->scratch =
        shunti_scratch_get(SHUNTI_TILE_ROWS * SHUNTI_TILE_COLS * sizeof(float));
    if (!s->scratch)
        return shunti_terms_refuse(terms, SHUNT_ERR_MEMORY,
                                   "no memory for a tile of %d rows and %d "
                                   "columns",
                                   SHUNTI_TILE_ROWS, SHUNTI_TILE_COLS);
    return true;
}

static bool prepare(struct shunt_request *request, const void *args,
                    struct shunti_terms *terms, bool *trusts)
{
    const struct shunt_comm *comm = request->comm;
    const size_t nranks = (size_t)comm->nranks;
    struct state *s = state_of(request);
    struct shunt_allgather_gemm_args *a = &s->args;
    size_t most;

    if (!shunti_terms_read(
            terms, args, a,
            offsetof(struct shunt_allgather_gemm_args, reserved)))
        return false;
    s->counts = malloc(4 * nranks * sizeof(*s->counts));
    if (!s->counts)
        return shunti_terms_refuse(terms, SHUNT_ERR_MEMORY,
                                   "no memory for counts");
    s->begins = s->counts + nranks;
    s->bytes = s->begins + nranks;
    s->displs = s->bytes + nranks;
    if (!shunti_terms_rows(terms, comm->nranks, a->rows, a->counts, s->counts,
                           &most) ||
        !check(s, comm->rank, terms))
        return false;
    s->begins[0] = 0;
    for (size_t r = 1; r < nranks; r++)
        s->begins[r] = s->begins[r - 1] + s->counts[r - 1];
    terms->term[SHUNTI_TERM_ROW_BYTES] = a->row_bytes;
    s->out = (struct shunti_fused_out){.at = a->out,
                                       .rows = a->rows,
                                       .cols = a->cols,
                                       .ld = a->ld,
                                       .dtype = a->dtype};
    if (!shunti_terms_out(terms, &s->out, a->epilogue))
        return false;
    s->chunks = shunti_chunks(most, a->row_bytes);
    s->together =
        shunti_parts_together(request->comm, SHUNTI_PURPOSE_ALLGATHER_GEMM,
                              s->chunks, a->rows * a->row_bytes);
    s->gathers = (s->chunks - 1) / s->together + 1;
    s->whole = shunti_tiles_together(a->rows, comm->nodes);
    s->waits = s->whole || shunti_fused_waits(comm);
    *trusts = *trusts && s->gathers == 1 &&
              shunti_fused_trusts(comm, a->rows * a->row_bytes, s->waits);
    s->waits = s->waits || *trusts;
    return get_memory(s, *trusts, terms);
}

/* --- rows that arrive ----------------------------------------------------- */

/* The address of this rank's rows in `gathered`. */
static unsigned char *own_place(const struct shunt_request *request)
{
    const struct state *s = state_of((struct shunt_request *)request);

    return (unsigned char *)s->args.gathered +
           s->begins[request->comm->rank] * s->args.row_bytes;
}

static const void *own_rows(const struct shunt_request *request)
{
    const struct state *s = state_of((struct shunt_request *)request);

    return s->args.shard == SHUNT_IN_PLACE ? own_place(request) : s->args.shard;
}

static void start_gather(struct shunt_request *request, size_t i,
                         const struct shunti_options *options)
{
    struct shunt_comm *comm = request->comm;
    struct state *s = state_of(request);
    const size_t row_bytes = s->args.row_bytes;
    const size_t first = i * s->together;
    const size_t rest = s->chunks - first;
    const size_t behind = first + (rest < s->together ? rest : s->together);

    for (int r = 0; r < comm->nranks; r++) {
        const size_t n = s->counts[r];
        const size_t at = shunti_chunk_begin(n, first, s->chunks);

        s->bytes[r] =
            (shunti_chunk_begin(n, behind, s->chunks) - at) * row_bytes;
        s->displs[r] = (s->begins[r] + at) * row_bytes;
    }
    shunti_composed_note(
        request,
        s->arrivals
            ? shunti_allgatherv_start(
                  comm, options, own_rows(request), s->bytes[comm->rank],
                  s->arrivals, s->bytes, s->displs, SHUNT_U8, &s->gather[i])
            : shunti_allgatherv_start(comm, options, SHUNT_IN_PLACE, 0,
                                      s->args.gathered, s->bytes, s->displs,
                                      SHUNT_U8, &s->gather[i]));
}

static void begin(struct shunt_request *request,
                  const struct shunti_options *options)
{
    struct state *s = state_of(request);
    const struct shunt_allgather_gemm_args *a = &s->args;
    const size_t bytes = s->counts[request->comm->rank] * a->row_bytes;

    if (bytes && !s->arrivals && own_rows(request) != own_place(request))
        shunti_copy_payload(own_place(request), own_rows(request), bytes);
    for (size_t i = 0; i < s->gathers && !shunti_composed_lost(request); i++)
        start_gather(request, i, options);
}

/* --- tiles ---------------------------------------------------------------- */

/* The number of parts. Part 0 is this rank's own rows; then, for each chunk,
 * one part of each other rank. With s->whole, all rows are one part. */
static size_t parts(const struct shunt_request *request, const struct state *s)
{
    return s->whole ? 1 : 1 + s->chunks * (size_t)(request->comm->nranks - 1);
}

static struct part part_of(const struct shunt_request *request,
                           const struct state *s, size_t number)
{
    const size_t nranks = (size_t)request->comm->nranks;
    const size_t rank = (size_t)request->comm->rank;
    size_t chunk, from, at;

    if (s->whole)
        return (struct part){0, s->args.rows, s->gathers - 1};
    if (!number)
        return (struct part){s->begins[rank], s->counts[rank], 0};
    chunk = (number - 1) / (nranks - 1);
    from = (rank + nranks - 1 - (number - 1) % (nranks - 1)) % nranks;
    at = shunti_chunk_begin(s->counts[from], chunk, s->chunks);
    return (struct part){
        s->begins[from] + at,
        shunti_chunk_begin(s->counts[from], chunk + 1, s->chunks) - at,
        chunk / s->together,
    };
}

static bool gather_over(struct shunt_request *request, size_t i, bool wait)
{
    struct state *s = state_of(request);

    if (!s->gather[i])
        return true;
    if (!shunti_composed_over(request, &s->gather[i], wait))
        return false;
    if (s->arrivals && !request->error)
        shunti_copy_payload(s->args.gathered, s->arrivals,
                            s->args.rows * s->args.row_bytes);
    return true;
}

/* True if all rows of the part have arrived. */
static bool is_there(struct shunt_request *request, const struct part *part,
                     bool wait)
{
    const struct state *s = state_of(request);

    /* If fused, this rank's own rows need no all-gather. */
    if (!s->part && !s->waits)
        return true;
    for (size_t i = s->whole ? 0 : part->gather; i <= part->gather; i++)
        if (!gather_over(request, i, wait))
            return false;
    return true;
}

/* Advance the oldest all-gather that is not over. The step also advances all
 * others. */
static void progress(struct shunt_request *request)
{
    struct state *s = state_of(request);
    size_t i = 0;

    while (i < s->gathers && !s->gather[i])
        i++;
    if (i < s->gathers)
        gather_over(request, i, false);
}

static void call_tile(const struct shunt_allgather_gemm_args *a, size_t row,
                      size_t rows, size_t col, size_t cols, float *out,
                      size_t ld)
{
    SHUNTI_TRACK(COMPUTE);
    a->tile(a->arg, row, rows, col, cols, out, ld);
}

static void compute(struct shunt_request *request, const struct part *part)
{
    struct state *s = state_of(request);
    const struct shunt_allgather_gemm_args *a = &s->args;
    const struct shunti_cut down = shunti_cut_tile_rows(part->rows);
    const struct shunti_cut across = shunti_cut_tile_cols(a->cols);
    const size_t i = s->tile / across.parts, j = s->tile % across.parts;
    const size_t row = part->row + i * down.step, col = j * across.step;
    const size_t rows = shunti_part(&down, i), cols = shunti_part(&across, j);

    if (s->scratch) {
        call_tile(a, row, rows, col, cols, s->scratch, cols);
        shunti_epilogue(&s->out, row, col, rows, cols, s->scratch, cols);
    } else {
        call_tile(a, row, rows, col, cols,
                  (float *)s->out.at + row * s->out.ld + col, s->out.ld);
    }
    s->tile++;
}

enum step {
    STEP_TILE,  /* one more tile has been computed */
    STEP_WAITS, /* the rows of the next tile have not arrived */
    STEP_DONE,  /* all tiles are computed, and all rows have arrived */
};

static enum step step(struct shunt_request *request, bool wait)
{
    struct state *s = state_of(request);
    const size_t across = shunti_cut_tile_cols(s->args.cols).parts;

    for (; s->part < parts(request, s); s->part++, s->tile = 0) {
        const struct part part = part_of(request, s, s->part);

        if (s->tile == shunti_cut_tile_rows(part.rows).parts * across)
            continue;
        if (!is_there(request, &part, wait))
            return STEP_WAITS;
        if (request->error)
            break;
        compute(request, &part);
        progress(request);
        return STEP_TILE;
    }
    for (size_t i = 0; i < s->gathers; i++)
        if (!gather_over(request, i, wait))
            return STEP_WAITS;
    return STEP_DONE;
}

static enum shunt_status run(struct shunt_request *request, bool wait)
{
    enum step done;

    do
        done = step(request, wait);
    while (wait && done == STEP_TILE);
    return done == STEP_DONE ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static const struct shunti_class allgather_gemm_class = {
    .name = "allgather_gemm",
    .run = run,
    .cleanup = cleanup,
};

static enum shunt_status call(struct shunt_comm *comm,
                              const struct shunt_allgather_gemm_args *args,
                              bool start, struct shunt_request **request)
{
    return shunti_fused_call(&(struct shunti_fused_call){
        .comm = comm,
        .args = args,
        .purpose = SHUNTI_PURPOSE_ALLGATHER_GEMM,
        .start = start,
        .request = request,
        .class = &allgather_gemm_class,
        .state_bytes = sizeof(struct state),
        .prepare = prepare,
        .begin = begin,
    });
}

enum shunt_status
shunt_allgather_gemm(struct shunt_comm *comm,
                     const struct shunt_allgather_gemm_args *args)
{
    return call(comm, args, false, NULL);
}

enum shunt_status
shunt_allgather_gemm_start(struct shunt_comm *comm,
                           const struct shunt_allgather_gemm_args *args,
                           struct shunt_request **request)
{
    return call(comm, args, true, request);
}
