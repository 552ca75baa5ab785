// SPDX-License-Identifier: Apache-2.0
/*
 * The balancing loss of some tokens, from sums over them. With all gates but
 * `noisy`:
 *
 *     E sum_e f_e P_e    (Fedus, Zoph, Shazeer: "Switch Transformers", 2021)
 *
 * f_e is the part of the counted assignments that went to e, and constant for
 * the gradient. P_e is the mean over the tokens. GShard (2020) uses this loss
 * divided by E^2, DeepSeek (2405.04434, 2412.19437) uses it as it is. With
 * `noisy`:
 *
 *     CV(importance)^2 + CV(load)^2    (Shazeer et al., 2017)
 *
 * There both terms have a gradient; see gate_noisy.c.
 */
#include "train/layers/gate.h"

size_t gate_slopes(const struct router_config *c)
{
    return gate_counts_weights(c) ? 2 * c->experts : c->experts;
}

/* The squared coefficient of variation of E sums. slope: its derivatives by the
 * sums, times `rows`. */
static double variation(size_t E, double rows, const double *sum, float *slope)
{
    double mean = 0, variance = 0;

    for (size_t e = 0; e < E; e++)
        mean += sum[e] / (double)E;
    for (size_t e = 0; e < E; e++)
        variance += (sum[e] - mean) * (sum[e] - mean) / (double)E;
    for (size_t e = 0; e < E; e++)
        slope[e] =
            mean > 0
                ? (float)(2 * rows / ((double)E * mean) *
                          ((sum[e] - mean) / mean - variance / (mean * mean)))
                : 0;
    return mean > 0 ? variance / (mean * mean) : 0;
}

double gate_loss(const struct router_config *c, double rows,
                 const double *probs, const double *counted, float *slope)
{
    const size_t E = c->experts;
    double loss = 0, all = 0;

    if (gate_counts_weights(c))
        return variation(E, rows, probs, slope) +
               variation(E, rows, counted, slope + E);
    for (size_t e = 0; e < E; e++)
        all += counted[e];
    for (size_t e = 0; e < E; e++) {
        const double f = all > 0 ? counted[e] / all : 0;

        loss += (double)E * f * (rows > 0 ? probs[e] / rows : 0);
        slope[e] = (float)E * (float)f;
    }
    return loss;
}
