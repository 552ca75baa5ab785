// SPDX-License-Identifier: Apache-2.0
/* Arrays that grow and never shrink, because plans use them again and again. */
#ifndef SHUNTI_GROWING_ARRAY_H
#define SHUNTI_GROWING_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Make room for `need` elements of `size` bytes.
 *
 * array  address of the pointer to the array, which may be NULL. The elements
 *        stay.
 * have   elements for which the array has room.
 *
 * False: no memory; nothing has changed.
 */
bool shunti_grow(void *array, size_t *have, size_t need, size_t size);

#endif
