// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of the C library that fail when a test wants it: those that ask the kernel
 * for a descriptor, memory, a thread or a connection. A program that has
 * failing_calls.c has its own ones, which pass on to those behind. Not under
 * sanitizers.
 */
#ifndef SHUNT_TESTS_FAILING_CALLS_H
#define SHUNT_TESTS_FAILING_CALLS_H

#include <stdbool.h>

/* The n-th of all threads from now on fails; 0: none. */
void failing_calls_nth(long n);
/* The name of the one that has failed since then; NULL: none. */
const char *failing_calls_failed(void);

#endif
