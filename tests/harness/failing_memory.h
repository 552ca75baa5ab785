// SPDX-License-Identifier: Apache-2.0
/*
 * Allocations that fail when a test wants it. A program that links
 * failing_memory.c has its own malloc(), calloc(), realloc() and
 * aligned_alloc(), which otherwise call those of the C library or of the
 * sanitizer.
 */
#ifndef SHUNT_TESTS_FAILING_MEMORY_H
#define SHUNT_TESTS_FAILING_MEMORY_H

#include <stdbool.h>

/* From now on the n-th allocation of this thread fails; 0: none. */
void failing_memory_nth(long n);
/* Every allocation of this thread fails, or none. */
void failing_memory_each(bool fails);
/* Has an allocation of this thread failed since failing_memory_nth()? */
bool failing_memory_failed(void);

/* From now on the n-th allocation of all threads together fails; 0: none. */
void failing_memory_nth_of_all(long n);
/* The same, counting only allocations by code of libshunt or of its plugins.
 * For a program that is linked with the shared library. */
void failing_memory_nth_of_library(long n);
/* Has that allocation failed since it was asked for? */
bool failing_memory_failed_of_all(void);

#endif
