// SPDX-License-Identifier: Apache-2.0
/*
 * Rows are copied by nested loops over experts and assignments. Sums run in
 * that order: by expert, then by token, then by slot.
 *
 * A call only fills its result with NaNs; wait() does the work. So the gradient
 * is wrong if a caller reads the result too early, or changes an input.
 */
#include "tests/train/exchange_local.h"

#include "train/base/error.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct local;
struct plan;
typedef void move(struct local *s, struct plan *p, size_t i, size_t row,
                  const float *from, float *to, float *dweight);

/* A call under way. move NULL: there is none. */
struct call {
    move *move;
    const float *from;
    float *to, *dweight;
    bool adds;
};

struct plan {
    struct call call;
    size_t tokens;
    int32_t *choice;
    float *weight;
    int32_t *expert;
    size_t *count, *offset;
    float *buffer[4];
};

struct local {
    struct exchange base;
    size_t layers, E, K, D;
    struct plan *plans;
    float *memory[64];
    size_t nmemory;
};

static void forget(struct plan *p)
{
    free(p->choice);
    free(p->weight);
    free(p->expert);
    free(p->count);
    free(p->offset);
    for (int i = 0; i < 4; i++)
        free(p->buffer[i]);
    memset(p, 0, sizeof(*p));
}

static float *memory(struct exchange *x, size_t floats)
{
    struct local *s = (struct local *)x;

    float *p = s->nmemory == 64 ? NULL : calloc(floats + 1, sizeof(*p));

    if (!p)
        train_error("no memory for %zu floats", floats);
    else
        s->memory[s->nmemory++] = p;
    return p;
}

static int plan(struct exchange *x, size_t layer, const int32_t *choice,
                const float *weight, size_t tokens, bool again,
                struct exchange_rows *rows)
{
    struct local *s = (struct local *)x;
    struct plan *p = &s->plans[layer];
    size_t n = tokens * s->K;

    (void)again;
    forget(p);
    p->tokens = tokens;
    p->choice = malloc(n * sizeof(*choice) + 1);
    p->weight = malloc(n * sizeof(*weight) + 1);
    memcpy(p->choice, choice, n * sizeof(*choice));
    memcpy(p->weight, weight, n * sizeof(*weight));
    p->expert = calloc(s->E, sizeof(*p->expert));
    p->count = calloc(s->E, sizeof(*p->count));
    p->offset = calloc(s->E + 1, sizeof(*p->offset));
    for (size_t e = 0; e < s->E; e++) {
        p->expert[e] = (int32_t)e;
        for (size_t i = 0; i < n; i++)
            p->count[e] += choice[i] == (int32_t)e;
        p->offset[e + 1] = p->offset[e] + p->count[e];
    }
    for (int i = 0; i < 4; i++)
        p->buffer[i] = calloc(n * s->D + 1, sizeof(float));
    *rows = (struct exchange_rows){
        s->E,         p->expert,    p->count,     p->offset, n, p->buffer[0],
        p->buffer[1], p->buffer[2], p->buffer[3], 1,         0, n,
    };
    return 0;
}

/* Calls `visit` for each assignment, in the order of rows. */
static void each(struct local *s, struct plan *p, const float *from, float *to,
                 float *dweight, move *visit)
{
    size_t row = 0;

    for (size_t e = 0; e < s->E; e++)
        for (size_t i = 0; i < p->tokens * s->K; i++)
            if (p->choice[i] == (int32_t)e)
                visit(s, p, i, row++, from, to, dweight);
}

static void copy_row(struct local *s, struct plan *p, size_t i, size_t row,
                     const float *from, float *to, float *dweight)
{
    (void)p;
    (void)dweight;
    memcpy(to + row * s->D, from + i / s->K * s->D, s->D * sizeof(float));
}

static void add_weighted(struct local *s, struct plan *p, size_t i, size_t row,
                         const float *from, float *to, float *dweight)
{
    (void)dweight;
    for (size_t d = 0; d < s->D; d++)
        to[i / s->K * s->D + d] += p->weight[i] * from[row * s->D + d];
}

static void add_plain(struct local *s, struct plan *p, size_t i, size_t row,
                      const float *from, float *to, float *dweight)
{
    (void)p;
    (void)dweight;
    for (size_t d = 0; d < s->D; d++)
        to[i / s->K * s->D + d] += from[row * s->D + d];
}

static void weigh_row(struct local *s, struct plan *p, size_t i, size_t row,
                      const float *from, float *to, float *dweight)
{
    const float *dy = from + i / s->K * s->D, *out = p->buffer[1];

    dweight[i] = 0;
    for (size_t d = 0; d < s->D; d++) {
        to[row * s->D + d] = p->weight[i] * dy[d];
        dweight[i] += dy[d] * out[row * s->D + d];
    }
}

static int start(struct local *s, struct plan *p, struct call call)
{
    size_t rows = call.adds ? p->tokens : p->offset[s->E];

    for (size_t i = 0; i < rows * s->D; i++)
        call.to[i] = NAN;
    for (size_t i = 0; call.dweight && i < p->tokens * s->K; i++)
        call.dweight[i] = NAN;
    p->call = call;
    return 0;
}

static int dispatch_start(struct exchange *x, size_t layer, const float *from)
{
    struct local *s = (struct local *)x;
    struct plan *p = &s->plans[layer];

    return start(s, p,
                 (struct call){copy_row, from, p->buffer[0], NULL, false});
}

static int combine_start(struct exchange *x, size_t layer, float *y)
{
    struct local *s = (struct local *)x;
    struct plan *p = &s->plans[layer];

    return start(s, p,
                 (struct call){add_weighted, p->buffer[1], y, NULL, true});
}

static int combine_backward_start(struct exchange *x, size_t layer,
                                  const float *dy, float *dweight)
{
    struct local *s = (struct local *)x;
    struct plan *p = &s->plans[layer];

    return start(s, p,
                 (struct call){weigh_row, dy, p->buffer[2], dweight, false});
}

static int dispatch_backward_start(struct exchange *x, size_t layer, float *dx)
{
    struct local *s = (struct local *)x;
    struct plan *p = &s->plans[layer];

    return start(s, p, (struct call){add_plain, p->buffer[3], dx, NULL, true});
}

static int wait_for(struct exchange *x, size_t layer)
{
    struct local *s = (struct local *)x;
    struct plan *p = &s->plans[layer];
    const struct call call = p->call;

    if (!call.move)
        return train_error("nothing is under way");
    p->call.move = NULL;
    if (call.adds)
        memset(call.to, 0, p->tokens * s->D * sizeof(*call.to));
    each(s, p, call.from, call.to, call.dweight, call.move);
    return 0;
}

static void release(struct exchange *x, size_t layer)
{
    struct local *s = (struct local *)x;

    forget(&s->plans[layer]);
}

static void set_overlap(struct exchange *x, bool overlap)
{
    (void)x;
    (void)overlap;
}

static const struct exchange_ops ops = {
    memory,
    plan,
    NULL, /* ahead() and advance(), which only waves need */
    NULL,
    dispatch_start,
    combine_start,
    combine_backward_start,
    dispatch_backward_start,
    wait_for,
    release,
    set_overlap,
    exchange_local_destroy,
};

struct exchange *exchange_local_create(size_t layers, size_t experts,
                                       size_t topk, size_t dim)
{
    struct local *s = calloc(1, sizeof(*s));

    s->base.ops = &ops;
    s->layers = layers;
    s->E = experts;
    s->K = topk;
    s->D = dim;
    s->plans = calloc(layers, sizeof(*s->plans));
    return &s->base;
}

void exchange_local_destroy(struct exchange *x)
{
    struct local *s = (struct local *)x;

    for (size_t l = 0; l < s->layers; l++)
        forget(&s->plans[l]);
    for (size_t i = 0; i < s->nmemory; i++)
        free(s->memory[i]);
    free(s->plans);
    free(s);
}
