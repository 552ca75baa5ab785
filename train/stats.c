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

/* Adds a row of a layer's. */
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
    for (size_t e = 0; e < c->experts; e++)
        probs[e] += p[e];
    for (size_t j = 0; j < c->topk; j++) {
        if (choice[j] >= 0)
            assigned[choice[j]] += 1;
        if (counted[j] >= 0)
            counts[counted[j]] += gate_counts_weights(c) ? weight[j] : 1;
    }
}

void stats_of_layer(const struct model *m, const struct micro_batch *b,
                    size_t l, size_t T, double *stats)
{
    const struct router_config c = model_router(&m->c);
    const size_t size = stats_size(&m->c), i = model_moe_index(&m->c, l);

    for (size_t s = b->first / T; s < (b->first + b->R) / T; s++)
        memset(stats_layer(&m->c, stats + s * size, i), 0,
               layer_size(&m->c) * sizeof(*stats));
    for (size_t r = 0; r < b->R; r++)
        add_row(m, &c, &b->rows.act[l], r,
                stats_layer(&m->c, stats + (b->first + r) / T * size, i));
}

void stats_of_losses(const struct model *m, size_t B, size_t T, double *stats)
{
    const size_t size = stats_size(&m->c);

    for (size_t b = 0; b < B; b++)
        stats[b * size] = 0;
    for (size_t r = 0; r < B * T; r++)
        stats[r / T * size] += m->rows.loss[r];
}
