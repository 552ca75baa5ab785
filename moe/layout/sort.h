// SPDX-License-Identifier: Apache-2.0
/*
 * Sorting many short lists of 32-bit keys, without a branch that depends on
 * them: the experts of each token.
 */
#ifndef SHUNTI_SORT_H
#define SHUNTI_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Keys of a run; the stride of a list is a multiple. */
#define SHUNTI_SORT_RUN 8

static inline size_t shunti_sort_stride(size_t most)
{
    return (most + SHUNTI_SORT_RUN - 1) / SHUNTI_SORT_RUN * SHUNTI_SORT_RUN;
}

/* Keys that an array of `lists` lists must have room for; sorting moves them
 * four runs at once. */
static inline size_t shunti_sort_room(size_t lists, size_t stride)
{
    return lists * stride + 3 * SHUNTI_SORT_RUN;
}

/*
 * Sort each list in place, ascending.
 *
 * key      (lists, stride), shunti_sort_room() of them.
 * scratch  (stride); NULL if stride is SHUNTI_SORT_RUN.
 */
void shunti_sort(uint32_t *key, size_t lists, size_t stride, uint32_t *scratch);

#endif
