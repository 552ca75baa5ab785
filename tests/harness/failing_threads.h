// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that cannot be made when a test wants it. A program that has
 * failing_threads.c has its own pthread_create(), which passes on to the one behind;
 * not under the thread sanitizer, which has one, too.
 */
#ifndef SHUNT_TESTS_FAILING_THREADS_H
#define SHUNT_TESTS_FAILING_THREADS_H

#include <stdbool.h>

/* From now on pthread_create() fails with EAGAIN, or does not. False: it cannot be
 * made to fail here. */
bool failing_threads(bool fail);

#endif
