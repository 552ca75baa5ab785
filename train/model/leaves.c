// SPDX-License-Identifier: Apache-2.0
/* See leaves.h. */
#include "train/model/leaves.h"

#include "src/kernels/elementwise.h"
#include "train/base/error.h"
#include "train/exchange/exchange_shunt.h"
#include "train/model/gradients.h"

#include <shunt/shunt.h>

#include <stdlib.h>
#include <string.h>

int leaves_create(struct leaves *x, struct exchange *exchange,
                  struct balance *balance, size_t layers, size_t experts)
{
    *x = (struct leaves){
        .exchange = exchange,
        .balance = balance,
        .layers = layers,
        .memory = calloc(layers ? layers : 1, sizeof(*x->memory)),
        .room = calloc(layers ? layers : 1, sizeof(*x->room)),
        .sums = calloc(experts, sizeof(*x->sums)),
    };
    return x->memory && x->room && x->sums ? 0 : train_error("out of memory");
}

void leaves_destroy(struct leaves *x)
{
    for (size_t l = 0; x->memory && l < x->layers; l++)
        free(x->memory[l]);
    free(x->memory);
    free(x->room);
    free(x->sums);
    x->waves.bytes = 0; /* the model that counted these bytes may be gone */
    leaves_waves_end(&x->waves);
    memset(x, 0, sizeof(*x));
}

/* Does this rank compute an expert's whole sum, and is it the expert's home? */
static bool is_whole(const struct leaves *x, size_t routing,
                     const struct shunt_moe_rows *rows, size_t e)
{
    return rows->range[e].count == rows->range[e].all &&
           balance_is_home(x->balance, routing, rows->expert[e]);
}

/* Reserve memory for all sums that stay, and for the sums that an expert needs
 * while its rows are added. */
static int reserve(struct leaves *x, size_t routing,
                   const struct shunt_moe_rows *rows, size_t n)
{
    const size_t layer = routing % x->layers;
    size_t used = 0, most = 0;

    for (size_t e = 0; e < (size_t)rows->local_experts; e++) {
        const struct shunt_moe_range *range = &rows->range[e];
        const size_t room = used + shunt_moe_tree_room(range, rows->leaf_rows);

        most = room > most ? room : most;
        if (!is_whole(x, routing, rows, e))
            used += shunt_moe_tree_sums(range, rows->leaf_rows);
    }
    if (most <= x->room[layer])
        return 0;
    free(x->memory[layer]);
    x->memory[layer] = malloc(most * n * sizeof(float));
    x->room[layer] = x->memory[layer] ? most : 0;
    return x->memory[layer]
               ? 0
               : train_error("out of memory for %zu sums of gradients of "
                             "experts: take more --leaf-rows",
                             most);
}

/* Handle the complete sums of an expert, which begin at `at`. If this is the
 * expert's home and has the sum of all rows, add the sum to the gradient. Other
 * sums stay in memory to be sent. Returns how many stay. */
static size_t take_sums(struct leaves *x, struct model *m,
                        struct micro_batch *b, size_t l, size_t e, float *at,
                        size_t sums)
{
    if (!is_whole(x, model_routing(m, b, l), &x->rows, e)) {
        x->sums[e] = sums ? at : NULL;
        return sums;
    }
    if (sums)
        shunti_elementwise()->add(m->layout.expert_size, at,
                                  gradient_of(m, b, l, x->rows.expert[e]));
    return 0;
}

static int begin(void *arg, struct model *m, struct micro_batch *b, size_t l)
{
    struct leaves *x = arg;
    const struct exchange_rows *at = &b->experts[l].at;
    const size_t routing = model_routing(m, b, l), layer = routing % x->layers;

    shunt_moe_plan_rows(exchange_shunt_plan(x->exchange, routing), &x->rows,
                        sizeof(x->rows));
    shunt_moe_plan_rows(exchange_shunt_wave(x->exchange, routing), &x->wave,
                        sizeof(x->wave));
    if (!at->wave) {
        memset(x->sums, 0, at->experts * sizeof(*x->sums));
        x->used = x->missing = 0;
        /* Micro-batches are in order, so first wait for the sums of the
         * previous one. */
        if (balance_sums_are_home(x->balance, layer))
            return -1;
    }
    if (at->waves <= 1)
        return reserve(x, routing, &x->rows, m->layout.expert_size);
    if (!at->wave && leaves_waves_begin(&x->waves, m, &x->rows,
                                        (size_t)x->balance->team->size))
        return -1;
    leaves_waves_next(&x->waves, &x->wave);
    return 0;
}

/* Begin the next leaf, since the previous leaf is complete. */
static void next_leaf(struct leaves *x, size_t n)
{
    x->missing = 0;
    if (!shunt_moe_tree_next(&x->tree, &x->leaf))
        return;
    memset(x->leaf.gradient, 0, n * sizeof(float));
    x->missing = x->leaf.rows;
}

/* Add some rows of an expert, for a plan with one wave. */
static int add_part(struct leaves *x, struct model *m, struct micro_batch *b,
                    size_t l, const struct expert_part *part, const float *act)
{
    const size_t e = part->e, n = m->layout.expert_size;
    const size_t first = x->rows.offset[e], end = first + x->rows.count[e];
    float *at = x->memory[model_moe_index(&m->c, l)] + x->used * n;
    struct expert_part rest = *part;

    if (part->row == first) {
        if (shunt_moe_tree_begin(&x->tree, &x->rows.range[e], x->rows.leaf_rows,
                                 at, n))
            return train_error("gradients of experts: %s",
                               shunt_last_error(NULL));
        next_leaf(x, n);
    }
    while (rest.N && x->missing) {
        struct expert_part now = rest;

        now.N = rest.N < x->missing ? rest.N : x->missing;
        gradients_add(m, &b->experts[l], &now, act, x->leaf.gradient);
        rest.N -= now.N;
        rest.row += now.N;
        rest.at += now.N;
        x->missing -= now.N;
        if (!x->missing)
            next_leaf(x, n);
    }
    if (rest.row == end)
        x->used += take_sums(x, m, b, l, e, at, x->tree.sums);
    return 0;
}

static int add(void *arg, struct model *m, struct micro_batch *b, size_t l,
               const struct expert_part *part, const float *act)
{
    struct leaves *x = arg;

    if (!part->N)
        return 0;
    return x->rows.waves > 1
               ? leaves_waves_add(&x->waves, m, &b->experts[l], part, act)
               : add_part(x, m, b, l, part, act);
}

/* After the last wave: add the sums to the gradients, and send the sums of
 * copies. */
static int end(void *arg, struct model *m, struct micro_batch *b, size_t l)
{
    struct leaves *x = arg;
    const struct exchange_rows *at = &b->experts[l].at;

    if (at->wave + 1 < at->waves)
        return 0;
    for (size_t e = 0; at->waves > 1 && e < at->experts; e++) {
        const float *sum = leaves_waves_sum(&x->waves, e);

        if (sum) /* sum of all rows: with waves there are no copies */
            shunti_elementwise()->add(m->layout.expert_size, sum,
                                      gradient_of(m, b, l, x->rows.expert[e]));
    }
    leaves_waves_end(&x->waves);
    return balance_send_sums(x->balance, model_routing(m, b, l), x->sums);
}

struct model_gradients leaves_gradients(struct leaves *x, size_t leaf_rows)
{
    return (struct model_gradients){begin, add, end, x, leaf_rows};
}
