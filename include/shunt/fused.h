// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Matrix products fused with a collective: GEMM + reduce-scatter, and
 * all-gather + GEMM. While one part of the product is computed, other data is
 * being sent.
 *
 *     struct shunt_gemm_reduce_scatter_args args = {
 *         .size = sizeof(args), .rows = m, .cols = n, .tile = tile,
 *         .arg = &product, .out = out, .dtype = SHUNT_F32};
 *
 *     status = shunt_gemm_reduce_scatter(comm, &args);
 *
 * The caller computes the product: with any BLAS, any types of the inputs,
 * transposed or not. The library calls a function of the caller for each
 * **tile**, a block of rows and columns of this rank's product in f32:
 *
 *     void tile(void *arg, size_t row, size_t rows, size_t col, size_t cols,
 *               float *out, size_t ld);
 *
 * The function overwrites out (rows, cols), with `ld` floats from one row to
 * the next: the rows row .. row + rows - 1 and the columns col .. col + cols -
 * 1 of the product. rows and cols are at least 1. shunt/fused_cblas.h has such
 * functions for cblas_sgemm().
 *
 * Tiles. The tiles cover the product once. They depend on the shapes, the
 * counts, the ranks and their nodes alone. So if the function gives the same
 * bits for the same tile, the result is the same in every run.
 *
 * Thread. The function runs in the thread of the caller: in the call itself, or
 * in shunt_test() and shunt_wait() of its request, and in no other call. It may
 * use threads of its own. It must not call the library on this communicator,
 * and cannot fail. This rank is not in the library while the function computes:
 * one tile must not take as long as SHUNT_TIMEOUT.
 *
 * Errors. Both calls are collective; the rules of coll.h apply: every rank
 * makes the same calls in the same order. A bad argument is SHUNT_ERR_INVALID
 * here and SHUNT_ERR_REMOTE on the other ranks. Arguments that must be the same
 * and are not are SHUNT_ERR_MISMATCH, with a text that names the rank and the
 * argument. In these cases nothing is written, and the communicator stays
 * usable. The tile function is not called (a small blocking
 * shunt_gemm_reduce_scatter() may have called it). The same holds for
 * SHUNT_ERR_MEMORY, unless a rank runs out of memory when others have begun a
 * later step. If a rank is lost, every survivor gets SHUNT_ERR_PEER (or
 * SHUNT_ERR_TIMEOUT).
 *
 * Buffers. Between `_start` and the end of the request the caller must not
 * change the inputs, or the data that `arg` and `bias` point to. The caller
 * must not use memory that is written. The structs themselves and `counts` are
 * copied.
 */
#ifndef SHUNT_FUSED_H
#define SHUNT_FUSED_H

#include <stddef.h>

#include <shunt/coll.h>
#include <shunt/request.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_comm;

/**
 * The last step for an element of the product, or of its sum over the ranks,
 * before it is written:
 *
 *     t = alpha * sum
 *     t = t + beta * out      if beta is not 0; else out is not read
 *     t = t + bias[column]    if there is a bias
 *     out = t, rounded once to the type of out (to the nearest, ties to even)
 *
 * in f32, each step rounded. Ranks may have different epilogues.
 */
struct shunt_epilogue {
    float alpha;       /* factor of the sum */
    float beta;        /* factor of the previous contents of out */
    const float *bias; /* (cols), or NULL */
};

/** Arguments of shunt_gemm_reduce_scatter(). Fields that are not set are 0. */
struct shunt_gemm_reduce_scatter_args {
    size_t size;          /* sizeof(struct shunt_gemm_reduce_scatter_args) */
    size_t rows;          /* rows of the product; the same on every rank */
    size_t cols;          /* columns of the product; the same on every rank */
    const size_t *counts; /* (nranks), the same on every rank: rows of the
                             result that each rank gets, in rank order; their
                             sum is `rows`. NULL: as even as possible, one more
                             on each of the first rows % nranks ranks */
    void (*tile)(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld);   /* computes a tile: see above */
    void *arg;                             /* passed to tile() */
    const struct shunt_epilogue *epilogue; /* NULL: alpha 1, no more */
    void *out; /* (this rank's rows, cols); apart from the inputs */
    size_t ld; /* elements between rows of out; 0: cols */
    enum shunt_dtype dtype; /* type of out: SHUNT_F32 or SHUNT_BF16; the same
                               on every rank */
    int reserved;           /* 0 */
};

/** Arguments of shunt_allgather_gemm(). Fields that are not set are 0. */
struct shunt_allgather_gemm_args {
    size_t size; /* sizeof(struct shunt_allgather_gemm_args) */
    size_t rows; /* rows of the gathered input and of the product; the same on
                    every rank */
    size_t cols; /* columns of this rank's product; may differ between ranks */
    const size_t *counts; /* (nranks), the same on every rank: rows that each
                             rank has, in rank order; their sum is `rows`.
                             NULL: as even as possible, as above */
    size_t row_bytes;     /* bytes of a row of the input; the same on every
                             rank */
    const void *shard; /* (this rank's rows, row_bytes), apart from `gathered`;
                          or SHUNT_IN_PLACE: these rows are in `gathered`
                          already */
    void *gathered; /* (rows, row_bytes), packed: the input that tile() reads.
                       Complete at the end. A window is faster (memory.h) */
    void (*tile)(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld); /* computes a tile: see above. May read
                            only the rows of its tile in `gathered`: other rows
                            may not have arrived */
    void *arg;                           /* passed to tile() */
    const struct shunt_epilogue *epilogue; /* NULL: alpha 1, no more */
    void *out; /* (rows, cols); apart from the inputs. If it is f32 and there is
                  no epilogue, tile() writes straight to it */
    size_t ld; /* elements between rows of out; 0: cols */
    enum shunt_dtype dtype; /* type of out: SHUNT_F32 or SHUNT_BF16; the same
                               on every rank */
    int reserved;           /* 0 */
};

/**
 * out = epilogue(this rank's rows of the sum over all ranks of their products).
 *
 * The sum is that of shunt_reduce_scatterv(): in rank order within each node,
 * then over the nodes (shunt/coll.h), in f32. So the same tiles give the same
 * bits, fused or not (SHUNT_FUSED), by every transport and algorithm.
 *
 * Algorithm: the product is computed in panels of columns. While one panel is
 * computed, the reduce-scatters of earlier panels are under way; they advance
 * after each tile. docs/fused.md says what a panel is, and what can be gained.
 *
 * Memory: four panels, of rows * width floats each, and this rank's rows of
 * four panels; a panel has 1/32 of the columns, or more. Where nothing can be
 * hidden, as on one node, there is memory for one panel: of all columns, or on
 * one node of at most 16 MiB (or 64 columns).
 *
 * Errors: as above. SHUNT_ERR_MEMORY: there is no memory for the panels; on the
 * other ranks SHUNT_ERR_REMOTE.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_gemm_reduce_scatter(struct shunt_comm *comm,
                          const struct shunt_gemm_reduce_scatter_args *args);

/**
 * shunt_gemm_reduce_scatter() that returns with the last panels still under
 * way; `*request` finishes it. Unlike the collectives of coll.h, the call waits
 * until every rank has made it. The call computes all tiles, and waits for the
 * sums of all but the last panels. shunt_test() and shunt_wait() compute the
 * epilogue of the last panels.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_gemm_reduce_scatter_start(
    struct shunt_comm *comm, const struct shunt_gemm_reduce_scatter_args *args,
    struct shunt_request **request);

/**
 * out = epilogue(product of the rows of all ranks).
 *
 * Algorithm: each rank's rows are divided into chunks, and the all-gathers of
 * all chunks are started at once. Tiles of this rank's own rows are computed
 * first, then those of the first chunk of rank - 1, rank - 2, ..., then of the
 * second chunk, as they arrive. On one node, or with up to 32 rows, the tiles
 * contain rows of all ranks, and are computed when all rows have arrived.
 *
 * Errors: as above. SHUNT_ERR_MEMORY: there is no memory for a tile (if there
 * is an epilogue or out is bf16); on the other ranks SHUNT_ERR_REMOTE.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allgather_gemm(struct shunt_comm *comm,
                     const struct shunt_allgather_gemm_args *args);

/**
 * shunt_allgather_gemm() that returns when the all-gathers have been started;
 * `*request` finishes it. This call, too, waits until every rank has made it.
 * It computes no tile: shunt_test() of the request computes one, if its rows
 * have arrived, and shunt_wait() the rest.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_allgather_gemm_start(struct shunt_comm *comm,
                           const struct shunt_allgather_gemm_args *args,
                           struct shunt_request **request);

#ifdef __cplusplus
}
#endif

#endif
