// SPDX-License-Identifier: Apache-2.0
/*
 * Routings to measure with: the experts of each token of each rank.
 */
#ifndef SHUNT_PERF_ROUTING_H
#define SHUNT_PERF_ROUTING_H

#include <stddef.h>
#include <stdint.h>

enum perf_skew {
    PERF_SKEW_UNIFORM, /* all experts with the same weight */
    PERF_SKEW_ZIPF,    /* the i-th most popular expert has weight 1 / i^arg */
    PERF_SKEW_ZIPF_BY_ID,   /* expert i has this weight: popular ones share a
                               rank, and a node */
    PERF_SKEW_HOT,          /* a share `arg` of the tokens goes to one expert */
    PERF_SKEW_NODE_LIMITED, /* a token's experts are in `arg` of the groups */
};

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
    int32_t *index; /* (ranks, tokens, topk), distinct within a token */
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
};

/*
 * Make the routing of all ranks: a pure function of `config`.
 *
 * Returns NULL, or the error in `config`.
 */
const char *perf_routing_init(struct perf_routing *routing,
                              const struct perf_routing_config *config);
void perf_routing_finish(struct perf_routing *routing);

/* The rank that has `expert`. */
static inline int perf_expert_rank(const struct perf_routing *r, int expert)
{
    return (int)((long)expert * r->ranks / r->experts);
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

/* The number of rows that `rank` receives. */
size_t perf_routing_rows(const struct perf_routing *r, int rank);

/* The rows that `rank` receives, in expert-major order: expert, source rank,
 * token, slot. `*count` rows; the caller frees the array. */
struct perf_arrival *perf_routing_arrivals(const struct perf_routing *r,
                                           int rank, size_t *count);

#endif
