// SPDX-License-Identifier: Apache-2.0
/* Copies the bytes of one descriptor. */
#ifndef DMA_ROWS_H
#define DMA_ROWS_H

#include <stddef.h>

struct shunt_engine_copy;

/* Copy all rows. All stores are complete on return, so a release store orders
 * them. Copies of at least `stream_min` bytes in total bypass the caches. */
void dma_copy_rows(const struct shunt_engine_copy *copy, size_t stream_min);

#endif
