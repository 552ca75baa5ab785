// SPDX-License-Identifier: Apache-2.0
/*
 * Allocations that fail when a test wants it. A program that has this file has its
 * own malloc(), calloc(), realloc() and aligned_alloc(), which pass on to those
 * behind.
 */
#ifndef SHUNT_TESTS_FAILING_MEMORY_H
#define SHUNT_TESTS_FAILING_MEMORY_H

#include <stdbool.h>

/* The n-th allocation of this thread from now on fails; 0: none. */
void failing_memory_nth(long n);
/* Every allocation of this thread, or none. */
void failing_memory_each(bool fails);
/* One has failed since failing_memory_nth(), here. */
bool failing_memory_failed(void);

/* The n-th allocation of all threads together; 0: none any more. */
void failing_memory_nth_of_all(long n);
/* Likewise of those that code of libshunt or of its plugins asks for, in a program that
 * is linked with the shared library. */
void failing_memory_nth_of_library(long n);
/* That one has come, since it was asked for. */
bool failing_memory_failed_of_all(void);

#endif
