// SPDX-License-Identifier: Apache-2.0
/* What sequences contribute to losses and statistics; see model.h. */
#include "train/model.h"

#include <string.h>

size_t stats_size(const struct model_config *c)
{
    return 1 + c->layers * (1 + 2 * c->experts);
}

double *stats_layer(const struct model_config *c, double *stats, size_t layer)
{
    return stats + 1 + layer * (1 + 2 * c->experts);
}

void stats_collect(const struct model *m, size_t B, size_t T, double *stats)
{
    size_t E = m->c.experts, K = m->c.topk, size = stats_size(&m->c);

    memset(stats, 0, B * size * sizeof(*stats));
    for (size_t r = 0; r < B * T; r++)
        stats[r / T * size] += m->rows.loss[r];
    for (size_t l = 0; l < m->c.layers; l++) {
        const struct activations *a = &m->rows.act[l];
        for (size_t r = 0; r < B * T; r++) {
            double *s = stats_layer(&m->c, stats + r / T * size, l);
            s[0] += (double)a->lse[r] * a->lse[r];
            for (size_t e = 0; e < E; e++)
                s[1 + e] += a->probs[r * E + e];
            for (size_t j = 0; j < K; j++)
                s[1 + E + (size_t)a->choice[r * K + j]] += 1;
        }
    }
}
