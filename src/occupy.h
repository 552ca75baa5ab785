// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps descriptors 0 to 2 occupied while other libraries open descriptors.
 *
 * The library's own descriptors are above 2 (transports/common/descriptor.h).
 * UCX, libibverbs and drivers take whatever number is free, also on threads of
 * their own. They open theirs while a communicator is made. So meanwhile those
 * of 0 to 2 that the program has closed are the reading ends of a pipe, where
 * what the program writes is EBADF, as before.
 */
#ifndef SHUNTI_OCCUPY_H
#define SHUNTI_OCCUPY_H

/* Nestable, and from any thread: the last shunti_release_stdio() frees the
 * numbers. Without resources they stay free. */
void shunti_occupy_stdio(void);
void shunti_release_stdio(void);

#endif
