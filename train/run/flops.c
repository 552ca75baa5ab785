// SPDX-License-Identifier: Apache-2.0
/* See flops.h. */
#include "train/run/flops.h"

#include "train/layers/layers.h"

double model_flops(const struct model_config *c)
{
    const struct router_config router = model_router(c);
    const double D = (double)c->dim, T = (double)c->seq;
    const double Q = (double)model_qkv_width(c);
    const double A = (double)model_heads_width(c);
    const double F = (double)c->expert_hidden, K = (double)c->topk;
    double products = D * VOCABULARY; /* multiply-adds of a token, forward */

    for (size_t l = 0; l < c->layers; l++) {
        products += D * (Q + A); /* q, k, v and the output */
        products += 2 * T * A;   /* scores; probabilities times values */
        products += 3 * D * (double)model_common_hidden(c, l);
        if (model_has_experts(c, l))
            products += 3 * D * F * K + D * (double)gate_width(&router);
    }
    return 2 * 3 * products;
}
