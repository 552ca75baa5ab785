// SPDX-License-Identifier: Apache-2.0
/*
 * GEMM + reduce-scatter: while one panel of columns of the product is computed,
 * the reduce-scatters of the panels before it are under way.
 *
 * A panel in scratch memory is (rows, width), packed. So the ranks' segments,
 * which are ranges of rows in rank order, lie one behind the other, as
 * reduce_scatterv needs them. A tile need not end where a segment ends. The
 * tiles of a panel may be computed in any order, because its reduce-scatter
 * begins after the last. There is scratch memory for PANELS panels. The product
 * waits if all of them are under way.
 *
 * Where panels are too short for their link, several are sent as one. Where
 * nothing can be overlapped (worthwhile.h), all are sent as one. The tiles are
 * the same. On one node nothing is overlapped either: panels are wide (grid.h),
 * and there is scratch memory for one.
 */
#include <stddef.h>
#include <stdlib.h>

#include "collectives/fused/composed.h"
#include "collectives/fused/epilogue.h"
#include "collectives/fused/grid.h"
#include "collectives/fused/worthwhile.h"
#include "collectives/reduce_scatter.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/trace/track.h"

struct panel {
    struct shunt_request *request; /* the panel's reduce-scatter; NULL: none is
                                      under way */
    size_t col, cols;
    float *product; /* (rows, cols) these columns of the product */
    float *sum;     /* (rows of this rank, cols); may be `out` */
};

/* The number of panels in scratch memory: one is computed, and the sums of the
 * others are under way. With two panels, a rank that is late by a tile or two
 * would hold up the others. */
enum { PANELS = 4 };

struct state {
    struct shunt_gemm_reduce_scatter_args args;
    struct shunti_fused_out out;
    size_t *counts;   /* (nranks) rows of each rank's segment */
    size_t *elements; /* (nranks) elements of each segment of a panel */
    /* Cuts of the columns: into panels that are computed at once; into one or
     * more of these, which are sent at once. */
    struct shunti_cut computed, sent;
    bool trusts; /* the terms were not gathered: `out` is not written before the
                 * sum has succeeded */
    size_t panels; /* number of panels in use: 1 if nothing is overlapped */
    struct panel panel[PANELS]; /* panel number i is panel[i % panels] */
    size_t next; /* number of panels whose sum has been started */
    void *scratch[2 * PANELS];
};

static struct state *state_of(struct shunt_request *request)
{
    return (struct state *)(void *)request->state;
}

/* --- before anything is computed ------------------------------------------ */

static void cleanup(struct shunt_request *request)
{
    struct state *s = state_of(request);

    free(s->counts);
    for (int i = 0; i < 2 * PANELS; i++)
        shunti_scratch_put(request->comm, s->scratch[i]);
}

static bool check(struct state *s, struct shunti_terms *terms)
{
    const struct shunt_gemm_reduce_scatter_args *a = &s->args;
    size_t bytes;

    if (__builtin_mul_overflow(a->rows, a->cols, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes) ||
        bytes > PTRDIFF_MAX)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "a product of %zu rows and %zu columns does "
                                   "not fit into memory",
                                   a->rows, a->cols);
    if (a->rows && a->cols && !a->tile)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID, "tile is NULL");
    return true;
}

/* True if a panel's sum is the result itself, and can be written to `out`. */
static bool sums_in_place(const struct state *s)
{
    return shunti_epilogue_is_none(&s->out) && s->sent.parts == 1 &&
           s->out.ld == s->out.cols && !s->trusts;
}

static bool get_memory(struct state *s, struct shunti_terms *terms)
{
    const size_t panels = s->sent.parts < s->panels ? s->sent.parts : s->panels;
    const size_t product = s->args.rows * s->sent.step * sizeof(float);
    const size_t sum = s->out.rows * s->sent.step * sizeof(float);

    for (size_t i = 0; i < panels; i++) {
        s->scratch[2 * i] = shunti_scratch_get(product);
        s->panel[i].product = s->scratch[2 * i];
        if (sums_in_place(s)) {
            s->panel[i].sum = s->out.at;
        } else {
            s->scratch[2 * i + 1] = shunti_scratch_get(sum);
            s->panel[i].sum = s->scratch[2 * i + 1];
        }
        if (!s->panel[i].product || (sum && !s->panel[i].sum))
            return shunti_terms_refuse(
                terms, SHUNT_ERR_MEMORY,
                "no memory for %zu panels of %zu and %zu "
                "bytes",
                panels, product, sum);
    }
    return true;
}

static bool prepare(struct shunt_request *request, const void *args,
                    struct shunti_terms *terms, bool *trusts)
{
    const struct shunt_comm *comm = request->comm;
    struct state *s = state_of(request);
    struct shunt_gemm_reduce_scatter_args *a = &s->args;
    size_t most;

    if (!shunti_terms_read(
            terms, args, a,
            offsetof(struct shunt_gemm_reduce_scatter_args, reserved)))
        return false;
    s->counts = malloc(2 * (size_t)comm->nranks * sizeof(*s->counts));
    if (!s->counts)
        return shunti_terms_refuse(terms, SHUNT_ERR_MEMORY,
                                   "no memory for counts");
    s->elements = s->counts + comm->nranks;
    if (!check(s, terms) || !shunti_terms_rows(terms, comm->nranks, a->rows,
                                               a->counts, s->counts, &most))
        return false;
    terms->term[SHUNTI_TERM_COLS] = a->cols;
    s->out = (struct shunti_fused_out){.at = a->out,
                                       .rows = s->counts[comm->rank],
                                       .cols = a->cols,
                                       .ld = a->ld,
                                       .dtype = a->dtype};
    if (!shunti_terms_out(terms, &s->out, a->epilogue))
        return false;
    s->computed =
        shunti_cut_panels(a->rows ? a->cols : 0, a->rows, most, comm->nodes);
    s->panels = shunti_fused_waits(comm) ? 1 : PANELS;
    s->sent = shunti_cut_together(
        &s->computed,
        shunti_parts_together(request->comm, SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER,
                              s->computed.parts,
                              a->rows * a->cols * sizeof(float)));
    *trusts =
        *trusts && s->sent.parts == 1 &&
        shunti_fused_trusts(comm, a->rows * a->cols * sizeof(float), true);
    s->trusts = *trusts;
    return get_memory(s, terms);
}

/* --- panels --------------------------------------------------------------- */

/* Advance the sum of a panel. Returns true when it is over. */
static bool advance(struct shunt_request *request, struct panel *panel,
                    bool wait)
{
    const struct state *s = state_of(request);

    if (!panel->request)
        return true;
    if (!shunti_composed_over(request, &panel->request, wait))
        return false;
    if (!request->error && panel->sum != s->out.at)
        shunti_epilogue(&s->out, 0, panel->col, s->out.rows, panel->cols,
                        panel->sum, panel->cols);
    return true;
}

/* Advance the oldest sum that is under way. The step also advances all other
 * sums. */
static void progress(struct shunt_request *request)
{
    struct state *s = state_of(request);

    for (size_t i = 1; i < s->panels; i++) {
        struct panel *panel = &s->panel[(s->next + i) % s->panels];

        if (panel->request) {
            advance(request, panel, false);
            return;
        }
    }
}

/* Compute columns from `col` on of the product, into the panel. */
static void compute_columns(struct shunt_request *request, struct panel *panel,
                            size_t col, size_t cols)
{
    const struct state *s = state_of(request);
    const struct shunt_gemm_reduce_scatter_args *a = &s->args;
    const struct shunti_cut down = shunti_cut_tile_rows(a->rows);
    const struct shunti_cut across = shunti_cut_tile_cols(cols);

    for (size_t i = 0; i < down.parts; i++)
        for (size_t j = 0; j < across.parts; j++) {
            const size_t row = i * down.step, at = col + j * across.step;

            {
                SHUNTI_TRACK(COMPUTE);
                a->tile(a->arg, row, shunti_part(&down, i), at,
                        shunti_part(&across, j),
                        panel->product + row * panel->cols + (at - panel->col),
                        panel->cols);
            }
            progress(request);
        }
}

static void start_sum(struct shunt_request *request, struct panel *panel,
                      const struct shunti_options *options)
{
    struct shunt_comm *comm = request->comm;
    struct state *s = state_of(request);

    for (int r = 0; r < comm->nranks; r++)
        s->elements[r] = s->counts[r] * panel->cols;
    shunti_composed_note(request, shunti_reduce_scatterv_start(
                                      comm, options, panel->product, panel->sum,
                                      s->elements, SHUNT_F32, SHUNT_SUM,
                                      &panel->request));
}

static void begin(struct shunt_request *request,
                  const struct shunti_options *options)
{
    struct state *s = state_of(request);

    for (; s->next < s->sent.parts; s->next++) {
        struct panel *panel = &s->panel[s->next % s->panels];

        advance(request, panel, true);
        panel->col = s->next * s->sent.step;
        panel->cols = shunti_part(&s->sent, s->next);
        for (size_t at = 0; at < panel->cols; at += s->computed.step) {
            const size_t rest = panel->cols - at;

            compute_columns(request, panel, panel->col + at,
                            rest < s->computed.step ? rest : s->computed.step);
            if (shunti_composed_lost(request))
                return;
        }
        start_sum(request, panel, options);
    }
}

static enum shunt_status run(struct shunt_request *request, bool wait)
{
    struct state *s = state_of(request);
    bool over = true;

    /* Advance the oldest sum first. */
    for (size_t i = 0; i < s->panels && over; i++)
        over = advance(request, &s->panel[(s->next + i) % s->panels], wait);
    return over ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static const struct shunti_class gemm_reduce_scatter_class = {
    .name = "gemm_reduce_scatter",
    .run = run,
    .cleanup = cleanup,
};

static enum shunt_status call(struct shunt_comm *comm,
                              const struct shunt_gemm_reduce_scatter_args *args,
                              bool start, struct shunt_request **request)
{
    return shunti_fused_call(&(struct shunti_fused_call){
        .comm = comm,
        .args = args,
        .purpose = SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER,
        .start = start,
        .request = request,
        .class = &gemm_reduce_scatter_class,
        .state_bytes = sizeof(struct state),
        .prepare = prepare,
        .begin = begin,
    });
}

enum shunt_status
shunt_gemm_reduce_scatter(struct shunt_comm *comm,
                          const struct shunt_gemm_reduce_scatter_args *args)
{
    return call(comm, args, false, NULL);
}

enum shunt_status shunt_gemm_reduce_scatter_start(
    struct shunt_comm *comm, const struct shunt_gemm_reduce_scatter_args *args,
    struct shunt_request **request)
{
    return call(comm, args, true, request);
}
