// SPDX-License-Identifier: Apache-2.0
/* The computations and exchanges of a layer; see layer.h. */
#include "perf/tokens/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/memory.h>

#include "perf/base/random.h"
#include "src/kernels/elementwise.h"

enum { STREAM_WEIGHTS = 41 };
/* Widths are multiples of WIDTH, for which kernels are fast. */
enum { WIDTH = 16 };

static void must(const struct layer *m, enum shunt_status st, const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(m->bench->g->comm));
}

static void no_memory(void)
{
    perf_die(PERF_EXIT_FAILED, "no memory for a product");
}

/* --- shapes and weights --------------------------------------------------- */

static size_t width(double wanted)
{
    const double n = floor(wanted / WIDTH + 0.5);

    return n < 1 ? WIDTH : (size_t)n * WIDTH;
}

struct layer_shape layer_shape(const struct perf_options *o, size_t tokens,
                               size_t inner, double share)
{
    const double mlp = (double)inner * (o->topk + 1);

    return (struct layer_shape){
        .T = tokens,
        .D = o->hidden,
        .F = inner,
        .S = inner,
        .A = width(share / (1 - share) * mlp),
    };
}

/* Weights have both signs and are small, so that rows grow slowly from layer to
 * layer. */
double layer_weight(const struct layer *m, enum layer_kind kind, int expert,
                    size_t rows, size_t i)
{
    const uint64_t key = perf_key(m->bench->o->seed, STREAM_WEIGHTS,
                                  (uint64_t)kind, (uint64_t)expert);

    return (float)((perf_uniform(key, i) - 0.5) / sqrt((double)rows));
}

static void fill_weights(const struct layer *m, float *to, enum layer_kind kind,
                         int expert, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows * columns; i++)
        to[i] = (float)layer_weight(m, kind, expert, rows, i);
}

static struct layer_weights take_weights(const struct layer *m, size_t *count)
{
    const size_t D = m->shape.D, F = m->shape.F, S = m->shape.S, A = m->shape.A,
                 E = (size_t)m->at.local_experts;
    struct layer_weights w;

    *count = 2 * D * (A + S + E * F);
    w.wa = perf_alloc(*count * sizeof(float));
    w.wb = w.wa + D * A;
    w.s1 = w.wb + D * A;
    w.s2 = w.s1 + D * S;
    w.w1 = w.s2 + D * S;
    w.w2 = w.w1 + E * D * F;
    memset(w.wa, 0, *count * sizeof(float));
    return w;
}

static void make_weights(struct layer *m)
{
    const size_t D = m->shape.D, F = m->shape.F, S = m->shape.S, A = m->shape.A;

    m->w = take_weights(m, &m->nweights);
    m->dw = take_weights(m, &m->nweights);
    fill_weights(m, m->w.wa, LAYER_KIND_WA, 0, D, A);
    fill_weights(m, m->w.wb, LAYER_KIND_WB, 0, A, D);
    fill_weights(m, m->w.s1, LAYER_KIND_S1, 0, D, S);
    fill_weights(m, m->w.s2, LAYER_KIND_S2, 0, S, D);
    for (int e = 0; e < m->at.local_experts; e++) {
        const size_t at = (size_t)e * D * F;

        fill_weights(m, m->w.w1 + at, LAYER_KIND_W1, m->at.expert[e], D, F);
        fill_weights(m, m->w.w2 + at, LAYER_KIND_W2, m->at.expert[e], F, D);
    }
}

/* --- memory --------------------------------------------------------------- */

/* Allocate window memory, for buffers that are sent from or received into. */
static float *window(const struct layer *m, size_t floats)
{
    void *p = NULL;

    must(m, shunt_mem_alloc(m->bench->g->comm, floats * sizeof(float), &p),
         "memory");
    return p;
}

static float *plain(size_t floats)
{
    return memset(perf_alloc(floats * sizeof(float)), 0,
                  floats * sizeof(float));
}

static void drop_window(const struct layer *m, float *p)
{
    must(m, shunt_mem_free(m->bench->g->comm, p), "memory");
}

static struct layer_kept take_kept(const struct layer *m)
{
    const size_t T = m->shape.T, N = m->at.total;

    return (struct layer_kept){
        .x1 = plain(T * m->shape.D),
        .x2 = window(m, T * m->shape.D),
        .ah = plain(T * m->shape.A),
        .shid = plain(T * m->shape.S),
        .hid = plain(N * m->shape.F),
    };
}

static void drop_kept(const struct layer *m, struct layer_kept *k)
{
    free(k->x1);
    drop_window(m, k->x2);
    free(k->ah);
    free(k->shid);
    free(k->hid);
}

static void take_memory(struct layer *m)
{
    const size_t T = m->shape.T, D = m->shape.D, N = m->at.total;

    m->items = perf_alloc((size_t)m->at.local_experts *
                          (size_t)m->bench->g->ranks * sizeof(*m->items));
    m->f = take_kept(m);
    m->b = take_kept(m);
    m->sh = plain(T * D);
    m->yr = window(m, T * D);
    for (int i = 0; i < 2; i++) {
        m->dy[i] = window(m, T * D);
        m->dout[i] = window(m, N * D);
    }
    m->dhid = plain(N * m->shape.F);
    m->dshid = plain(T * m->shape.S);
    m->dxs = plain(T * D);
    m->dxr = window(m, T * D);
    m->dx2 = plain(T * D);
    m->dah = plain(T * m->shape.A);
    m->dweight = plain(T * (size_t)m->bench->o->topk);
}

static void make_exchange(struct layer *m)
{
    const struct perf_bench *b = m->bench;
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;

    config.hidden = m->shape.D;
    config.dtype = SHUNT_F32;
    config.experts = b->o->experts;
    config.topk = b->o->topk;
    config.max_tokens = m->shape.T;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.wire = b->o->wire;
    config.mode = b->o->modes.there;
    config.combine_mode = b->o->modes.back;
    config.partials = b->o->partials;
    must(m, shunt_moe_create(b->g->comm, &config, &m->moe), "moe");
}

static void plan(struct layer *m, int i, int parts)
{
    const struct perf_bench *b = m->bench;

    must(m,
         shunt_moe_plan_create_parts(
             m->moe, perf_token_experts(&b->routing, b->g->rank, 0),
             perf_token_weights(&b->routing, b->g->rank, 0), m->shape.T, parts,
             &m->plan[i]),
         "plan");
    shunt_moe_plan_rows(m->plan[i], &m->at, sizeof(m->at));
}

static void make_plans(struct layer *m, int parts)
{
    plan(m, 0, parts);
    m->parts = m->at.parts;
    plan(m, 1, m->parts);
    for (int i = 0; i < m->parts; i++)
        must(
            m,
            shunt_moe_part_rows(m->plan[1], i, &m->part[i], sizeof(m->part[i])),
            "part");
}

static void use_buffers(struct layer *m)
{
    m->f.rows = shunt_moe_buffer(m->plan[0], SHUNT_MOE_ROWS);
    m->f.out = shunt_moe_buffer(m->plan[0], SHUNT_MOE_OUT);
    m->b.rows = shunt_moe_buffer(m->plan[1], SHUNT_MOE_ROWS);
    m->b.out = shunt_moe_buffer(m->plan[1], SHUNT_MOE_OUT);
    m->drows = shunt_moe_buffer(m->plan[1], SHUNT_MOE_DROWS);
}

static void swap_kept(struct layer *m)
{
    struct shunt_moe_plan *const plan = m->plan[0];
    const struct layer_kept f = m->f;

    m->plan[0] = m->plan[1];
    m->plan[1] = plan;
    m->f = m->b;
    m->b = f;
}

/* Compute a forward pass for the values that backward needs. */
static void go_forward(struct layer *m)
{
    swap_kept(m);
    layer_reset(m);
    layer_compute(m, LAYER_ATTN_F, LAYER_WHOLE, 0);
    layer_start(m, LAYER_DISPATCH_F, LAYER_WHOLE, 0);
    layer_wait(m, LAYER_DISPATCH_F, LAYER_WHOLE);
    layer_compute(m, LAYER_SHARED_F, LAYER_WHOLE, 0);
    layer_compute(m, LAYER_MLP_F, LAYER_WHOLE, 0);
    swap_kept(m);
}

void layer_open(struct layer *m, const struct perf_bench *bench,
                const struct layer_shape *shape)
{
    *m = (struct layer){.bench = bench, .shape = *shape};
    if (shunti_gemm_create(NULL, SHUNTI_GEMM_F32, no_memory, &m->gemm))
        perf_die(PERF_EXIT_FAILED, "no product runs on this machine");
    make_exchange(m);
    make_plans(m, 1);
    make_weights(m);
    take_memory(m);
    use_buffers(m);
    go_forward(m);
}

void layer_cut(struct layer *m, int parts)
{
    shunt_moe_plan_destroy(m->plan[0]);
    shunt_moe_plan_destroy(m->plan[1]);
    make_plans(m, parts);
    use_buffers(m);
    go_forward(m);
}

void layer_close(struct layer *m)
{
    drop_kept(m, &m->f);
    drop_kept(m, &m->b);
    free(m->sh);
    drop_window(m, m->yr);
    for (int i = 0; i < 2; i++) {
        drop_window(m, m->dy[i]);
        drop_window(m, m->dout[i]);
    }
    free(m->dhid);
    free(m->dshid);
    free(m->dxs);
    drop_window(m, m->dxr);
    free(m->dx2);
    free(m->dah);
    free(m->dweight);
    free(m->items);
    free(m->w.wa);
    free(m->dw.wa);
    shunt_moe_destroy(m->moe);
    shunti_gemm_destroy(m->gemm);
}

void layer_reset(struct layer *m)
{
    const size_t T = m->shape.T, D = m->shape.D;
    struct perf_rows rows = m->bench->rows;

    perf_fill_x(&rows, m->f.x2);
    memset(m->sh, 0, T * D * sizeof(float));
    memset(m->yr, 0, T * D * sizeof(float));
    rows.seed++;
    perf_fill_x(&rows, m->dy[0]);
    memset(m->dw.wa, 0, m->nweights * sizeof(float));
    memset(m->f.x1, PERF_POISON, T * D * sizeof(float));
    memset(m->dy[1], PERF_POISON, T * D * sizeof(float));
    memset(m->dweight, PERF_POISON,
           T * (size_t)m->bench->o->topk * sizeof(float));
}

/* --- computations --------------------------------------------------------- */

static void copy(const struct layer *m, const float *from, float *to)
{
    memcpy(to, from, m->shape.T * m->shape.D * sizeof(float));
}

static void add(const struct layer *m, const float *x, float *y)
{
    shunti_elementwise()->add(m->shape.T * m->shape.D, x, y);
}

void layer_finish_forward(struct layer *m)
{
    copy(m, m->f.x2, m->f.x1);
    add(m, m->sh, m->f.x1);
    add(m, m->yr, m->f.x1);
}

static void attn_f(struct layer *m)
{
    const size_t T = m->shape.T, D = m->shape.D, A = m->shape.A;

    layer_finish_forward(m); /* completes the previous layer */
    shunti_gemm_nn(m->gemm, T, A, D, m->f.x1, D, m->w.wa, A, SHUNTI_GEMM_SET,
                   m->f.ah, A);
    copy(m, m->f.x1, m->f.x2);
    shunti_gemm_nn(m->gemm, T, D, A, m->f.ah, A, m->w.wb, D, SHUNTI_GEMM_ADD,
                   m->f.x2, D);
}

static void shared_f(struct layer *m)
{
    const size_t T = m->shape.T, D = m->shape.D, S = m->shape.S;

    shunti_gemm_nn(m->gemm, T, S, D, m->f.x2, D, m->w.s1, S, SHUNTI_GEMM_SET,
                   m->f.shid, S);
    shunti_gemm_nn(m->gemm, T, D, S, m->f.shid, S, m->w.s2, D, SHUNTI_GEMM_SET,
                   m->sh, D);
}

/* The rows of the local experts in a part: each expert has some ranges of rows.
 * Without parts, each expert has one range. */
struct ranges {
    const size_t *first; /* number of each expert's first range; NULL: one range
                          * for each expert */
    const size_t *offset, *count;
};

static struct ranges ranges_of(const struct layer *m, int part)
{
    if (part == LAYER_WHOLE)
        return (struct ranges){NULL, m->at.offset, m->at.count};
    return (struct ranges){m->part[part].first_range, m->part[part].offset,
                           m->part[part].count};
}

static size_t first_range(const struct ranges *r, size_t expert)
{
    return r->first ? r->first[expert] : expert;
}

static void grouped(struct layer *m, const struct ranges *r, const float *a,
                    size_t k, const float *w, size_t n, float *c)
{
    const size_t E = (size_t)m->at.local_experts;
    size_t items = 0;

    for (size_t e = 0; e < E; e++)
        for (size_t i = first_range(r, e); i < first_range(r, e + 1); i++)
            m->items[items++] =
                (struct shunti_gemm_item){r->count[i], a + r->offset[i] * k,
                                          w + e * k * n, c + r->offset[i] * n};
    shunti_gemm_grouped_nn(m->gemm, m->items, items, n, k, k, n,
                           SHUNTI_GEMM_SET, n);
}

static void mlp_f(struct layer *m, int part)
{
    const size_t D = m->shape.D, F = m->shape.F;
    const struct ranges r = ranges_of(m, part);

    grouped(m, &r, m->f.rows, D, m->w.w1, F, m->f.hid);
    grouped(m, &r, m->f.hid, F, m->w.w2, D, m->f.out);
}

static void mlp_b(struct layer *m, int part, const float *dout)
{
    const size_t D = m->shape.D, F = m->shape.F;
    const struct ranges r = ranges_of(m, part);

    for (size_t e = 0; e < (size_t)m->at.local_experts; e++)
        for (size_t i = first_range(&r, e); i < first_range(&r, e + 1); i++) {
            const size_t n = r.count[i], row = r.offset[i];
            float *dhid = m->dhid + row * F;

            if (!n)
                continue;
            shunti_gemm_nt(m->gemm, n, F, D, dout + row * D, D,
                           m->w.w2 + e * D * F, D, SHUNTI_GEMM_SET, dhid, F);
            shunti_gemm_nt(m->gemm, n, D, F, dhid, F, m->w.w1 + e * D * F, F,
                           SHUNTI_GEMM_SET, m->drows + row * D, D);
        }
}

static void mlp_dw(struct layer *m, const float *dout)
{
    const size_t D = m->shape.D, F = m->shape.F;

    for (size_t e = 0; e < (size_t)m->at.local_experts; e++) {
        const size_t n = m->at.count[e], row = m->at.offset[e];

        if (!n)
            continue;
        shunti_gemm_tn(m->gemm, F, D, n, m->b.hid + row * F, F, dout + row * D,
                       D, SHUNTI_GEMM_ADD, m->dw.w2 + e * D * F, D);
        shunti_gemm_tn(m->gemm, D, F, n, m->b.rows + row * D, D,
                       m->dhid + row * F, F, SHUNTI_GEMM_ADD,
                       m->dw.w1 + e * D * F, F);
    }
}

static void shared_b(struct layer *m, const float *dy)
{
    const size_t T = m->shape.T, D = m->shape.D, S = m->shape.S;

    shunti_gemm_nt(m->gemm, T, S, D, dy, D, m->w.s2, D, SHUNTI_GEMM_SET,
                   m->dshid, S);
    shunti_gemm_nt(m->gemm, T, D, S, m->dshid, S, m->w.s1, S, SHUNTI_GEMM_SET,
                   m->dxs, D);
}

static void shared_dw(struct layer *m, const float *dy)
{
    const size_t T = m->shape.T, D = m->shape.D, S = m->shape.S;

    shunti_gemm_tn(m->gemm, S, D, T, m->b.shid, S, dy, D, SHUNTI_GEMM_ADD,
                   m->dw.s2, D);
    shunti_gemm_tn(m->gemm, D, S, T, m->b.x2, D, m->dshid, S, SHUNTI_GEMM_ADD,
                   m->dw.s1, S);
}

static void attn_b(struct layer *m, const float *dy, float *next)
{
    const size_t T = m->shape.T, D = m->shape.D, A = m->shape.A;

    copy(m, dy, m->dx2);
    add(m, m->dxr, m->dx2);
    add(m, m->dxs, m->dx2);
    shunti_gemm_nt(m->gemm, T, A, D, m->dx2, D, m->w.wb, D, SHUNTI_GEMM_SET,
                   m->dah, A);
    copy(m, m->dx2, next);
    shunti_gemm_nt(m->gemm, T, D, A, m->dah, A, m->w.wa, A, SHUNTI_GEMM_ADD,
                   next, D);
}

static void attn_dw(struct layer *m)
{
    const size_t T = m->shape.T, D = m->shape.D, A = m->shape.A;

    shunti_gemm_tn(m->gemm, A, D, T, m->b.ah, A, m->dx2, D, SHUNTI_GEMM_ADD,
                   m->dw.wb, D);
    shunti_gemm_tn(m->gemm, D, A, T, m->b.x1, D, m->dah, A, SHUNTI_GEMM_ADD,
                   m->dw.wa, A);
}

void layer_compute(struct layer *m, enum layer_op op, int part, int l)
{
    switch (op) {
    case LAYER_ATTN_F:
        attn_f(m);
        break;
    case LAYER_SHARED_F:
        shared_f(m);
        break;
    case LAYER_MLP_F:
        mlp_f(m, part);
        break;
    case LAYER_MLP_B:
        mlp_b(m, part, m->dout[l % 2]);
        break;
    case LAYER_MLP_DW:
        mlp_dw(m, m->dout[l % 2]);
        break;
    case LAYER_SHARED_B:
        shared_b(m, m->dy[l % 2]);
        break;
    case LAYER_SHARED_DW:
        shared_dw(m, m->dy[l % 2]);
        break;
    case LAYER_ATTN_B:
        attn_b(m, m->dy[l % 2], m->dy[(l + 1) % 2]);
        break;
    case LAYER_ATTN_DW:
        attn_dw(m);
        break;
    case LAYER_OPS:
        break;
    }
}

/* --- exchanges ------------------------------------------------------------ */

static void start_whole(struct layer *m, enum layer_exchange exchange, int l,
                        struct shunt_request **request)
{
    switch (exchange) {
    case LAYER_DISPATCH_F:
        must(m,
             shunt_moe_dispatch_start(m->plan[0], m->f.x2, m->f.rows,
                                      m->at.total, request),
             "dispatch");
        break;
    case LAYER_COMBINE_F:
        must(
            m,
            shunt_moe_combine_start(m->plan[0], m->f.out, NULL, m->yr, request),
            "combine");
        break;
    case LAYER_COMBINE_B:
        must(m,
             shunt_moe_combine_backward_start(m->plan[1], m->dy[l % 2],
                                              m->b.out, m->dout[l % 2],
                                              m->at.total, m->dweight, request),
             "combine_backward");
        break;
    case LAYER_DISPATCH_B:
        must(m,
             shunt_moe_dispatch_backward_start(m->plan[1], m->drows, m->dxr,
                                               request),
             "dispatch_backward");
        break;
    case LAYER_EXCHANGES:
        break;
    }
}

static void start_part(struct layer *m, enum layer_exchange exchange, int part,
                       int l, struct shunt_request **request)
{
    switch (exchange) {
    case LAYER_DISPATCH_F:
        must(m,
             shunt_moe_dispatch_part_start(m->plan[0], part, m->f.x2, m->f.rows,
                                           m->at.total, request),
             "dispatch of a part");
        break;
    case LAYER_COMBINE_F:
        must(m,
             shunt_moe_combine_part_start(m->plan[0], part, m->f.out, NULL,
                                          m->yr, request),
             "combine of a part");
        break;
    case LAYER_COMBINE_B:
        must(m,
             shunt_moe_combine_backward_part_start(
                 m->plan[1], part, m->dy[l % 2], m->b.out, m->dout[l % 2],
                 m->at.total, m->dweight, request),
             "combine_backward of a part");
        break;
    case LAYER_DISPATCH_B:
        must(m,
             shunt_moe_dispatch_backward_part_start(m->plan[1], part, m->drows,
                                                    m->dxr, request),
             "dispatch_backward of a part");
        break;
    case LAYER_EXCHANGES:
        break;
    }
}

static struct shunt_request **request_of(struct layer *m,
                                         enum layer_exchange exchange, int part)
{
    return &m->request[exchange][part == LAYER_WHOLE ? 0 : part];
}

void layer_start(struct layer *m, enum layer_exchange exchange, int part, int l)
{
    struct shunt_request **request = request_of(m, exchange, part);

    if (part == LAYER_WHOLE)
        start_whole(m, exchange, l, request);
    else
        start_part(m, exchange, part, l, request);
}

void layer_wait(struct layer *m, enum layer_exchange exchange, int part)
{
    must(m, shunt_wait(request_of(m, exchange, part)), "wait");
}
