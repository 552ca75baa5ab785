// SPDX-License-Identifier: Apache-2.0
/*
 * The right results for copies with shares, in plain loops over the routing of
 * all ranks. They follow the words of shunt/moe.h, shunt/moe_waves.h and
 * shunt/moe_gradients.h. There are random routings and placements, the rows of
 * each copy, and the gradient of an expert.
 */
#ifndef SHUNT_TEST_SHARED_ROWS_H
#define SHUNT_TEST_SHARED_ROWS_H

#include "tests/moe/exchange.h"

enum {
    EXPERTS_MAX = 12,
    RANKS_MAX = 16,
    TOPK_MAX = 3,
    TOKENS_MAX = 40,
    HIDDEN = 4,
    FIRST = 5, /* elements of the first array of an expert's gradient */
    SECOND = 2,
    ALL = FIRST + SECOND,
    ROWS_MAX = RANKS_MAX * TOKENS_MAX * TOPK_MAX,
};

struct row_from {
    int source, token, slot;
};

/* A routing, the same on all ranks. */
struct routing {
    int ranks, experts, topk, leaf;
    uint64_t number; /* number of the batch */
    int tokens[RANKS_MAX];
    int from[RANKS_MAX]; /* number of the rank's first token in the batch */
    int32_t idx[RANKS_MAX][TOKENS_MAX][TOPK_MAX];
    int rows[EXPERTS_MAX];
    /* The rows of each expert in the global order. */
    struct row_from row[EXPERTS_MAX][ROWS_MAX];
};

/* A placement of experts. */
struct places {
    int32_t home[EXPERTS_MAX];
    bool has[EXPERTS_MAX][RANKS_MAX];
    int64_t of[EXPERTS_MAX][RANKS_MAX]; /* share of each copy, in rank order */
    struct shunt_moe_replica replicas[EXPERTS_MAX * RANKS_MAX];
    int64_t share[EXPERTS_MAX * (RANKS_MAX + 1)];
    size_t nreplicas;
    int64_t unit; /* unit of the shares */
};

struct routing *routing_make(const struct rank *self, uint64_t seed,
                             uint64_t batch);
/* The part of a routing that has tokens[r] tokens of each rank r, from token
 * from[r] on. */
struct routing *routing_part(const struct routing *all, const int *from,
                             const int *tokens);
/* The rows that remain with a capacity: the first rows of each pair (source,
 * expert). */
struct routing *routing_capped(const struct routing *all, double factor);

/* Element j of a token; and the weight of an assignment. */
float routing_token(uint64_t batch, int source, int token, int j);
float routing_weight(int source, int token, int slot);

/* Draws homes by the seed, and copies and shares by seed and batch. In every
 * other batch shares are large numbers. Some shares are 0. */
void places_draw(struct places *p, const struct routing *r, uint64_t seed,
                 uint64_t batch);
/* The number of rows of an expert on a rank; *first is the first of them. */
int places_range(const struct routing *r, const struct places *p, int e,
                 int rank, int *first);
/* The smallest max_rows that is possible. */
size_t places_least_rows(const struct routing *r, const struct places *p);

/* The gradient of some rows: their products, in f32 and in their order. */
void rows_product(const float *row, size_t rows, float *to);
/* The gradient of an expert by the definition: level by level, in pairs. False:
 * it has no rows. */
bool routing_gradient(const struct routing *r, int e, float *sum);

#endif
