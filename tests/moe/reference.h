// SPDX-License-Identifier: Apache-2.0
/*
 * The exchange as a single process would do it. The code is plain and slow, and
 * written from the definitions, not from the library.
 *
 * A `world` is the input of all ranks. Each rank makes the same one from a
 * seed, so that it knows the input of the others.
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
    bool by_plan;   /* each plan has a capacity_factor of its own */
    bool rounds;    /* sums of other nodes are rounded to the dtype before they
                       are sent */
    size_t *tokens; /* (nranks) */
    int32_t **expert;  /* [rank] (tokens, topk) as the caller passes it */
    float **weight;    /* [rank] (tokens, topk) */
    int32_t **kept;    /* [rank] (tokens, topk); -1: none, or dropped */
    struct rows *rows; /* (nranks) */
    size_t **place;    /* [rank] (tokens, topk) index of its row at its
                          target */
};

/* The assignment that a row of a rank belongs to. */
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

/* A hash of the four numbers, the same on every machine. */
uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/*
 * Makes routings from the seed. `config` is kept; its arrays must stay valid.
 *
 * min_tokens, max_tokens  of each rank
 * none       share of -1 in percent
 */
void world_init(struct world *world, const struct shunt_moe_config *config,
                int nranks, const int *node, enum values values, uint64_t seed,
                size_t min_tokens, size_t max_tokens, int none);
/* Computes which assignments are dropped, and where the other rows go. Call it
 * after changing expert, weight or tokens by hand. */
void world_lay_out(struct world *world);
void world_finish(struct world *world);

/* The rank that computes `expert` for rows of `source`. */
int world_target(const struct world *world, int source, int expert);

/* Here a row is `hidden` numbers of type float, at most this many. */
enum { ROW_MOST = 4096 };

/* Input by kind: token `row` of a rank, row `row` of the experts' output, and
 * so on. The values are rounded to the dtype already. */
enum { KIND_X, KIND_OUT, KIND_BIAS, KIND_DY, KIND_DROWS };
void world_values(const struct world *world, int kind, int rank, size_t row,
                  float *values);

/* Convert to and from memory in the dtype. */
void element_set(enum shunt_dtype dtype, void *row, size_t i, float value);
float element_get(enum shunt_dtype dtype, const void *row, size_t i);
void row_set(const struct world *world, void *row, const float *values);
float round_to(enum shunt_dtype dtype, float value);

/* The nearest e4m3 number (ties to even), at most 448. */
float nearest_e4m3(float value);

/* The row that dispatch delivers: a token of `source`. */
void world_dispatched(const struct world *world, int source, size_t token,
                      float *values);

/* The row that combine_backward delivers, for the assignment `origin`. */
void world_gradient(const struct world *world, const struct origin *origin,
                    bool weighted, float *values);

/* A token of `rank` after combine, with values of `kind`. */
void world_combined(const struct world *world, int rank, size_t token, int kind,
                    bool weighted, bool bias, float *sums);

/* The sum that `node` contributes to that token, not rounded. Returns 0 in all
 * elements if it contributes none. */
void world_node_sum(const struct world *world, int rank, size_t token, int kind,
                    bool weighted, int node, float *sums);

/*
 * The rows that `node` sends back for a token of `rank` in two levels. Returns
 * the number of pieces, which are sums or single rows, and in `rows` the number
 * of experts' rows in each (at most topk pieces). Rows that are neighbours in
 * the tree are added up on the node. From the first row on, a piece has as many
 * rows as can be added before any other row is added.
 */
int world_pieces(const struct world *world, int rank, size_t token, int node,
                 int *rows);

/* <dy, out> of an assignment of `rank`; 0 if it has no expert. */
float world_dweight(const struct world *world, int rank, size_t token,
                    int slot);

#endif
