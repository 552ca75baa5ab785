// SPDX-License-Identifier: Apache-2.0
/* Panels, chunks and tiles; see grid.h. */
#include "collectives/fused/grid.h"

#include "src/base/scratch.h"

/* The rows and columns of tiles and panels are multiples of these units, which
 * fit the register blocks of matrix products. */
#define ROW_UNIT 16
#define COL_UNIT 64
/* Least bytes of a part, for the rank that receives most. A smaller part takes
 * longer than the transfer of its bytes. */
#define PART_BYTES ((size_t)32 << 10)
/* Least rows of a chunk: a product of fewer rows takes as long as reading its
 * other matrix. */
#define CHUNK_ROWS 64
/* Most bytes of a panel on one node. The sum of a panel takes as many bytes
 * again if there is one rank. */
#define NODE_PANEL_BYTES (SHUNTI_SCRATCH_KEPT / 2)
/* If a product has at most so many rows, the rows of all ranks are multiplied
 * together. (LIBXSMM on two ranks, 960 columns by 480: one product of all rows
 * took 46 us less than one of each rank's 16 rows. Gathering them takes 100 us
 * at 10 Gbit/s.) */
#define FEW_ROWS 32

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Cut `length` into at most `most` parts of about the same length, a multiple
 * of `unit`. */
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

/* The most parts into which `units` and `bytes` may be cut; at least 1. */
static size_t parts(size_t units, size_t bytes)
{
    size_t most = least(SHUNTI_PARTS_MAX, least(units, bytes / PART_BYTES));

    return most ? most : 1;
}

/* The panels of a product of `rows` rows on one node. */
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
