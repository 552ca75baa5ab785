// SPDX-License-Identifier: Apache-2.0
/*
 * The router without blocks and without kernels of its own: one pass over all rows
 * for each thing that is made of them, each choice by looking at all experts. What
 * train/router.c is compared with, and measured against.
 */
#ifndef PERF_ROUTER_PLAIN_H
#define PERF_ROUTER_PLAIN_H

#include "train/layers.h"

/* Sums over rows for the losses. */
struct plain_sums {
    double lse, *probs, *counted; /* of squares; (E); (E) */
};

/* As router(), but `in->scratch` is (R, E), and sums are added to. */
void plain_router(const struct router_config *c, const struct gate_input *in,
                  const struct routed *to, struct plain_sums *sums);

#endif
