// SPDX-License-Identifier: Apache-2.0
/*
 * Turns one descriptor into copies of the driver; see rows.h.
 *
 * A call of the driver copies a block of memory, or rows with a fixed stride.
 * Index lists are split into runs of rows that are consecutive in the source
 * and in the destination. Runs without gaps are collected, and one call copies
 * up to BATCH of them if the driver has such a call (CUDA 12.8 and later). With
 * an older driver each run is one call. In the worst case a run is one row.
 */
#include "transports/cuda/rows.h"

#include <stdbool.h>

#include <shunt/engine.h>

#include "transports/cuda/driver.h"

/* Rows that are consecutive in the source and in the destination. */
struct run {
    uint64_t to, from;
    size_t rows;
};

static int block(struct cuda_issue *issue, uint64_t to, uint64_t from,
                 size_t bytes)
{
    int result = issue->driver->copy(to, from, bytes, issue->stream);

    issue->call = "cuMemcpyAsync";
    issue->issued += !result;
    return result;
}

/* --- many blocks by one call ------------------------------------------------- */

enum { BATCH = 256 };

struct batch {
    uint64_t to[BATCH], from[BATCH];
    size_t bytes[BATCH];
    size_t n;
};

/* Copy all blocks by one call. Returns CUDA_NOT_SUPPORTED if the driver has no
 * such call. */
static int call_batch(struct cuda_issue *issue, struct batch *b)
{
    const struct cuda_driver *driver = issue->driver;
    struct cuda_copy_attributes same = {.order = CUDA_COPY_ORDER_STREAM};
    size_t first = 0, failed;
    int result = CUDA_NOT_SUPPORTED;

    issue->call = "cuMemcpyBatchAsync";
    if (driver->copy_batch)
        result = driver->copy_batch(b->to, b->from, b->bytes, b->n, &same,
                                    &first, 1, issue->stream);
    if (result == CUDA_NOT_SUPPORTED && driver->copy_batch_v1)
        result = driver->copy_batch_v1(b->to, b->from, b->bytes, b->n, &same,
                                       &first, 1, &failed, issue->stream);
    issue->issued += !result;
    return result;
}

/* Copy the collected blocks. If the driver refuses the batch, copy each block
 * by a call of its own. A block that the refused call has copied is copied
 * again, which is harmless. */
static int flush(struct cuda_issue *issue, struct batch *b)
{
    int result = b->n > 1 ? call_batch(issue, b) : CUDA_NOT_SUPPORTED;

    if (result == CUDA_NOT_SUPPORTED || result == CUDA_INVALID_VALUE) {
        result = 0;
        for (size_t i = 0; i < b->n && !result; i++)
            result = block(issue, b->to[i], b->from[i], b->bytes[i]);
    }
    b->n = 0;
    return result;
}

static int collect(struct cuda_issue *issue, struct batch *b, uint64_t to,
                   uint64_t from, size_t bytes)
{
    const int result = b->n == BATCH ? flush(issue, b) : 0;

    b->to[b->n] = to;
    b->from[b->n] = from;
    b->bytes[b->n++] = bytes;
    return result;
}

/* --- runs --------------------------------------------------------------------- */

static int one_by_one(struct cuda_issue *issue,
                      const struct shunt_engine_copy *copy,
                      const struct run *run)
{
    int result = 0;

    for (size_t i = 0; i < run->rows && !result; i++)
        result = block(issue, run->to + i * copy->to_stride,
                       run->from + i * copy->from_stride, copy->bytes);
    return result;
}

static int rectangle(struct cuda_issue *issue,
                     const struct shunt_engine_copy *copy,
                     const struct run *run)
{
    const struct cuda_memcpy_2d what = {
        .from_type = CUDA_MEMORY_UNIFIED,
        .from = run->from,
        .from_pitch = copy->from_stride,
        .to_type = CUDA_MEMORY_UNIFIED,
        .to = run->to,
        .to_pitch = copy->to_stride,
        .width = copy->bytes,
        .height = run->rows,
    };
    int result = issue->driver->copy_2d(&what, issue->stream);

    issue->call = "cuMemcpy2DAsync";
    issue->issued += !result;
    /* Within a device the driver may refuse pitches that cuMemAllocPitch()
     * would not choose. */
    return result == CUDA_INVALID_VALUE ? one_by_one(issue, copy, run) : result;
}

static int issue_run(struct cuda_issue *issue, struct batch *batch,
                     const struct shunt_engine_copy *copy,
                     const struct run *run)
{
    const size_t to = copy->to_stride, from = copy->from_stride;

    if (run->rows == 1 || (to == copy->bytes && from == copy->bytes))
        return collect(issue, batch, run->to, run->from,
                       run->rows * copy->bytes);
    if (to < copy->bytes || from < copy->bytes || to > issue->max_pitch ||
        from > issue->max_pitch)
        return one_by_one(issue, copy, run);
    return rectangle(issue, copy, run);
}

/* Is entry first + n of the list the row that is n rows after entry `first`? */
static bool follows(const uint32_t *index, size_t first, size_t n)
{
    return !index || index[first + n] == (uint64_t)index[first] + n;
}

/* Returns the number of consecutive rows from `first` on. */
static size_t length(const struct shunt_engine_copy *copy, size_t first)
{
    size_t n = 1;

    if (!copy->index && !copy->to_index)
        return copy->rows;
    while (first + n < copy->rows && follows(copy->index, first, n) &&
           follows(copy->to_index, first, n))
        n++;
    return n;
}

int cuda_issue_rows(struct cuda_issue *issue,
                    const struct shunt_engine_copy *copy)
{
    const size_t rows = copy->bytes ? copy->rows : 0;
    struct batch batch;
    int result = 0;

    batch.n = 0;
    for (size_t i = 0, n; i < rows && !result; i += n) {
        const uint64_t row = copy->index ? copy->index[i] : i;
        const uint64_t to = copy->to_index ? copy->to_index[i] : i;
        const struct run run = {
            cuda_address(copy->to) + to * copy->to_stride,
            cuda_address(copy->from) + row * copy->from_stride,
            n = length(copy, i),
        };

        result = issue_run(issue, &batch, copy, &run);
    }
    return result ? result : flush(issue, &batch);
}
