// SPDX-License-Identifier: Apache-2.0
/*
 * Scratch: memory in which operations build what they send on.
 *
 * Large blocks are kept from one operation to the next. malloc() gets them from
 * the kernel and gives them back each time, and clearing and mapping fresh
 * pages costs more than the copy into them: 60 % of the time of an all-gather
 * of 2 MiB in two levels, apart from the network.
 *
 * The communicators of a process share the blocks that are kept. So many of
 * them keep no more than one does. The last one frees them.
 */
#ifndef SHUNTI_SCRATCH_H
#define SHUNTI_SCRATCH_H

#include <stddef.h>

struct shunt_comm;

/* Bytes of spare blocks that a process keeps. */
#define SHUNTI_SCRATCH_KEPT ((size_t)32 << 20)

/* Any thread may call these, for communicators of its own. */

/* `bytes` of memory, at least one, aligned to a cache line, with unspecified
 * content. NULL: there is none. */
void *shunti_scratch_get(size_t bytes);

/* The memory is not needed any more. NULL: does nothing. */
void shunti_scratch_put(struct shunt_comm *comm, void *memory);

/* The communicator needs no scratch any more, as far as is known. If no other
 * does, all blocks are freed. */
void shunti_scratch_leave(struct shunt_comm *comm);

#endif
