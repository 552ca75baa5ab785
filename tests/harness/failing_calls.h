// SPDX-License-Identifier: Apache-2.0
/*
 * Makes calls of the C library fail when a test wants it: calls that ask the
 * kernel for a descriptor, memory, a thread or a connection. A program that
 * links failing_calls.c has its own versions of these functions. If a call is
 * not to fail, they call the C library. Not for builds with sanitizers.
 */
#ifndef SHUNT_TESTS_FAILING_CALLS_H
#define SHUNT_TESTS_FAILING_CALLS_H

#include <stdbool.h>

/* From now on the n-th of these calls in any thread fails; 0: none. */
void failing_calls_nth(long n);
/* The name of the call that has failed since failing_calls_nth(); NULL: no call
 * has failed. */
const char *failing_calls_failed(void);

#endif
