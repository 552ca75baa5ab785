// SPDX-License-Identifier: Apache-2.0
/* Memory of rows. What there is stands in two lists, of a layer's fields and of
 * the others; each field has one vector of 4-byte elements for each row. */
#include "train/rows.h"

#include "train/error.h"
#include "train/layers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 20, ELEMENT = 4 };

struct field {
    size_t at;    /* of the pointer in its struct */
    size_t width; /* elements of a row */
    bool sent;    /* rows are dispatched from it: the exchange's memory */
};

static size_t fields_of_layer(const struct model_config *c, size_t layer,
                              size_t P, struct field f[FIELDS])
{
    const bool moe = model_has_experts(c, layer);
    const size_t E = moe ? c->experts : 0, K = moe ? c->topk : 0;
    const size_t D = c->dim, S = model_common_hidden(c, layer);
    const struct router_config r = model_router(c);
    const size_t logits = moe && gate_keeps_logits(&r) ? gate_width(&r) : 0;
    const size_t counted = gate_counts_apart(&r) ? K : 0;
    const size_t all = P > 1 ? P * D : 0; /* else another field's */
    const struct field fields[] = {
        {offsetof(struct activations, x1), D, false},
        {offsetof(struct activations, inv1), 1, false},
        {offsetof(struct activations, h1), D, false},
        {offsetof(struct activations, h1_all), all, false},
        {offsetof(struct activations, qkv), 3 * D, false},
        {offsetof(struct activations, kept), c->heads * 2, false},
        {offsetof(struct activations, att), D, false},
        {offsetof(struct activations, x2), D, false},
        {offsetof(struct activations, inv2), 1, false},
        {offsetof(struct activations, h2), D, moe},
        {offsetof(struct activations, logits), logits, false},
        {offsetof(struct activations, probs), E, false},
        {offsetof(struct activations, lse), moe, false},
        {offsetof(struct activations, choice), K, false},
        {offsetof(struct activations, counted), counted, false},
        {offsetof(struct activations, weight), K, false},
        {offsetof(struct activations, h2_all), all, false},
        {offsetof(struct activations, shared_hid), 2 * S, false},
        {offsetof(struct activations, shared_act), S, false},
    };

    _Static_assert(sizeof(fields) <= FIELDS * sizeof(*f), "room for them");
    memcpy(f, fields, sizeof(fields));
    return sizeof(fields) / sizeof(*fields);
}

static size_t other_fields(const struct model_config *c, size_t P,
                           struct field f[FIELDS])
{
    const size_t D = c->dim, S = model_most_common(c);
    const struct router_config r = model_router(c);
    const size_t all = P > 1 ? P * D : 0;
    const struct field fields[] = {
        {offsetof(struct rows, x_out), D, false},
        {offsetof(struct rows, inv_out), 1, false},
        {offsetof(struct rows, h_out), D, false},
        {offsetof(struct rows, probs), VOCABULARY, false},
        {offsetof(struct rows, loss), 1, false},
        {offsetof(struct rows, dx), D, true},
        {offsetof(struct rows, dh), D, false},
        {offsetof(struct rows, dtmp), D, false},
        {offsetof(struct rows, dx_all), all, false},
        {offsetof(struct rows, dproj), P * D, false},
        {offsetof(struct rows, dqkv), 3 * D, false},
        {offsetof(struct rows, dlogits), gate_width(&r), false},
        {offsetof(struct rows, scores), c->experts, false},
        {offsetof(struct rows, dweight), c->topk, false},
        {offsetof(struct rows, dshared_hid), 2 * S, false},
        {offsetof(struct rows, dshared_act), S, false},
    };

    _Static_assert(sizeof(fields) <= FIELDS * sizeof(*f), "room for them");
    memcpy(f, fields, sizeof(fields));
    return sizeof(fields) / sizeof(*fields);
}

/* Pointers are copied as bytes, since not all fields are of floats. */
static char *get(const void *of, size_t at)
{
    char *p;

    memcpy(&p, (const char *)of + at, sizeof(p));
    return p;
}

static void put(void *of, size_t at, char *p)
{
    memcpy((char *)of + at, &p, sizeof(p));
}

/* Zeroed. */
static void *allocate(size_t bytes)
{
    const size_t whole = bytes ? (bytes + 63) & ~(size_t)63 : 64;
    void *p = aligned_alloc(64, whole);

    return p ? memset(p, 0, whole) : NULL;
}

/* 0, or -1 with train_error_text(). */
static int allocate_fields(const struct field *f, size_t n, size_t R,
                           struct exchange *exchange, void *of)
{
    for (size_t i = 0; i < n; i++) {
        const size_t count = R * f[i].width;
        void *p = f[i].sent ? exchange->ops->memory(exchange, count)
                            : allocate(count * ELEMENT);

        if (!p && f[i].sent)
            return -1;
        if (!p)
            return train_error("out of memory: the model's activations for %zu "
                               "positions need more than there is; lower "
                               "--batch, --seq or --layers",
                               R);
        put(of, f[i].at, p);
    }
    return 0;
}

int rows_create(const struct model_config *c, size_t R, size_t P,
                struct exchange *exchange, struct rows *rows)
{
    struct field f[FIELDS];
    size_t n;

    memset(rows, 0, sizeof(*rows));
    rows->act = calloc(c->layers, sizeof(*rows->act));
    if (!rows->act)
        return train_error("out of memory");
    for (size_t l = 0; l < c->layers; l++) {
        n = fields_of_layer(c, l, P, f);
        if (allocate_fields(f, n, R, exchange, &rows->act[l]))
            return -1;
    }
    n = other_fields(c, P, f);
    return allocate_fields(f, n, R, exchange, rows);
}

static size_t width_of(const struct field *f, size_t n)
{
    size_t width = 0;

    for (size_t i = 0; i < n; i++)
        width += f[i].width;
    return width;
}

size_t rows_bytes(const struct model_config *c, size_t R, size_t P)
{
    struct field f[FIELDS];
    size_t width = width_of(f, other_fields(c, P, f));

    for (size_t l = 0; l < c->layers; l++)
        width += width_of(f, fields_of_layer(c, l, P, f));
    return R * width * ELEMENT;
}

static void free_fields(const struct field *f, size_t n, const void *of)
{
    for (size_t i = 0; i < n; i++)
        if (!f[i].sent)
            free(get(of, f[i].at));
}

void rows_destroy(const struct model_config *c, struct rows *rows)
{
    struct field f[FIELDS];
    size_t n;

    for (size_t l = 0; rows->act && l < c->layers; l++) {
        n = fields_of_layer(c, l, 1, f);
        free_fields(f, n, &rows->act[l]);
    }
    n = other_fields(c, 1, f);
    free_fields(f, n, rows);
    free(rows->act);
    memset(rows, 0, sizeof(*rows));
}

static void fields_from(const struct field *f, size_t n, size_t first,
                        const void *all, void *view)
{
    for (size_t i = 0; i < n; i++)
        put(view, f[i].at, get(all, f[i].at) + first * f[i].width * ELEMENT);
}

void rows_from(const struct model_config *c, size_t P, const struct rows *all,
               size_t first, struct rows *view)
{
    struct field f[FIELDS];
    size_t n;

    for (size_t l = 0; l < c->layers; l++) {
        n = fields_of_layer(c, l, P, f);
        fields_from(f, n, first, &all->act[l], &view->act[l]);
    }
    n = other_fields(c, P, f);
    fields_from(f, n, first, all, view);
    for (size_t l = 0; P == 1 && l < c->layers; l++) {
        view->act[l].h1_all = view->act[l].h1;
        view->act[l].h2_all = view->act[l].h2;
    }
    if (P == 1)
        view->dx_all = view->dx;
}
