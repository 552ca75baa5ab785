// SPDX-License-Identifier: Apache-2.0
/* Panels, chunks and tiles; see grid.h. */
#include "collectives/fused/grid.h"

#include "src/base/scratch.h"

/* Steps of tiles and panels are multiples of these, which the blocks of matrix
 * products divide. */
#define ROW_UNIT 16
#define COL_UNIT 64
/* Bytes of a part for the rank that gets most, at least: below that the time of
 * a message is not that of its bytes. */
#define PART_BYTES ((size_t)32 << 10)
/* Rows of a chunk, at least: a product of fewer rows wastes the time in which
 * its other matrix is read. */
#define CHUNK_ROWS 64
/* Bytes of a panel of one node, at most. Its sum takes as many, if there is one rank. */
#define NODE_PANEL_BYTES (SHUNTI_SCRATCH_KEPT / 2)
/* So few rows are multiplied in one go. (LIBXSMM on two ranks, 960 columns by 480:
 * 16 rows of each took 46 us less, where a gather of them takes 100 us at 10
 * Gbit/s.) */
#define FEW_ROWS 32

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Into parts of about the same length, at most `most` of them. */
static struct shunti_cut cut(size_t length, size_t most, size_t unit)
{
    struct shunti_cut c = {.length = length};

    if (!length)
        return c;
    c.step = length / most + (length % most != 0);
    c.step = least((c.step - 1) / unit * unit + unit, length);
    c.parts = length / c.step + (length % c.step != 0);
    return c;
}

/* How many parts may be made of so many units and bytes. At least 1. */
static size_t parts(size_t units, size_t bytes)
{
    size_t most = least(SHUNTI_PARTS_MAX, least(units, bytes / PART_BYTES));

    return most ? most : 1;
}

/* The panels of a node's product of so many rows. */
static struct shunti_cut panels_of_node(size_t cols, size_t rows)
{
    const size_t fit = NODE_PANEL_BYTES / sizeof(float) / rows;
    const size_t width =
        fit < 2 * COL_UNIT ? COL_UNIT : fit / COL_UNIT * COL_UNIT;

    if (cols <= fit)
        return cut(cols, 1, COL_UNIT);
    return cut(cols, cols / width + (cols % width != 0), COL_UNIT);
}

struct shunti_cut shunti_cut_panels(size_t cols, size_t rows, size_t most_rows,
                                    int nodes)
{
    if (nodes == 1 && rows && cols)
        return panels_of_node(cols, rows);
    return cut(cols, parts(cols / COL_UNIT, cols * most_rows * sizeof(float)),
               COL_UNIT);
}

struct shunti_cut shunti_cut_together(const struct shunti_cut *cut,
                                      size_t together)
{
    struct shunti_cut c = *cut;

    if (!c.parts)
        return c;
    /* step * together may overflow */
    c.step = together < c.parts ? c.step * together : c.length;
    c.parts = c.length / c.step + (c.length % c.step != 0);
    return c;
}

size_t shunti_chunks(size_t most_rows, size_t row_bytes)
{
    return parts(most_rows / CHUNK_ROWS, most_rows * row_bytes);
}

bool shunti_tiles_together(size_t rows, int nodes)
{
    return nodes == 1 || rows <= FEW_ROWS;
}

struct shunti_cut shunti_cut_tile_rows(size_t rows)
{
    return cut(rows, rows / SHUNTI_TILE_ROWS + (rows % SHUNTI_TILE_ROWS != 0),
               ROW_UNIT);
}

struct shunti_cut shunti_cut_tile_cols(size_t cols)
{
    return cut(cols, cols / SHUNTI_TILE_COLS + (cols % SHUNTI_TILE_COLS != 0),
               COL_UNIT);
}
