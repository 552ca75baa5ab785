// SPDX-License-Identifier: Apache-2.0
/*
 * How a product is cut: into tiles for the caller's function, and into the
 * panels or chunks that are sent.
 *
 * All of it is a function of shapes, counts and nodes that every rank knows, so
 * it is the same on all ranks, and in every run: never of measurements.
 */
#ifndef SHUNTI_FUSED_GRID_H
#define SHUNTI_FUSED_GRID_H

#include <stdbool.h>
#include <stddef.h>

enum {
    /* Parts that are sent. More would hide nothing that matters: what is exposed
     * is about one part (docs/fused.md). */
    SHUNTI_PARTS_MAX = 32,
    /* A tile is at most as large: small enough that the library is called often,
     * large enough that the product does not notice. */
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

/* The panels of columns of GEMM + reduce-scatter, of `rows` rows; most_rows: of any
 * rank's segment. On one node, where nothing is hidden, they are as wide as the memory
 * allows that scratch keeps: pages of more would be cleared in each call, and a narrow
 * product is slower. */
struct shunti_cut shunti_cut_panels(size_t cols, size_t rows, size_t most_rows,
                                    int nodes);

/* Into how many chunks each rank's rows are cut in all-gather + GEMM. Chunk i of
 * n rows are the rows shunti_chunk_begin(n, i, chunks) .. (n, i + 1, chunks). */
size_t shunti_chunks(size_t most_rows, size_t row_bytes);

static inline size_t shunti_chunk_begin(size_t rows, size_t i, size_t chunks)
{
    /* rows * i may overflow */
    return rows / chunks * i + rows % chunks * i / chunks;
}

/* The same, of which `together` parts are one. */
struct shunti_cut shunti_cut_together(const struct shunti_cut *cut,
                                      size_t together);

/* Are the tiles of all-gather + GEMM those of all `rows` together, so that the
 * product waits for all of them, and not of each rank's rows by themselves? Where
 * few rows are multiplied, most of the time is that of reading the other matrix;
 * and on one node there is nothing to wait for that could be hidden. */
bool shunti_tiles_together(size_t rows, int nodes);

/* Rows and columns of tiles. */
struct shunti_cut shunti_cut_tile_rows(size_t rows);
struct shunti_cut shunti_cut_tile_cols(size_t cols);

#endif
