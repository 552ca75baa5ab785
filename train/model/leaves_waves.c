// SPDX-License-Identifier: Apache-2.0
/* See leaves_waves.h. */
#include "train/model/leaves_waves.h"

#include "src/kernels/elementwise.h"
#include "train/base/error.h"
#include "train/model/gradients.h"
#include "train/model/model_inner.h"

#include <stdlib.h>
#include <string.h>

/* A leaf of which some rows have arrived. Each of these rows is at its place in
 * `rows`. */
struct leaves_open {
    uint64_t leaf;
    size_t held;
    float *rows;
};

/* The sum of a subtree with 2^level leaves from `first` on, or fewer at the
 * end. */
struct leaves_sum {
    uint64_t first;
    unsigned level;
    float *sum;
};

struct leaves_of_expert {
    uint64_t rows; /* rows of the expert in all waves */
    struct leaves_open *open;
    struct leaves_sum *sum;
    size_t opened, open_max, sums, sum_max;
};

/* --- memory ----------------------------------------------------------------------- */

static float *take(struct leaves_memory *memory, size_t floats)
{
    float *p = memory->count ? memory->free[--memory->count]
                             : malloc(floats * sizeof(*p));

    if (!p)
        train_error("out of memory for the leaves of waves: take other "
                    "--leaf-rows, or leave out --max-rows");
    return p;
}

/* Put memory on the list of free memory. Returns false if the list is full, and
 * the memory was freed instead. */
static bool give(struct leaves_memory *memory, float *p)
{
    if (memory->count == sizeof(memory->free) / sizeof(*memory->free)) {
        free(p);
        return false;
    }
    memory->free[memory->count++] = p;
    return true;
}

static void empty(struct leaves_memory *memory)
{
    while (memory->count)
        free(memory->free[--memory->count]);
}

static size_t leaf_bytes(const struct leaves_waves *x)
{
    return x->leaf_rows * memory_open_row(x->D, x->F) * sizeof(float);
}

/* Allocate memory for the rows of a leaf. of: rows of the routing, which must
 * not be dropped to make room for the leaf. */
static float *take_rows(struct leaves_waves *x, const struct expert_rows *of)
{
    float *p;

    if (x->rows.count)
        return take(&x->rows, 0);
    if (model_take(x->model, of, leaf_bytes(x)))
        return NULL;
    p = take(&x->rows, leaf_bytes(x) / sizeof(float));
    if (p)
        x->bytes += leaf_bytes(x);
    else
        model_give(x->model, leaf_bytes(x));
    return p;
}

static void give_rows(struct leaves_waves *x, float *p)
{
    if (give(&x->rows, p))
        return;
    model_give(x->model, leaf_bytes(x));
    x->bytes -= leaf_bytes(x);
}

/* Make room for one more element of a list. */
static int reserve(void *list, size_t size, size_t used, size_t *most)
{
    void *old, *more;

    if (used < *most)
        return 0;
    memcpy(&old, list, sizeof(old));
    more = realloc(old, (2 * *most + 4) * size);
    if (!more)
        return train_error("out of memory for the leaves of waves");
    memcpy(list, &more, sizeof(more));
    *most = 2 * *most + 4;
    return 0;
}

void leaves_waves_end(struct leaves_waves *x)
{
    for (size_t e = 0; x->of && e < x->experts; e++) {
        struct leaves_of_expert *of = &x->of[e];

        for (size_t i = 0; i < of->opened; i++)
            free(of->open[i].rows);
        for (size_t i = 0; i < of->sums; i++)
            free(of->sum[i].sum);
        free(of->open);
        free(of->sum);
    }
    free(x->of);
    free(x->next);
    empty(&x->rows);
    empty(&x->sums);
    if (x->bytes)
        model_give(x->model, x->bytes);
    memset(x, 0, sizeof(*x));
}

int leaves_waves_begin(struct leaves_waves *x, struct model *m,
                       const struct shunt_moe_rows *plan, size_t ranks)
{
    const size_t experts = (size_t)plan->local_experts;

    leaves_waves_end(x);
    *x = (struct leaves_waves){
        .model = m,
        .experts = experts,
        .ranks = ranks,
        .leaf_rows = m->gradients.leaf_rows,
        .D = m->c.dim,
        .F = m->c.expert_hidden,
        .floats = m->layout.expert_size,
        .of = calloc(experts + 1, sizeof(*x->of)),
        .next = calloc(ranks * experts + 1, sizeof(*x->next)),
    };
    if (!x->of || !x->next)
        return train_error("out of memory");
    for (size_t e = 0; e < experts; e++)
        for (size_t s = 0; s < ranks; s++) {
            x->next[s * experts + e] = x->of[e].rows;
            x->of[e].rows += plan->source_count[s * experts + e];
        }
    return 0;
}

void leaves_waves_next(struct leaves_waves *x,
                       const struct shunt_moe_rows *wave)
{
    for (size_t i = 0; x->received && i < x->ranks * x->experts; i++)
        x->next[i] += x->received[i];
    x->received = wave->source_count;
}

/* --- sums ------------------------------------------------------------------------- */

static uint64_t leaves_of(const struct leaves_waves *x,
                          const struct leaves_of_expert *of)
{
    return (of->rows + x->leaf_rows - 1) / x->leaf_rows;
}

/* Remove the sum of 2^level leaves from `first` on from the list, and return
 * it. Returns NULL if the list does not have it. */
static float *take_sum(struct leaves_of_expert *of, uint64_t first,
                       unsigned level)
{
    for (size_t i = 0; i < of->sums; i++)
        if (of->sum[i].first == first && of->sum[i].level == level) {
            float *sum = of->sum[i].sum;
            of->sum[i] = of->sum[--of->sums];
            return sum;
        }
    return NULL;
}

/* Add the sum of a leaf to its partners in the tree, as far as these have been
 * made. The result stays in the list until its own partner has been made. */
static int add_sum(struct leaves_waves *x, struct leaves_of_expert *of,
                   uint64_t first, float *sum)
{
    const uint64_t leaves = leaves_of(x, of);
    unsigned level = 0;

    for (;; level++) {
        const uint64_t width = (uint64_t)1 << level;
        const bool right = first & width;
        float *partner;

        if (!right && first + width >= leaves) {
            if (!first)
                break; /* this is the sum of all leaves */
            continue;  /* no partner: the same sum is one level higher */
        }
        partner = take_sum(of, right ? first - width : first + width, level);
        if (!partner)
            break;
        shunti_elementwise()->add(x->floats, right ? sum : partner,
                                  right ? partner : sum);
        give(&x->sums, right ? sum : partner);
        sum = right ? partner : sum;
        first -= right ? width : 0;
    }
    if (reserve(&of->sum, sizeof(*of->sum), of->sums, &of->sum_max)) {
        free(sum);
        return -1;
    }
    of->sum[of->sums++] = (struct leaves_sum){first, level, sum};
    return 0;
}

const float *leaves_waves_sum(const struct leaves_waves *x, size_t e)
{
    return x->of[e].sums ? x->of[e].sum[0].sum : NULL;
}

/* --- leaves ----------------------------------------------------------------------- */

/* The parts of a leaf's memory. */
struct kept {
    float *rows, *dout, *act, *dhidden;
};

static struct kept kept_in(const struct leaves_waves *x, float *memory)
{
    struct kept k = {.rows = memory};

    k.dout = k.rows + x->leaf_rows * x->D;
    k.act = k.dout + x->leaf_rows * x->D;
    k.dhidden = k.act + x->leaf_rows * x->F;
    return k;
}

/* Find an incomplete leaf, or begin the leaf. Returns NULL on failure, with
 * train_error_text(). */
static struct leaves_open *open_leaf(struct leaves_waves *x,
                                     const struct expert_rows *r,
                                     struct leaves_of_expert *of, uint64_t leaf)
{
    struct leaves_open *o;

    for (size_t i = 0; i < of->opened; i++)
        if (of->open[i].leaf == leaf)
            return &of->open[i];
    if (reserve(&of->open, sizeof(*of->open), of->opened, &of->open_max))
        return NULL;
    o = &of->open[of->opened];
    *o = (struct leaves_open){
        .leaf = leaf,
        .rows = take_rows(x, r),
    };
    of->opened += o->rows != NULL;
    return o->rows ? o : NULL;
}

/* Copy rows of a part to a leaf. The first row of the part is row `at` of the
 * leaf. */
static void keep(const struct leaves_waves *x, struct leaves_open *o,
                 const struct model *m, const struct expert_rows *r,
                 const struct expert_part *p, const float *act, size_t at)
{
    const size_t D = x->D, F = x->F;
    const struct kept k = kept_in(x, o->rows);

    memcpy(k.rows + at * D, r->at.rows + p->row * D, p->N * D * sizeof(float));
    memcpy(k.dout + at * D, r->at.dout + p->row * D, p->N * D * sizeof(float));
    memcpy(k.act + at * F, act + p->at * F, p->N * F * sizeof(float));
    memcpy(k.dhidden + at * 2 * F, m->dhidden + p->at * 2 * F,
           p->N * 2 * F * sizeof(float));
    o->held += p->N;
}

/* Add rows of one source that are in one leaf. The leaf has `rows` rows, and
 * the first added row is row `at` of the leaf. */
static int add_to_leaf(struct leaves_waves *x, struct model *m,
                       const struct expert_rows *r, const struct expert_part *p,
                       const float *act, uint64_t leaf, size_t at, size_t rows)
{
    struct leaves_of_expert *of = &x->of[p->e];
    struct leaves_open *o = NULL;
    float *sum;

    if (p->N < rows) {
        o = open_leaf(x, r, of, leaf);
        if (!o)
            return -1;
        keep(x, o, m, r, p, act, at);
        if (o->held < rows)
            return 0;
    }
    sum = take(&x->sums, x->floats);
    if (!sum)
        return -1;
    memset(sum, 0, x->floats * sizeof(*sum));
    if (o) {
        const struct kept k = kept_in(x, o->rows);
        feed_forward_backward_weights(
            m->gemm, rows, x->D, x->F, k.dout, k.rows, k.act, k.dhidden,
            (struct grad){sum + m->layout.gate_up, 0, 1},
            (struct grad){sum + m->layout.down, 0, 1});
        give_rows(x, o->rows);
        *o = of->open[--of->opened];
    } else {
        gradients_add(m, r, p, act, sum);
    }
    return add_sum(x, of, leaf, sum);
}

/* Add rows of one source. The first added row is row `first` of the expert. */
static int add_rows(struct leaves_waves *x, struct model *m,
                    const struct expert_rows *r, struct expert_part rest,
                    const float *act, uint64_t first)
{
    const uint64_t all = x->of[rest.e].rows;

    while (rest.N) {
        const uint64_t leaf = first / x->leaf_rows;
        const uint64_t begin = leaf * x->leaf_rows;
        const size_t rows =
            all - begin < x->leaf_rows ? (size_t)(all - begin) : x->leaf_rows;
        const size_t at = (size_t)(first - begin);
        struct expert_part now = rest;

        now.N = rows - at < rest.N ? rows - at : rest.N;
        if (add_to_leaf(x, m, r, &now, act, leaf, at, rows))
            return -1;
        rest.N -= now.N;
        rest.row += now.N;
        rest.at += now.N;
        first += now.N;
    }
    return 0;
}

int leaves_waves_add(struct leaves_waves *x, struct model *m,
                     const struct expert_rows *r,
                     const struct expert_part *part, const float *act)
{
    /* The part as a range of the expert's rows in this wave. */
    const size_t begin = part->row - r->at.offset[part->e];
    const size_t end = begin + part->N;
    size_t before = 0; /* rows of earlier sources */

    for (size_t s = 0; s < x->ranks && before < end; s++) {
        const size_t i = s * x->experts + part->e, n = x->received[i];
        const size_t from = begin > before ? begin - before : 0;
        const size_t to = end - before < n ? end - before : n;

        before += n;
        if (from >= to)
            continue;
        const size_t skip = before - n + from - begin;
        if (add_rows(x, m, r,
                     (struct expert_part){part->e, part->row + skip, to - from,
                                          part->at + skip},
                     act, x->next[i] + from))
            return -1;
    }
    return 0;
}
