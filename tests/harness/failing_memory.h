// SPDX-License-Identifier: Apache-2.0
/*
 * Makes allocations fail when a test wants it. A program that links
 * failing_memory.c has its own malloc(), calloc(), realloc() and
 * aligned_alloc(). If an allocation is not to fail, they call the C library or
 * the sanitizer.
 */
#ifndef SHUNT_TESTS_FAILING_MEMORY_H
#define SHUNT_TESTS_FAILING_MEMORY_H

#include <stdbool.h>

/* From now on the n-th allocation of this thread fails; 0: none. */
void failing_memory_nth(long n);
/* From now on every allocation of this thread fails, or (false) none. */
void failing_memory_each(bool fails);
/* Has an allocation of this thread failed since failing_memory_nth()? */
bool failing_memory_failed(void);

/* From now on the n-th allocation of all threads together fails; 0: none. */
void failing_memory_nth_of_all(long n);
/* Like failing_memory_nth_of_all(), but counts only allocations by code of
 * libshunt or of its plugins. For a program that is linked with the shared
 * library. */
void failing_memory_nth_of_library(long n);
/* Has an allocation failed since the last call of one of these two
 * functions? */
bool failing_memory_failed_of_all(void);

#endif
