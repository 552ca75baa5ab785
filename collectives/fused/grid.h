// SPDX-License-Identifier: Apache-2.0
/*
 * How a product is cut: into tiles for the caller's function, and into the
 * panels or chunks that are sent.
 *
 * The grid depends only on shapes, counts and nodes, which every rank knows,
 * and never on measurements. So it is the same on all ranks, and in every run.
 */
#ifndef SHUNTI_FUSED_GRID_H
#define SHUNTI_FUSED_GRID_H

#include <stdbool.h>
#include <stddef.h>

enum {
    /* Most panels or chunks that are sent. More would gain nothing: the time
     * that is not overlapped is about that of one part (docs/fused.md). */
    SHUNTI_PARTS_MAX = 32,
    /* The largest tile: small enough that the library is called often, large
     * enough that the product is not slower. */
    SHUNTI_TILE_ROWS = 512,
    SHUNTI_TILE_COLS = 1024,
};

/* `length` cut into parts of `step`, of which the last may be shorter. */
struct shunti_cut {
    size_t length;
    size_t step; /* 0 only if there are no parts */
    size_t parts;
};

/* The length of part i. */
static inline size_t shunti_part(const struct shunti_cut *cut, size_t i)
{
    size_t rest = cut->length - i * cut->step;

    return rest < cut->step ? rest : cut->step;
}

/* The panels of columns of GEMM + reduce-scatter, for a product of `rows` rows.
 * `most_rows` is the largest segment of a rank. On one node, where no
 * communication is overlapped, panels are wide, because a narrow product is
 * slower. But a panel must fit into scratch memory that is kept between calls
 * (src/base/scratch.h). Other memory would be cleared by the kernel in each
 * call. */
struct shunti_cut shunti_cut_panels(size_t cols, size_t rows, size_t most_rows,
                                    int nodes);

/* The number of chunks of each rank's rows in all-gather + GEMM. If a rank has
 * n rows, its chunk i has the rows from shunti_chunk_begin(n, i, chunks) to
 * shunti_chunk_begin(n, i + 1, chunks) - 1. */
size_t shunti_chunks(size_t most_rows, size_t row_bytes);

static inline size_t shunti_chunk_begin(size_t rows, size_t i, size_t chunks)
{
    /* rows * i may overflow */
    return rows / chunks * i + rows % chunks * i / chunks;
}

/* Cut the same length into larger parts, each of which is `together` parts of
 * `cut`. */
struct shunti_cut shunti_cut_together(const struct shunti_cut *cut,
                                      size_t together);

/* True if all-gather + GEMM has tiles of all `rows` together, instead of each
 * rank's rows by themselves. Then the product waits for all rows. This is
 * better for few rows, since most time is then spent reading the other matrix.
 * Such tiles are also better on one node, where no waiting can be
 * overlapped. */
bool shunti_tiles_together(size_t rows, int nodes);

/* Cut the rows, and the columns, of a product into tiles. */
struct shunti_cut shunti_cut_tile_rows(size_t rows);
struct shunti_cut shunti_cut_tile_cols(size_t cols);

#endif
