// SPDX-License-Identifier: Apache-2.0
/* What sequences contribute to losses and statistics; see model.h. */
#include "train/model.h"

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

/* Adds a row of a layer, the i-th with experts. */
static void add_row(const struct model *m, const struct router_config *c,
                    size_t i, size_t row, double *to)
{
    const struct activations *a = &m->rows.act[model_moe_layer(&m->c, i)];
    const int32_t *choice = a->choice + row * c->topk;
    const int32_t *counted =
        gate_counts_apart(c) ? a->counted + row * c->topk : choice;
    const float *weight = a->weight + row * c->topk;
    const float *p = a->probs + row * c->experts;
    double *probs = to + stats_at(&m->c, STATS_PROBS);
    double *counts = to + stats_at(&m->c, STATS_COUNTED);
    double *assigned = to + stats_at(&m->c, STATS_ASSIGNED);

    to[0] += (double)a->lse[row] * a->lse[row];
    for (size_t e = 0; e < c->experts; e++)
        probs[e] += p[e];
    for (size_t j = 0; j < c->topk; j++) {
        if (choice[j] >= 0)
            assigned[choice[j]] += 1;
        if (counted[j] >= 0)
            counts[counted[j]] += gate_counts_weights(c) ? weight[j] : 1;
    }
}

void stats_collect(const struct model *m, size_t B, size_t T, double *stats)
{
    const struct router_config c = model_router(&m->c);
    const size_t size = stats_size(&m->c);

    memset(stats, 0, B * size * sizeof(*stats));
    for (size_t r = 0; r < B * T; r++)
        stats[r / T * size] += m->rows.loss[r];
    for (size_t i = 0; i < model_moe_layers(&m->c); i++)
        for (size_t r = 0; r < B * T; r++)
            add_row(m, &c, i, r, stats_layer(&m->c, stats + r / T * size, i));
}
