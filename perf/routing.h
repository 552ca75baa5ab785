// SPDX-License-Identifier: Apache-2.0
/*
 * Routings to measure with: the experts of each token of each rank.
 */
#ifndef SHUNT_PERF_ROUTING_H
#define SHUNT_PERF_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum perf_skew {
    PERF_SKEW_UNIFORM, /* all experts with the same weight */
    PERF_SKEW_ZIPF,    /* the i-th most popular expert has weight 1 / i^arg */
    PERF_SKEW_ZIPF_BY_ID,   /* expert i has this weight: popular ones share a
                               rank, and a node */
    PERF_SKEW_HOT,          /* a share `arg` of the tokens goes to one expert */
    PERF_SKEW_NODE_LIMITED, /* a token's experts are in `arg` of the groups */
    /* Those of workload.h, whose batch is the tokens of all ranks in order. Of
     * W4 some tokens have no expert: -1. */
    PERF_SKEW_W0,
    PERF_SKEW_W1,
    PERF_SKEW_W2,
    PERF_SKEW_W3,
    PERF_SKEW_W4,
    PERF_SKEW_W5,
    PERF_SKEW_W6,
    PERF_SKEW_W7,
};

static inline bool perf_skew_is_workload(enum perf_skew skew)
{
    return skew >= PERF_SKEW_W0;
}

/* One (token, slot) that a rank receives, in the order of its rows. */
struct perf_arrival {
    int32_t source;
    int32_t token;
    int32_t slot;
    int32_t expert;
};

struct perf_routing {
    int ranks;
    int experts;
    int topk;
    size_t tokens;  /* of each rank */
    int32_t *index; /* (ranks, tokens, topk), distinct within a token; or -1 */
    float *weight;  /* (ranks, tokens, topk), > 0, 1 in sum over a token */
};

struct perf_routing_config {
    int ranks;
    int experts;
    int topk;
    size_t tokens;
    enum perf_skew skew;
    double arg;
    int groups; /* of ranks, contiguous: nodes; for PERF_SKEW_NODE_LIMITED */
    uint64_t seed;
    size_t step; /* of W6 and W7, which change from step to step */
};

/*
 * Make the routing of all ranks: a pure function of `config`.
 *
 * Returns NULL, or the error in `config`.
 */
const char *perf_routing_init(struct perf_routing *routing,
                              const struct perf_routing_config *config);
void perf_routing_finish(struct perf_routing *routing);

/* The rank that has `expert`; -1: none, as of no expert. */
static inline int perf_expert_rank(const struct perf_routing *r, int expert)
{
    return expert < 0 ? -1 : (int)((long)expert * r->ranks / r->experts);
}

/* The first expert of `rank`; that of rank `ranks` is the number of experts. */
int perf_first_expert(const struct perf_routing *r, int rank);

/* This token's `topk` experts. */
static inline const int32_t *perf_token_experts(const struct perf_routing *r,
                                                int rank, size_t token)
{
    return r->index + ((size_t)rank * r->tokens + token) * (size_t)r->topk;
}

static inline const float *perf_token_weights(const struct perf_routing *r,
                                              int rank, size_t token)
{
    return r->weight + ((size_t)rank * r->tokens + token) * (size_t)r->topk;
}

/* Its assignments: all but those to no expert. */
size_t perf_routing_assigned(const struct perf_routing *r);

/* The number of rows that `rank` receives. */
size_t perf_routing_rows(const struct perf_routing *r, int rank);

/* The rows that `rank` receives, in expert-major order: expert, source rank,
 * token, slot. `*count` rows; the caller frees the array. */
struct perf_arrival *perf_routing_arrivals(const struct perf_routing *r,
                                           int rank, size_t *count);

#endif
