// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of payload.
 *
 * A large block that is not read again soon should bypass the cache: a
 * non-temporal store writes to memory without reading the line that it
 * replaces, and leaves the cache to other data.
 */
#ifndef SHUNTI_COPY_H
#define SHUNTI_COPY_H

#include <stddef.h>

/* memcpy() that picks the kind of store by size. Complete on return: a later
 * release store orders it. */
void shunti_copy(void *dst, const void *src, size_t bytes);

/* Non-temporal stores for any size (for many rows that are large together).
 * shunti_copy_fence() must follow the last one, before a store that tells
 * another rank or thread of the data. */
void shunti_copy_stream(void *dst, const void *src, size_t bytes);
void shunti_copy_fence(void);

#endif
