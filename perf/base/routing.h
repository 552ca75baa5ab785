// SPDX-License-Identifier: Apache-2.0
/*
 * Routings for measurements: the experts of each token of each rank.
 */
#ifndef SHUNT_PERF_ROUTING_H
#define SHUNT_PERF_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum perf_skew {
    PERF_SKEW_UNIFORM, /* all experts with the same weight */
    PERF_SKEW_ZIPF,    /* weight 1 / i^arg for the i-th most popular expert */
    PERF_SKEW_ZIPF_BY_ID,   /* weight 1 / (i + 1)^arg for expert i: popular
                             * experts share a rank, and a node */
    PERF_SKEW_HOT,          /* one expert gets a share `arg` of the tokens */
    PERF_SKEW_NODE_LIMITED, /* a token's experts are in `arg` of the groups */
    /* The workloads of workload.h. Their batch is the tokens of all ranks in
     * order. In W4, some tokens have no expert: -1. */
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

/* One (token, slot) that a rank receives. An array of these is in the order of
 * the rank's rows. */
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
    size_t tokens;  /* number of tokens of each rank */
    int32_t *index; /* (ranks, tokens, topk) experts, distinct within a token;
                     * -1: no expert */
    float *weight;  /* (ranks, tokens, topk), > 0; the sum over a token is 1 */
};

struct perf_routing_config {
    int ranks;
    int experts;
    int topk;
    size_t tokens;
    enum perf_skew skew;
    double arg;
    int groups; /* number of groups of contiguous ranks, for
                 * PERF_SKEW_NODE_LIMITED */
    uint64_t seed;
    size_t step; /* for W6 and W7, which change from step to step */
};

/*
 * Make the routing of all ranks. It depends only on `config`.
 *
 * Returns NULL, or what is wrong in `config`.
 */
const char *perf_routing_init(struct perf_routing *routing,
                              const struct perf_routing_config *config);
void perf_routing_finish(struct perf_routing *routing);

/* The rank that has `expert`; -1 if expert < 0. */
static inline int perf_expert_rank(const struct perf_routing *r, int expert)
{
    return expert < 0 ? -1 : (int)((long)expert * r->ranks / r->experts);
}

/* The first expert of `rank`; for rank = ranks: the number of experts. */
int perf_first_expert(const struct perf_routing *r, int rank);

/* The `topk` experts of a token. */
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

/* The number of assignments: (token, slot) pairs that have an expert. */
size_t perf_routing_assigned(const struct perf_routing *r);

/* The number of rows that `rank` receives. */
size_t perf_routing_rows(const struct perf_routing *r, int rank);

/* The rows that `rank` receives, in expert-major order: expert, source rank,
 * token, slot. `*count` rows; the caller frees the array. */
struct perf_arrival *perf_routing_arrivals(const struct perf_routing *r,
                                           int rank, size_t *count);

#endif
