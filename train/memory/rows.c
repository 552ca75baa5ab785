// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of rows. One table lists the fields of a layer, and another one lists
 * all other fields. Each field has one vector of 4-byte elements for each row.
 * If a layer's tier does not keep a field, the field is in scratch memory that
 * the layer shares with others.
 */
#include "train/memory/rows.h"

#include "train/base/error.h"
#include "train/layers/layers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = ROWS_FIELDS, ELEMENT = 4 };

/* The modules of fields that belong to no layer. */
enum { HEAD = MEMORY_MODULES, GRADIENTS };

struct field {
    size_t at;    /* offset of the pointer in its struct */
    size_t width; /* elements of a row */
    bool sent;    /* dispatch sends rows from this field, so the exchange
                     allocates it */
    int module;   /* enum memory_module, or HEAD, or GRADIENTS */
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
    const size_t all = P > 1 ? P * D : 0; /* 0: uses another field's memory */
    const struct field fields[] = {
        {offsetof(struct activations, x1), D, false, MEMORY_INPUT},
        {offsetof(struct activations, inv1), 1, false, MEMORY_NORM},
        {offsetof(struct activations, h1), D, false, MEMORY_NORM},
        {offsetof(struct activations, h1_all), all, false, MEMORY_ATTENTION},
        {offsetof(struct activations, qkv), model_qkv_width(c), false,
         MEMORY_ATTENTION},
        {offsetof(struct activations, att_lse), c->heads, false,
         MEMORY_ATTENTION},
        {offsetof(struct activations, att), model_heads_width(c), false,
         MEMORY_ATTENTION},
        {offsetof(struct activations, x2), D, false, MEMORY_RESIDUAL},
        {offsetof(struct activations, inv2), 1, false, MEMORY_NORM},
        {offsetof(struct activations, h2), D, moe, MEMORY_NORM},
        {offsetof(struct activations, logits), logits, false, MEMORY_ROUTER},
        {offsetof(struct activations, probs), E, false, MEMORY_ROUTER},
        {offsetof(struct activations, lse), moe, false, MEMORY_ROUTER},
        {offsetof(struct activations, choice), K, false, MEMORY_ROUTER},
        {offsetof(struct activations, counted), counted, false, MEMORY_ROUTER},
        {offsetof(struct activations, weight), K, false, MEMORY_ROUTER},
        {offsetof(struct activations, h2_all), all, false, MEMORY_EXPERT},
        {offsetof(struct activations, shared_hid), 2 * S, false, MEMORY_EXPERT},
        {offsetof(struct activations, shared_act), S, false, MEMORY_ACTIVATION},
    };

    _Static_assert(sizeof(fields) <= FIELDS * sizeof(*f), "room for them");
    memcpy(f, fields, sizeof(fields));
    return sizeof(fields) / sizeof(*fields);
}

static size_t other_fields(const struct model_config *c, size_t P,
                           struct field f[FIELDS])
{
    const size_t D = c->dim, S = model_most_common(c);
    const size_t A = model_heads_width(c);
    const struct router_config r = model_router(c);
    const size_t all = P > 1 ? P * D : 0;
    const struct field fields[] = {
        {offsetof(struct rows, x_out), D, false, HEAD},
        {offsetof(struct rows, inv_out), 1, false, HEAD},
        {offsetof(struct rows, h_out), D, false, HEAD},
        {offsetof(struct rows, probs), VOCABULARY, false, HEAD},
        {offsetof(struct rows, loss), 1, false, HEAD},
        {offsetof(struct rows, dx), D, true, GRADIENTS},
        {offsetof(struct rows, dh), D, false, GRADIENTS},
        {offsetof(struct rows, dtmp), D > A ? D : A, false, GRADIENTS},
        {offsetof(struct rows, dx_all), all, false, GRADIENTS},
        {offsetof(struct rows, dproj), P * D, false, GRADIENTS},
        {offsetof(struct rows, dqkv), model_qkv_width(c), false, GRADIENTS},
        {offsetof(struct rows, dlogits), gate_width(&r), false, GRADIENTS},
        {offsetof(struct rows, dweight), c->topk, false, GRADIENTS},
        {offsetof(struct rows, dshared_hid), 2 * S, false, GRADIENTS},
        {offsetof(struct rows, dshared_act), S, false, GRADIENTS},
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

/* Allocate zeroed memory, aligned to a cache line. */
static void *allocate(size_t bytes)
{
    const size_t whole = bytes ? (bytes + 63) & ~(size_t)63 : 64;
    void *p = aligned_alloc(64, whole);

    return p ? memset(p, 0, whole) : NULL;
}

/* Allocate memory of a field for R rows. NULL: train_error_text(). */
static void *allocate_field(size_t R, size_t width, bool sent,
                            struct exchange *exchange)
{
    void *p = sent ? (void *)exchange->ops->memory(exchange, R * width)
                   : allocate(R * width * ELEMENT);

    if (!p && !sent)
        train_error("out of memory: the model's activations for %zu positions "
                    "need more than there is; lower --batch, --seq or "
                    "--layers, or give --save-memory",
                    R);
    return p;
}

/* --- scratch memory of layers ------------------------------------------------ */

static bool is_kept(const struct memory_plan *plan, size_t layer, int module)
{
    return plan->tier[layer][module] == MEMORY_KEEP;
}

/* The number of slots of a module. slot_of() says which of them a layer
 * uses. */
static size_t slots(const struct memory_plan *plan, size_t layers, int module)
{
    size_t shared = 0;
    bool copied = false;

    for (size_t l = 0; l < layers; l++) {
        shared += !is_kept(plan, l, module);
        copied |= plan->tier[l][module] == MEMORY_OFFLOAD;
    }
    return copied && shared > 1 ? ROWS_SLOTS : shared > 0;
}

static size_t slot_of(const struct memory_plan *plan, size_t layers,
                      size_t layer, int module)
{
    size_t before = 0;

    for (size_t l = 0; l < layer; l++)
        before += !is_kept(plan, l, module);
    return before % slots(plan, layers, module);
}

/* The i-th field in scratch memory, as wide as its widest layer needs it. */
static struct field scratch_field(const struct model_config *c, size_t P,
                                  const struct memory_plan *plan, size_t i)
{
    struct field all = {0}, f[FIELDS];

    for (size_t l = 0; l < c->layers; l++) {
        const size_t n = fields_of_layer(c, l, P, f);
        if (i >= n || is_kept(plan, l, f[i].module))
            continue;
        f[i].sent |= all.sent;
        f[i].width = f[i].width > all.width ? f[i].width : all.width;
        all = f[i];
    }
    return all; /* width 0: no layer needs it */
}

static int create_scratch(const struct model_config *c, size_t R, size_t P,
                          const struct memory_plan *plan,
                          struct exchange *exchange, struct memory_count *count,
                          struct rows *rows)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field f = scratch_field(c, P, plan, i);
        for (size_t s = 0; f.width && s < slots(plan, c->layers, f.module);
             s++) {
            rows->scratch[i][s] = allocate_field(R, f.width, f.sent, exchange);
            if (!rows->scratch[i][s])
                return -1;
            memory_add(count, R * f.width * ELEMENT);
        }
    }
    return 0;
}

static void destroy_scratch(const struct model_config *c,
                            const struct memory_plan *plan, struct rows *rows)
{
    for (size_t i = 0; i < FIELDS; i++)
        for (size_t s = 0; s < ROWS_SLOTS; s++)
            if (rows->scratch[i][s] && !scratch_field(c, 1, plan, i).sent)
                free(rows->scratch[i][s]);
}

/* --- sizes ------------------------------------------------------------------- */

static size_t module_width(const struct field *f, size_t n, int module)
{
    size_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += f[i].module == module ? f[i].width : 0;
    return sum;
}

size_t rows_module_bytes(const struct model_config *c, size_t layer, size_t P,
                         enum memory_module module)
{
    struct field f[FIELDS];
    const size_t n = fields_of_layer(c, layer, P, f);

    return module_width(f, n, (int)module) * ELEMENT;
}

size_t rows_head_bytes(const struct model_config *c)
{
    struct field f[FIELDS];
    const size_t n = other_fields(c, 1, f);

    return module_width(f, n, HEAD) * ELEMENT;
}

size_t rows_scratch_bytes(const struct model_config *c, size_t P,
                          const struct memory_plan *plan,
                          enum memory_module module)
{
    size_t sum = 0;

    for (size_t i = 0; i < FIELDS; i++) {
        const struct field f = scratch_field(c, P, plan, i);
        sum += f.width && f.module == (int)module ? f.width : 0;
    }
    return sum * ELEMENT * slots(plan, c->layers, (int)module);
}

size_t rows_parts(const struct model_config *c, size_t layer, size_t P,
                  enum memory_module module, const struct activations *of,
                  size_t R, struct rows_part *parts)
{
    struct field f[FIELDS];
    const size_t n = fields_of_layer(c, layer, P, f);
    size_t found = 0;

    for (size_t i = 0; i < n; i++)
        if (f[i].module == (int)module && f[i].width)
            parts[found++] =
                (struct rows_part){get(of, f[i].at), R * f[i].width * ELEMENT};
    return found;
}

/* --- all of it --------------------------------------------------------------- */

/* Allocate the fields of a layer. 0, or -1 with train_error_text(). */
static int create_layer(const struct model_config *c, size_t l, size_t R,
                        size_t P, const struct memory_plan *plan,
                        struct exchange *exchange, struct memory_count *count,
                        struct rows *rows)
{
    struct field f[FIELDS];
    const size_t n = fields_of_layer(c, l, P, f);

    for (size_t i = 0; i < n; i++) {
        void *p;
        if (is_kept(plan, l, f[i].module)) {
            p = allocate_field(R, f[i].width, f[i].sent, exchange);
            if (!p)
                return -1;
            memory_add(count, R * f[i].width * ELEMENT);
        } else {
            p = rows->scratch[i][slot_of(plan, c->layers, l, f[i].module)];
        }
        put(&rows->act[l], f[i].at, p);
    }
    return 0;
}

int rows_create(const struct model_config *c, size_t R, size_t P,
                const struct memory_plan *plan, struct exchange *exchange,
                struct memory_count *count, struct rows *rows)
{
    struct field f[FIELDS];
    const size_t n = other_fields(c, P, f);

    memset(rows, 0, sizeof(*rows));
    rows->act = calloc(c->layers, sizeof(*rows->act));
    if (!rows->act)
        return train_error("out of memory");
    if (create_scratch(c, R, P, plan, exchange, count, rows))
        return -1;
    for (size_t l = 0; l < c->layers; l++)
        if (create_layer(c, l, R, P, plan, exchange, count, rows))
            return -1;
    for (size_t i = 0; i < n; i++) {
        void *p = allocate_field(R, f[i].width, f[i].sent, exchange);
        if (!p)
            return -1;
        put(rows, f[i].at, p);
        if (f[i].module == HEAD)
            memory_add(count, R * f[i].width * ELEMENT);
    }
    return 0;
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

void rows_destroy(const struct model_config *c, const struct memory_plan *plan,
                  struct rows *rows)
{
    struct field f[FIELDS];
    size_t n;

    for (size_t l = 0; rows->act && l < c->layers; l++) {
        n = fields_of_layer(c, l, 1, f);
        for (size_t i = 0; i < n; i++)
            if (!f[i].sent && is_kept(plan, l, f[i].module))
                free(get(&rows->act[l], f[i].at));
    }
    destroy_scratch(c, plan, rows);
    n = other_fields(c, 1, f);
    for (size_t i = 0; i < n; i++)
        if (!f[i].sent)
            free(get(rows, f[i].at));
    free(rows->act);
    memset(rows, 0, sizeof(*rows));
}

static void fields_from(const struct field *f, size_t n, size_t first,
                        const void *all, void *view)
{
    for (size_t i = 0; i < n; i++)
        if (f[i].width)
            put(view, f[i].at,
                get(all, f[i].at) + first * f[i].width * ELEMENT);
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
