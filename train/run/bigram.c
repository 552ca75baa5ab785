// SPDX-License-Identifier: Apache-2.0
/*
 * Interpolated bigrams (Jelinek, Mercer, 1980, in the form of a Dirichlet
 * prior).
 */
#include "train/run/bigram.h"

#include <math.h>
#include <stdlib.h>

struct counts {
    double pair[256][256], first[256], byte[256], n;
};

static double loss_with(const struct counts *c, double k,
                        const struct held *held, size_t windows, size_t T)
{
    double sum = 0;

    for (size_t w = 0; w < windows; w++) {
        const uint8_t *s = data_window(held, w, windows, T);
        for (size_t i = 0; i < T; i++) {
            double p = (c->byte[s[i + 1]] + 1) / (c->n + 256);
            sum -=
                log((c->pair[s[i]][s[i + 1]] + k * p) / (c->first[s[i]] + k));
        }
    }
    return sum / (double)(windows * T);
}

double bigram_loss(const struct data *data, const struct held *held,
                   size_t windows, size_t T)
{
    struct counts *c = calloc(1, sizeof(*c));
    double best = INFINITY;

    if (!c)
        return NAN;
    for (size_t i = 0; i < data->ntrain; i++) {
        c->byte[data->train[i]]++;
        c->n++;
        if (i == 0)
            continue;
        c->pair[data->train[i - 1]][data->train[i]]++;
        c->first[data->train[i - 1]]++;
    }
    for (double k = 1; k <= 4096; k *= 2) {
        double loss = loss_with(c, k, held, windows, T);
        best = loss < best ? loss : best;
    }
    free(c);
    return best;
}
