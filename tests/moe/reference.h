// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange as one process would do it: plain, slow, and written from the
 * definitions, not from the library.
 *
 * A `world` is everything that all ranks together put in. Each rank makes the
 * same one from a seed, so that it knows what the others do.
 */
#ifndef TEST_MOE_REFERENCE_H
#define TEST_MOE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe.h>

enum values {
    INTEGERS, /* small: sums are exact in any order */
    REALS,
};

struct rows;

struct world {
    struct shunt_moe_config config;
    int nranks;
    const int *node; /* (nranks) */
    enum values values;
    uint64_t seed;
    bool by_plan; /* the capacity_factor is given with each plan */
    bool rounds;  /* other nodes' sums are rounded to the dtype on their way */
    size_t *tokens;    /* (nranks) */
    int32_t **expert;  /* [rank] (tokens, topk) as the caller gives it */
    float **weight;    /* [rank] (tokens, topk) */
    int32_t **kept;    /* [rank] (tokens, topk) -1 where none or dropped */
    struct rows *rows; /* (nranks) */
    size_t **place;    /* [rank] (tokens, topk) its row at its target */
};

/* Where a row of a rank comes from. */
struct origin {
    int source; /* -1: padding */
    size_t token;
    int slot;
    int expert;
};

struct rows {
    size_t total;
    struct origin *origin; /* (total) */
    size_t *offset;        /* (local + 1) */
    size_t *count;         /* (local) */
    int *expert;           /* (local) */
    int local;
};

/* From the hash of these a number that is the same everywhere. */
uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/*
 * Routings from the seed. `config` is kept; its arrays must stay.
 *
 * min_tokens, max_tokens  of each rank.
 * none       share of -1 in percent.
 */
void world_init(struct world *world, const struct shunt_moe_config *config,
                int nranks, const int *node, enum values values, uint64_t seed,
                size_t min_tokens, size_t max_tokens, int none);
/* After changing expert, weight or tokens by hand: what is dropped, and where
 * the rest goes. */
void world_lay_out(struct world *world);
void world_finish(struct world *world);

/* The rank that computes `expert` for `source`. */
int world_target(const struct world *world, int source, int expert);

/* Rows here are numbers of type float: `hidden` of them, at most this many. */
enum { ROW_MOST = 4096 };

/* Input: token `row` of a rank, of expert outputs, and so on. `kind` tells the
 * inputs apart. Already rounded to the dtype. */
enum { KIND_X, KIND_OUT, KIND_BIAS, KIND_DY, KIND_DROWS };
void world_values(const struct world *world, int kind, int rank, size_t row,
                  float *values);

/* To and from memory in the dtype. */
void element_set(enum shunt_dtype dtype, void *row, size_t i, float value);
float element_get(enum shunt_dtype dtype, const void *row, size_t i);
void row_set(const struct world *world, void *row, const float *values);
float round_to(enum shunt_dtype dtype, float value);

/* The nearest e4m3 number (ties to even), at most 448. */
float nearest_e4m3(float value);

/* What dispatch brings: a token of `source`. */
void world_dispatched(const struct world *world, int source, size_t token,
                      float *values);

/* What combine_backward brings to the row that comes from `origin`. */
void world_gradient(const struct world *world, const struct origin *origin,
                    bool weighted, float *values);

/* A token of `rank` after combine, from values of `kind`. */
void world_combined(const struct world *world, int rank, size_t token, int kind,
                    bool weighted, bool bias, float *sums);

/* Of those parts the ones that `node` adds up, unrounded; 0 if none. */
void world_node_sum(const struct world *world, int rank, size_t token, int kind,
                    bool weighted, int node, float *sums);

/*
 * What `node` has of a token of `rank` in two levels: how many sums, or single rows,
 * it sends home, and of how many experts' rows each is (at most topk). Of those
 * which are neighbours in the tree and on one node, from the first on, as many as
 * may be added up before anything else is.
 */
int world_pieces(const struct world *world, int rank, size_t token, int node,
                 int *rows);

/* <dy, out> of an assignment of `rank`; 0 if none. */
float world_dweight(const struct world *world, int rank, size_t token,
                    int slot);

#endif
