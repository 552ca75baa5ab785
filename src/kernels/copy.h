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

/* As memcpy(), but picks the kind of store by size. The copy is complete on
 * return: a later release store orders it. */
void shunti_copy(void *dst, const void *src, size_t bytes);

/* Copy by non-temporal stores, for any size (for many rows that are large
 * together). Call shunti_copy_fence() after the last copy, and before a store
 * that notifies another rank or thread of the data. */
void shunti_copy_stream(void *dst, const void *src, size_t bytes);
void shunti_copy_fence(void);

#endif
