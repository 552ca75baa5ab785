// SPDX-License-Identifier: Apache-2.0
/*
 * Makes pthread_create() fail when a test wants it. A program that links
 * failing_threads.c has its own pthread_create(). If the call is not to fail,
 * it calls the C library. Not with the thread sanitizer, which has its own
 * pthread_create().
 */
#ifndef SHUNT_TESTS_FAILING_THREADS_H
#define SHUNT_TESTS_FAILING_THREADS_H

#include <stdbool.h>

/* From now on pthread_create() fails with EAGAIN, or works again. False: it
 * cannot be made to fail in this build. */
bool failing_threads(bool fail);

#endif
