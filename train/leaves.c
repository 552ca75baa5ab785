// SPDX-License-Identifier: Apache-2.0
/* See leaves.h. */
#include "train/leaves.h"

#include "kernels/elementwise.h"
#include "train/error.h"
#include "train/exchange_shunt.h"
#include "train/gradients.h"

#include <shunt/moe_gradients.h>
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
    leaves_waves_end(&x->waves);
    memset(x, 0, sizeof(*x));
}

/* Is all of an expert's sum made at its home? */
static bool is_whole(const struct leaves *x, size_t routing,
                     const struct shunt_moe_rows *rows, size_t e)
{
    return rows->range[e].count == rows->range[e].all &&
           balance_is_home(x->balance, routing, rows->expert[e]);
}

/* Memory for all sums that stay, and for those that an expert's need meanwhile; in
 * waves those of all experts do at once. */
static int reserve(struct leaves *x, size_t routing,
                   const struct shunt_moe_rows *rows, size_t n)
{
    const size_t layer = routing % x->layers;
    size_t used = 0, most = 0;

    for (size_t e = 0; e < (size_t)rows->local_experts; e++) {
        const struct shunt_moe_range *range = &rows->range[e];
        const size_t room = used + shunt_moe_tree_room(range, rows->leaf_rows);

        most = room > most ? room : most;
        if (rows->waves > 1)
            used = room;
        else if (!is_whole(x, routing, rows, e))
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

/* The sums of an expert's leaves, in `memory`; how many there are. */
static int add_leaves(struct model *m, const struct expert_rows *r, size_t e,
                      const struct shunt_moe_rows *rows, float *memory,
                      size_t *sums)
{
    const size_t n = m->layout.expert_size;
    struct shunt_moe_tree tree;
    struct shunt_moe_leaf leaf;

    *sums = 0;
    if (!rows->range[e].count)
        return 0;
    if (shunt_moe_tree_begin(&tree, &rows->range[e], rows->leaf_rows, memory,
                             n))
        return train_error("gradients of experts: %s", shunt_last_error(NULL));
    while (shunt_moe_tree_next(&tree, &leaf)) {
        memset(leaf.gradient, 0, n * sizeof(float));
        const size_t row = r->at.offset[e] + leaf.row;
        gradients_add(m, r, &(struct expert_part){e, row, leaf.rows, row},
                      gradients_act(m, r), leaf.gradient);
    }
    *sums = tree.sums;
    return 0;
}

/* An expert's sums are made, from `at` on. Are they its gradient, to which they are
 * added, or on their way to it? */
static bool take_sums(struct leaves *x, struct model *m, struct micro_batch *b,
                      size_t l, const struct shunt_moe_rows *rows, size_t e,
                      float *at, size_t sums)
{
    const bool whole = is_whole(x, model_routing(m, b, l), rows, e);

    x->sums[e] = sums && !whole ? at : NULL;
    if (sums && whole)
        shunti_elementwise()->add(m->layout.expert_size, at,
                                  gradient_of(m, b, l, rows->expert[e]));
    return whole;
}

/* A wave's rows; after those of the last one the sums are made. */
static int add_wave(struct leaves *x, struct model *m, struct micro_batch *b,
                    size_t l, const struct shunt_moe_rows *rows)
{
    const struct expert_rows *r = &b->experts[l];
    const size_t routing = model_routing(m, b, l);
    float *memory = x->memory[model_moe_index(&m->c, l)];
    struct shunt_moe_rows wave;

    shunt_moe_plan_rows(exchange_shunt_wave(x->exchange, routing), &wave,
                        sizeof(wave));
    if (!r->at.wave && leaves_waves_begin(&x->waves, m, rows, memory))
        return -1;
    leaves_waves_add(&x->waves, m, r, rows, &wave);
    if (r->at.wave + 1 < r->at.waves)
        return 0;
    for (size_t e = 0; e < r->at.experts; e++) {
        const struct shunt_moe_tree *tree = &x->waves.open[e].tree;

        (void)take_sums(x, m, b, l, rows, e, tree->memory, tree->sums);
    }
    leaves_waves_end(&x->waves);
    return balance_bring_sums(x->balance, routing, x->sums);
}

int leaves_gradients(void *arg, struct model *m, struct micro_batch *b,
                     size_t l)
{
    struct leaves *x = arg;
    const struct expert_rows *r = &b->experts[l];
    const size_t routing = model_routing(m, b, l), n = m->layout.expert_size;
    const size_t layer = model_moe_index(&m->c, l);
    struct shunt_moe_rows rows;
    size_t used = 0, sums;

    shunt_moe_plan_rows(exchange_shunt_plan(x->exchange, routing), &rows,
                        sizeof(rows));
    /* Sums of micro-batches are added in their order. */
    if (!r->at.wave && (balance_sums_are_home(x->balance, layer) ||
                        reserve(x, routing, &rows, n)))
        return -1;
    if (r->at.waves > 1)
        return add_wave(x, m, b, l, &rows);
    for (size_t e = 0; e < r->at.experts; e++) {
        float *at = x->memory[layer] ? x->memory[layer] + used * n : NULL;

        if (add_leaves(m, r, e, &rows, at, &sums))
            return -1;
        if (!take_sums(x, m, b, l, &rows, e, at, sums))
            used += sums;
    }
    return balance_bring_sums(x->balance, routing, x->sums);
}
