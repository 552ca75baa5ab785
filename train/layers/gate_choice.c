// SPDX-License-Identifier: Apache-2.0
/* Choosing a token's experts by their scores, and turning scores into
 * weights. */
#include "train/layers/gate.h"

#include "src/kernels/best.h"
#include "train/base/error.h"

#include <shunt/balance.h>
#include <string.h>

void gate_best(const struct router_config *c, const struct gate_input *in,
               const float *scores, const float *bias, int32_t *choice)
{
    struct shunti_best best = {c->topk, 0, gate_row(c, in), choice};

    shunti_best_offer(&best, c->experts, scores, bias, 0);
}

int gate_choose(const struct router_config *c, const struct gate_input *in,
                const float *scores, int32_t *choice)
{
    const size_t E = c->experts, K = c->topk, R = in->R;
    enum shunt_status st;

    if (in->workload) {
        for (size_t r = 0; r < R; r++)
            workload_choose(in->workload, gate_token(in, r), E, K,
                            choice + r * K);
        return 0;
    }
    if (c->gate.choose == CHOOSE_BEST) {
        for (size_t r = 0; r < R; r++)
            gate_best(c, in, scores + r * E, in->bias, choice + r * K);
        return 0;
    }
    if (in->bias) {
        for (size_t r = 0; r < R; r++)
            for (size_t e = 0; e < E; e++)
                in->scratch[r * E + e] = scores[r * E + e] + in->bias[e];
        scores = in->scratch;
    }
    if (c->gate.choose == CHOOSE_LIMITED)
        st = shunt_balance_topk_limited(scores, R, (int)E, (int)c->gate.groups,
                                        (int)c->gate.open, (int)c->gate.best_of,
                                        (int)K, choice);
    else
        st = shunt_balance_topk_grouped(scores, R, (int)E, (int)c->gate.groups,
                                        (int)K, choice);
    return st ? train_error("choosing experts: %s", shunt_last_error(NULL)) : 0;
}

void gate_weigh(const struct router_config *c, const float *scores,
                const int32_t *choice, float *weight)
{
    float sum = 0;

    if (choice[0] < 0) { /* the token has no expert */
        memset(weight, 0, c->topk * sizeof(*weight));
        return;
    }
    for (size_t j = 0; j < c->topk; j++) {
        weight[j] = scores[choice[j]];
        sum += weight[j];
    }
    for (size_t j = 0; c->renormalise && j < c->topk; j++)
        weight[j] /= sum;
    for (size_t j = 0; c->gate.scale > 0 && j < c->topk; j++)
        weight[j] *= c->gate.scale;
}

void gate_weigh_backward(const struct router_config *c, const float *scores,
                         const int32_t *choice, const float *weight,
                         const float *dweight, float *dscores)
{
    const float scale = c->gate.scale > 0 ? c->gate.scale : 1.0f;
    float sum = 0, mean = 0;

    if (choice[0] < 0)
        return;
    if (!c->renormalise) {
        for (size_t j = 0; j < c->topk; j++)
            dscores[choice[j]] += scale * dweight[j];
        return;
    }
    /* w_j = scale p_j / s:  dp_j = (scale dw_j - sum_i dw_i w_i) / s */
    for (size_t j = 0; j < c->topk; j++) {
        sum += scores[choice[j]];
        mean += dweight[j] * weight[j];
    }
    for (size_t j = 0; j < c->topk; j++)
        dscores[choice[j]] += (scale * dweight[j] - mean) / sum;
}
