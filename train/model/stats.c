// SPDX-License-Identifier: Apache-2.0
/* Contributions of sequences to losses and statistics; see model.h. */
#include "train/model/model.h"

#include "src/kernels/elementwise.h"

#include <string.h>

static size_t layer_size(const struct model_config *c)
{
    return 1 + 3 * c->experts;
}

size_t stats_size(const struct model_config *c)
{
    return 1 + model_moe_layers(c) * layer_size(c);
}

double *stats_layer(const struct model_config *c, double *stats, size_t layer)
{
    return stats + 1 + layer * layer_size(c);
}

/* Add one row to a layer's statistics. */
static void add_row(const struct model *m, const struct router_config *c,
                    const struct activations *a, size_t row, double *to)
{
    const int32_t *choice = a->choice + row * c->topk;
    const int32_t *counted =
        gate_counts_apart(c) ? a->counted + row * c->topk : choice;
    const float *weight = a->weight + row * c->topk;
    const float *p = a->probs + row * c->experts;
    double *probs = to + stats_at(&m->c, STATS_PROBS);
    double *counts = to + stats_at(&m->c, STATS_COUNTED);
    double *assigned = to + stats_at(&m->c, STATS_ASSIGNED);

    to[0] += (double)a->lse[row] * a->lse[row];
    shunti_elementwise()->add_f64(c->experts, p, probs);
    for (size_t j = 0; j < c->topk; j++) {
        if (choice[j] >= 0)
            assigned[choice[j]] += 1;
        if (counted[j] >= 0)
            counts[counted[j]] += gate_counts_weights(c) ? weight[j] : 1;
    }
}

static double *layer_of(const struct stats_rows *to, size_t sequence)
{
    const struct model_config *c = &to->model->c;

    return stats_layer(c, to->model->stats + sequence * stats_size(c),
                       model_moe_index(c, to->l));
}

void stats_begin(const struct stats_rows *to)
{
    const size_t first = to->batch->first / to->T;

    for (size_t s = first; s < first + to->batch->B; s++)
        memset(layer_of(to, s), 0, layer_size(&to->model->c) * sizeof(double));
}

void stats_add(void *stats_rows, size_t first, size_t n)
{
    const struct stats_rows *to = stats_rows;
    const struct micro_batch *b = to->batch;
    const struct router_config c = model_router(&to->model->c);

    for (size_t r = first; r < first + n; r++)
        add_row(to->model, &c, &b->rows.act[to->l], r,
                layer_of(to, (b->first + r) / to->T));
}

void stats_of_losses(const struct model *m, size_t B, size_t T, double *stats)
{
    const size_t size = stats_size(&m->c);

    for (size_t b = 0; b < B; b++)
        stats[b * size] = 0;
    for (size_t r = 0; r < B * T; r++)
        stats[r / T * size] += m->rows.loss[r];
}
