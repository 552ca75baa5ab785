// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of the C library that fail when a test wants it: those that ask the
 * kernel for a descriptor, memory, a thread or a connection. A program that
 * links failing_calls.c has its own versions, which otherwise call those of the
 * C library. Not for builds with sanitizers.
 */
#ifndef SHUNT_TESTS_FAILING_CALLS_H
#define SHUNT_TESTS_FAILING_CALLS_H

#include <stdbool.h>

/* From now on the n-th of these calls in any thread fails; 0: none. */
void failing_calls_nth(long n);
/* The name of the call that has failed since then; NULL: none has. */
const char *failing_calls_failed(void);

#endif
