// SPDX-License-Identifier: Apache-2.0
/*
 * A fused call that every rank can compute by itself: an invented product, the
 * call on it, and the expected result by the definition in fused.h.
 *
 * An element of a rank's product is a function of the seed, the rank, its row
 * and its column. Elements have all magnitudes and both signs. In all-gather +
 * GEMM they also depend on three bytes of the gathered row. So the reference
 * needs no tiles.
 */
#ifndef TESTS_FUSED_MODEL_H
#define TESTS_FUSED_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/shunt.h>

#include "tests/collectives/random.h"
#include "tests/harness/rank_main.h"

enum { MODEL_MAX_RANKS = 8 };

enum model_kind { GEMM_REDUCE_SCATTER, ALLGATHER_GEMM };
enum model_counts { COUNTS_NULL, COUNTS_RANDOM, COUNTS_ONE_RANK };

/* Random choices. They are the same on every rank, except `cols` of
 * ALLGATHER_GEMM. */
struct model_shape {
    enum model_kind kind;
    size_t rows, cols, row_bytes;
    enum model_counts counts;
    enum shunt_dtype dtype;
    bool alpha, beta, bias; /* used by the epilogue? */
    bool in_place;          /* the shard is in its place in `gathered` */
    size_t gap;             /* elements between rows of out */
    int delays;             /* of a tile function, in microseconds, at most */
};

struct model {
    struct model_shape shape;
    struct shunt_comm *comm;
    int rank, size, nodes;
    int node[MODEL_MAX_RANKS];
    uint64_t seed;
    size_t counts[MODEL_MAX_RANKS], begin; /* begin: this rank's first row */
    size_t out_rows;
    float *bias;
    void *out, *want;
    size_t out_bytes;
    unsigned char *shard, *gathered;
    struct shunt_epilogue epilogue;
    union {
        struct shunt_gemm_reduce_scatter_args rs;
        struct shunt_allgather_gemm_args ag;
    } args;
    /* Tiles that have been computed so far. */
    unsigned char *covered; /* (rows, cols): how often each element was */
    size_t outside;         /* elements of tiles that are not in this product */
    size_t tiles;
    size_t part; /* of the last tile, as model_part() counts */
    /* tiles whose part comes before that of an earlier tile */
    size_t disordered;
    struct random delay;
    int dies_at; /* tile before which this process kills itself; 0: never */
};

/* The number of the part that contains all of a tile; SIZE_MAX if none does.
 * The parts of a product are computed one after the other (docs/fused.md). In
 * GEMM + reduce-scatter they are panels of columns, ascending. In all-gather +
 * GEMM this rank's rows are first. Then follow the first chunks of rank - 1, of
 * rank - 2, ..., and then their second chunks. Or all rows are one part. */
size_t model_part(const struct model *m, size_t row, size_t rows, size_t col,
                  size_t cols);

/* Makes inputs, buffers, arguments and the expected output. */
int model_init(struct model *m, const struct rank *self,
               const struct model_shape *shape, uint64_t seed);
void model_finish(struct model *m);

/* Make the blocking call, or start it with a `request` that is not NULL. */
enum shunt_status model_call(struct model *m, struct shunt_request **request);

/* Check a call that returned SHUNT_OK: the result is right, the memory between
 * its rows is unchanged, and each element was computed once. */
int model_check(const struct model *m);

/* Check a call that was refused and whose shard is not in place. Such a call
 * has written nothing. GEMM + reduce-scatter may have computed its product,
 * all-gather + GEMM has computed nothing. */
int model_untouched(const struct model *m);

#endif
