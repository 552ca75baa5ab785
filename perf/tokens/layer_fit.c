// SPDX-License-Identifier: Apache-2.0
#include "perf/tokens/layer_fit.h"

#include "perf/base/perf.h"

/* The ratio is measured again if it is off by more than this. */
#define CLOSE_ENOUGH 0.02

enum { FLOATS = 16 };

uint64_t *layer_fit_bytes(struct perf_bench *tokens, const struct layer *layer,
                          unsigned times)
{
    const size_t n = (size_t)tokens->g->hosts.n;
    const struct perf_sent sent = {
        .modes = {layer->at.mode, layer->at.combine_mode}};
    const struct perf_bench_traffic *t = &tokens->traffic[PERF_OURS];
    uint64_t *bytes;

    perf_bench_find_traffic(tokens, &sent);
    if (!tokens->g->net)
        return NULL;
    bytes = perf_alloc(n * n * sizeof(*bytes));
    for (size_t i = 0; i < n * n; i++)
        bytes[i] = times * (t->there[i] + t->back[i]);
    return bytes;
}

bool layer_fit_inner(size_t *inner, double ratio, double asked)
{
    const double off = ratio / asked;
    size_t better = (size_t)((double)*inner * off / FLOATS + 0.5) * FLOATS;

    if (better < FLOATS)
        better = FLOATS;
    if (better == *inner || (off < 1 + CLOSE_ENOUGH && off > 1 - CLOSE_ENOUGH))
        return false;
    *inner = better;
    return true;
}
