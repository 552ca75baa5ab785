// SPDX-License-Identifier: Apache-2.0
/*
 * A router without blocks of rows and without special kernels. It makes one
 * pass over all rows for each output, and chooses each expert by looking at all
 * of them. train/layers/router.c is compared with it, and measured against it.
 */
#ifndef PERF_ROUTER_PLAIN_H
#define PERF_ROUTER_PLAIN_H

#include "train/layers/layers.h"

/* Sums over rows for the losses. */
struct plain_sums {
    double lse, *probs, *counted; /* lse: sum of squares; probs and counted: (E)
                                   * each */
};

/* Like router(), but `in->scratch` is (R, E), and the losses' sums are added to
 * *sums. */
void plain_router(const struct router_config *c, const struct gate_input *in,
                  const struct routed *to, struct plain_sums *sums);

#endif
