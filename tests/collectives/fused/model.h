// SPDX-License-Identifier: Apache-2.0
/*
 * One fused call as every rank can compute it: an invented product, the call on
 * it, and what must come out by the definition in fused.h.
 *
 * An element of a rank's product is a function of the seed, the rank, its row and
 * its column, of all magnitudes and signs; in all-gather + GEMM also of three
 * bytes of the gathered row. So the reference needs no tiles.
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

/* The random choices, which are the same on every rank except cols of
 * ALLGATHER_GEMM. */
struct model_shape {
    enum model_kind kind;
    size_t rows, cols, row_bytes;
    enum model_counts counts;
    enum shunt_dtype dtype;
    bool alpha, beta, bias; /* of the epilogue */
    bool in_place;          /* of the shard */
    size_t gap;             /* elements between rows of out */
    int delays;             /* in a tile function: microseconds, at most */
};

struct model {
    struct model_shape shape;
    struct shunt_comm *comm;
    int rank, size, nodes;
    int node[MODEL_MAX_RANKS];
    uint64_t seed;
    size_t counts[MODEL_MAX_RANKS], begin; /* our first row */
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
    /* The tiles so far. */
    unsigned char *covered; /* (rows, cols) how often */
    size_t outside;         /* elements that are not of this product */
    size_t tiles;
    size_t part; /* which the last one was of, as model_part() counts them */
    size_t disordered; /* tiles of a part before the one at hand */
    struct random delay;
    int dies_at; /* tile before which this process kills itself; 0: never */
};

/* Parts of a product are computed one after the other (docs/fused.md). GEMM +
 * reduce-scatter: panels of columns, ascending. All-gather + GEMM: this rank's rows,
 * then the first chunk of rank - 1, of rank - 2, ..., then the second one of each; or
 * all rows, as one part. The number of the part that has all of a tile; SIZE_MAX:
 * none has. */
size_t model_part(const struct model *m, size_t row, size_t rows, size_t col,
                  size_t cols);

/* Makes inputs, buffers, arguments and the expected output. */
int model_init(struct model *m, const struct rank *self,
               const struct model_shape *shape, uint64_t seed);
void model_finish(struct model *m);

/* The call; request NULL: the blocking one. */
enum shunt_status model_call(struct model *m, struct shunt_request **request);

/* After a call that returned SHUNT_OK: are the result, and what lies between its
 * rows, right, and was each element computed once? */
int model_check(const struct model *m);

/* A call that was refused, without a shard in place, has written nothing, and
 * computed nothing but GEMM + reduce-scatter, perhaps, its product. */
int model_untouched(const struct model *m);

#endif
