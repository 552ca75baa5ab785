// SPDX-License-Identifier: Apache-2.0
/*
 * Sort many short lists of 32-bit keys: the experts of each token. No branch
 * depends on the keys.
 */
#ifndef SHUNTI_SORT_H
#define SHUNTI_SORT_H

#include <stddef.h>
#include <stdint.h>

/* The number of keys in a run. A list consists of whole runs. */
#define SHUNTI_SORT_RUN 8

static inline size_t shunti_sort_stride(size_t most)
{
    return (most + SHUNTI_SORT_RUN - 1) / SHUNTI_SORT_RUN * SHUNTI_SORT_RUN;
}

/* Returns the size, in keys, of an array for `lists` lists. Sorting handles
 * four runs at once, so it may read and write keys behind the last list. */
static inline size_t shunti_sort_room(size_t lists, size_t stride)
{
    return lists * stride + 3 * SHUNTI_SORT_RUN;
}

/*
 * Sort each list in place, ascending.
 *
 * key      (lists, stride), in an array of shunti_sort_room() keys.
 * scratch  (stride); NULL if stride is SHUNTI_SORT_RUN.
 */
void shunti_sort(uint32_t *key, size_t lists, size_t stride, uint32_t *scratch);

#endif
