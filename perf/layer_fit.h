// SPDX-License-Identifier: Apache-2.0
/*
 * Before a layer is measured: what its exchanges send, and widths of experts that
 * bring it to a ratio of exchange to computation.
 */
#ifndef SHUNT_PERF_LAYER_FIT_H
#define SHUNT_PERF_LAYER_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/layer.h"

/* Trials of a width until the ratio is near enough. */
enum { LAYER_FIT_TRIALS = 5 };

/* (hosts, hosts) bytes of so many dispatches and combines of `layer`, freed by the
 * caller; NULL if all ranks are on one host. Their traffic is in `tokens` then. */
uint64_t *layer_fit_bytes(struct perf_bench *tokens, const struct layer *layer,
                          unsigned times);

/* Of an expert's inner width, by the ratio that it had and the one that is asked
 * for: the next to try, in whole vectors. False: it is as it should be. */
bool layer_fit_inner(size_t *inner, double ratio, double asked);

#endif
