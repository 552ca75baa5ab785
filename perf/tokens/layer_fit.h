// SPDX-License-Identifier: Apache-2.0
/*
 * Preparations for measuring a layer: the bytes that its exchanges send, and
 * the width of experts for which exchange and computation have a given ratio.
 */
#ifndef SHUNT_PERF_LAYER_FIT_H
#define SHUNT_PERF_LAYER_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/tokens/layer.h"

/* The most trials of `inner`. */
enum { LAYER_FIT_TRIALS = 5 };

/* (hosts, hosts) bytes of `times` dispatches and combines of `layer`. The
 * caller frees them. Also fills in tokens->traffic. Returns NULL if all ranks
 * are on one host. */
uint64_t *layer_fit_bytes(struct perf_bench *tokens, const struct layer *layer,
                          unsigned times);

/* Set `*inner` to the inner width of experts to try next, from the measured
 * ratio and the ratio `asked`. It is a whole number of vectors. Returns false
 * if the ratio is close enough. */
bool layer_fit_inner(size_t *inner, double ratio, double asked);

#endif
