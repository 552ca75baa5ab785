// SPDX-License-Identifier: Apache-2.0
/* The bytes of one descriptor. */
#ifndef DMA_ROWS_H
#define DMA_ROWS_H

#include <stddef.h>

struct shunt_engine_copy;

/* Copy them; complete on return, so that a release store orders them. From
 * `stream_min` bytes in all on, by stores that bypass the cache. */
void dma_copy_rows(const struct shunt_engine_copy *copy, size_t stream_min);

#endif
