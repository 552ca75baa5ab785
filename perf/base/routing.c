// SPDX-License-Identifier: Apache-2.0
/*
 * Routings: a token's experts are drawn without replacement, with probabilities
 * in proportion to their weights. The weights determine the skew.
 */
#include "perf/base/routing.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/perf.h"
#include "perf/base/random.h"
#include "train/workload/workload.h"

/* Streams of a routing's key. */
enum {
    STREAM_ORDER = 1,
    STREAM_EXPERTS,
    STREAM_GROUPS,
    STREAM_WEIGHTS,
    STREAM_WORKLOAD
};

int perf_first_expert(const struct perf_routing *r, int rank)
{
    /* The smallest e with floor(e * ranks / experts) >= rank. */
    return (int)(((long)rank * r->experts + r->ranks - 1) / r->ranks);
}

/* Returns the group of ranks that has `expert`. */
static int group_of(const struct perf_routing *r, int groups, int expert)
{
    return (int)((long)perf_expert_rank(r, expert) * groups / r->ranks);
}

static const char *check(const struct perf_routing_config *c)
{
    if (c->ranks < 1 || c->experts < 1 || c->topk < 1)
        return "ranks, experts and topk must be at least 1";
    if (c->topk > c->experts)
        return "topk is larger than the number of experts";
    if ((c->skew == PERF_SKEW_ZIPF || c->skew == PERF_SKEW_ZIPF_BY_ID) &&
        !(c->arg >= 0 && c->arg <= 16))
        return "the exponent of zipf must be between 0 and 16";
    if (c->skew == PERF_SKEW_HOT && !(c->arg >= 0 && c->arg <= 1))
        return "the share of the hot expert must be between 0 and 1";
    if (c->skew == PERF_SKEW_NODE_LIMITED) {
        if (c->groups < 1 || c->groups > c->ranks)
            return "no groups for node-limited routing";
        if (!(c->arg >= 1) || c->arg > c->groups || c->arg != floor(c->arg))
            return "node-limited: M must be a whole number of the groups";
    }
    return NULL;
}

/* Compute cumulative weights: bounds[e] sums the weights of 0 to e. */
static void popularity(const struct perf_routing_config *c, double *bounds)
{
    double sum = 0;
    int *order = perf_alloc((size_t)c->experts * sizeof(*order));
    uint64_t key = perf_key(c->seed, STREAM_ORDER, 0, 0);

    /* Shuffle the experts, so that the popular ones are not all on rank 0,
     * unless the skew is ZIPF_BY_ID. */
    for (int e = 0; e < c->experts; e++)
        order[e] = e;
    for (int e = c->experts - 1; e > 0 && c->skew != PERF_SKEW_ZIPF_BY_ID;
         e--) {
        int other = (int)(perf_random(key, (uint64_t)e) % (uint64_t)(e + 1));
        int held = order[e];
        order[e] = order[other];
        order[other] = held;
    }
    for (int e = 0; e < c->experts; e++) {
        if (c->skew == PERF_SKEW_ZIPF || c->skew == PERF_SKEW_ZIPF_BY_ID)
            sum += pow(order[e] + 1, -c->arg);
        else
            sum += 1;
        bounds[e] = sum;
    }
    free(order);
}

/* Returns the expert whose weight covers `point` of the sum. */
static int find(const double *bounds, int experts, double point)
{
    int low = 0, high = experts - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (bounds[middle] > point)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Mark `wanted` of the groups, chosen at random. */
static void choose_groups(uint64_t key, int groups, int wanted, bool *chosen)
{
    memset(chosen, 0, (size_t)groups * sizeof(*chosen));
    /* Floyd's algorithm draws a uniform subset without a list. */
    for (int i = groups - wanted; i < groups; i++) {
        int g = (int)(perf_random(key, (uint64_t)i) % (uint64_t)(i + 1));
        chosen[chosen[g] ? i : g] = true;
    }
}

struct draw {
    const struct perf_routing_config *config;
    const struct perf_routing *routing;
    const double *bounds;
    bool *taken;  /* (experts) */
    bool *chosen; /* (groups) */
};

static bool allowed(const struct draw *d, int expert)
{
    if (d->taken[expert])
        return false;
    return d->config->skew != PERF_SKEW_NODE_LIMITED ||
           d->chosen[group_of(d->routing, d->config->groups, expert)];
}

/* Draw one allowed expert by weight; `*i` counts the random numbers used. */
static int draw_expert(const struct draw *d, uint64_t key, uint64_t *i)
{
    int experts = d->config->experts;
    double sum = d->bounds[experts - 1];

    /* Rejecting taken experts keeps the relative weights of the others. If the
     * allowed experts have hardly any weight left, take the first allowed one
     * from a random start on. */
    for (int attempt = 0; attempt < 256; attempt++) {
        int e = find(d->bounds, experts, perf_uniform(key, (*i)++) * sum);
        if (allowed(d, e))
            return e;
    }
    int start = (int)(perf_random(key, (*i)++) % (uint64_t)experts);
    for (int n = 0; n < experts; n++) {
        int e = (start + n) % experts;
        if (allowed(d, e))
            return e;
    }
    return -1;
}

static bool route_token(struct draw *d, uint64_t token, int32_t *index)
{
    const struct perf_routing_config *c = d->config;
    uint64_t key = perf_key(c->seed, STREAM_EXPERTS, token, 0);
    uint64_t used = 0;
    int slot = 0;

    if (c->skew == PERF_SKEW_NODE_LIMITED)
        choose_groups(perf_key(c->seed, STREAM_GROUPS, token, 0), c->groups,
                      (int)c->arg, d->chosen);
    if (c->skew == PERF_SKEW_HOT && perf_uniform(key, used++) < c->arg) {
        d->taken[0] = true;
        index[slot++] = 0;
    }
    for (; slot < c->topk; slot++) {
        int e = draw_expert(d, key, &used);
        if (e < 0)
            break;
        d->taken[e] = true;
        index[slot] = e;
    }
    for (int s = 0; s < slot; s++)
        d->taken[index[s]] = false;
    return slot == c->topk;
}

static void weigh_token(uint64_t seed, uint64_t token, int topk, float *weight)
{
    uint64_t key = perf_key(seed, STREAM_WEIGHTS, token, 0);
    double sum = 0;
    for (int k = 0; k < topk; k++)
        sum += 0.05 + perf_uniform(key, (uint64_t)k);
    for (int k = 0; k < topk; k++)
        weight[k] = (float)((0.05 + perf_uniform(key, (uint64_t)k)) / sum);
}

static void route_workload(const struct perf_routing_config *c, int32_t *index)
{
    const size_t all = (size_t)c->ranks * c->tokens, topk = (size_t)c->topk;
    const struct workload w = {
        .kind =
            (enum workload_kind)(WORKLOAD_W0 + (int)(c->skew - PERF_SKEW_W0)),
        .key = perf_key(c->seed, STREAM_WORKLOAD, c->step, 0),
        .step = c->step,
        .tokens = all,
    };

    for (size_t t = 0; t < all; t++)
        workload_choose(&w, t, (size_t)c->experts, topk, index + t * topk);
}

const char *perf_routing_init(struct perf_routing *r,
                              const struct perf_routing_config *c)
{
    const char *wrong = check(c);
    memset(r, 0, sizeof(*r));
    if (wrong)
        return wrong;

    size_t all = (size_t)c->ranks * c->tokens, topk = (size_t)c->topk;
    *r = (struct perf_routing){
        .ranks = c->ranks,
        .experts = c->experts,
        .topk = c->topk,
        .tokens = c->tokens,
        .index = perf_alloc(all * topk * sizeof(*r->index)),
        .weight = perf_alloc(all * topk * sizeof(*r->weight)),
    };
    double *bounds = perf_alloc((size_t)c->experts * sizeof(*bounds));
    struct draw d = {
        .config = c,
        .routing = r,
        .bounds = bounds,
        .taken = perf_alloc((size_t)c->experts * sizeof(bool)),
        .chosen = perf_alloc((size_t)c->ranks * sizeof(bool)),
    };
    memset(d.taken, 0, (size_t)c->experts * sizeof(bool));
    popularity(c, bounds);
    if (perf_skew_is_workload(c->skew))
        route_workload(c, r->index);
    for (size_t t = 0; t < all && !wrong; t++) {
        if (!perf_skew_is_workload(c->skew) &&
            !route_token(&d, t, r->index + t * topk))
            wrong = "node-limited: the groups have fewer than topk experts";
        weigh_token(c->seed, t, c->topk, r->weight + t * topk);
    }
    free(d.chosen);
    free(d.taken);
    free(bounds);
    if (wrong)
        perf_routing_finish(r);
    return wrong;
}

void perf_routing_finish(struct perf_routing *r)
{
    free(r->index);
    free(r->weight);
    memset(r, 0, sizeof(*r));
}

size_t perf_routing_assigned(const struct perf_routing *r)
{
    size_t all = (size_t)r->ranks * r->tokens * (size_t)r->topk, some = 0;
    for (size_t i = 0; i < all; i++)
        some += r->index[i] >= 0;
    return some;
}

size_t perf_routing_rows(const struct perf_routing *r, int rank)
{
    size_t all = (size_t)r->ranks * r->tokens * (size_t)r->topk, rows = 0;
    for (size_t i = 0; i < all; i++)
        rows += perf_expert_rank(r, r->index[i]) == rank;
    return rows;
}

struct perf_arrival *perf_routing_arrivals(const struct perf_routing *r,
                                           int rank, size_t *count)
{
    size_t rows = perf_routing_rows(r, rank);
    struct perf_arrival *arrivals = perf_alloc(rows * sizeof(*arrivals));
    size_t *next = perf_alloc((size_t)r->experts * sizeof(*next));
    size_t all = (size_t)r->ranks * r->tokens * (size_t)r->topk;

    /* A counting sort by expert; it is stable, so the order within an expert
     * is that of the scan: source, token, slot. */
    memset(next, 0, (size_t)r->experts * sizeof(*next));
    for (size_t i = 0; i < all; i++)
        if (r->index[i] >= 0)
            next[r->index[i]]++;
    size_t at = 0;
    for (int e = perf_first_expert(r, rank); e < perf_first_expert(r, rank + 1);
         e++) {
        size_t n = next[e];
        next[e] = at;
        at += n;
    }
    for (int s = 0; s < r->ranks; s++) {
        for (size_t t = 0; t < r->tokens; t++) {
            const int32_t *experts = perf_token_experts(r, s, t);
            for (int k = 0; k < r->topk; k++) {
                int e = experts[k];
                if (perf_expert_rank(r, e) != rank)
                    continue;
                arrivals[next[e]++] = (struct perf_arrival){
                    .source = s,
                    .token = (int32_t)t,
                    .slot = k,
                    .expert = e,
                };
            }
        }
    }
    free(next);
    *count = rows;
    return arrivals;
}
