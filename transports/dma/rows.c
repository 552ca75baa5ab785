// SPDX-License-Identifier: Apache-2.0
/*
 * Copies the bytes of one descriptor; see rows.h.
 *
 * Rows are mostly in memory or in another core's cache, and the hardware
 * prefetcher cannot predict where a row of an index list begins. So the
 * beginning of each row is prefetched while the row before it is copied, and
 * the hardware prefetcher continues from there.
 */
#include "transports/dma/rows.h"

#include <shunt/engine.h>

#include "src/kernels/copy.h"

/* Smallest row that is copied by non-temporal stores. They write partial cache
 * lines one by one, and smaller rows consist mostly of those. */
#define STREAMED_ROW ((size_t)1024)
/* Bytes of the next row to prefetch. */
#define AHEAD ((size_t)1024)
#define LINE ((size_t)64)

static const unsigned char *source(const struct shunt_engine_copy *copy,
                                   size_t i)
{
    return (const unsigned char *)copy->from +
           (copy->index ? copy->index[i] : i) * copy->from_stride;
}

static void fetch(const unsigned char *row, size_t bytes)
{
    for (size_t at = 0; at < bytes && at < AHEAD; at += LINE)
        __builtin_prefetch(row + at);
}

void dma_copy_rows(const struct shunt_engine_copy *copy, size_t stream_min)
{
    const size_t bytes = copy->bytes, rows = bytes ? copy->rows : 0;
    const size_t whole = copy->whole ? copy->whole : bytes * rows;
    const bool stream = bytes >= STREAMED_ROW && whole >= stream_min;

    for (size_t i = 0; i < rows; i++) {
        unsigned char *to =
            (unsigned char *)copy->to +
            (copy->to_index ? copy->to_index[i] : i) * copy->to_stride;

        if (i + 1 < rows)
            fetch(source(copy, i + 1), bytes);
        if (stream)
            shunti_copy_stream(to, source(copy, i), bytes);
        else
            shunti_copy(to, source(copy, i), bytes);
    }
    if (stream)
        shunti_copy_fence();
}
