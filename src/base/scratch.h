// SPDX-License-Identifier: Apache-2.0
/*
 * Scratch: memory in which operations build the data that they send.
 *
 * Large blocks are kept from one operation to the next. malloc() would get them
 * from the kernel and return them each time. Clearing and mapping fresh pages
 * costs more than the copy into them: 60 % of the time of an all-gather of 2
 * MiB in two levels, without the network.
 *
 * The communicators of a process share the blocks that are kept. So many
 * communicators keep no more than one does. The last one frees the blocks.
 */
#ifndef SHUNTI_SCRATCH_H
#define SHUNTI_SCRATCH_H

#include <stddef.h>

struct shunt_comm;

/* Bytes of spare blocks that a process keeps. */
#define SHUNTI_SCRATCH_KEPT ((size_t)32 << 20)

/* Any thread may call these functions, for its own communicators. */

/* Get `bytes` of memory, at least one, aligned to a cache line, with
 * unspecified content. NULL: memory ran out. */
void *shunti_scratch_get(size_t bytes);

/* Return the memory. NULL: does nothing. */
void shunti_scratch_put(struct shunt_comm *comm, void *memory);

/* Record that the communicator needs no scratch for now. If no other
 * communicator does, all blocks are freed. */
void shunti_scratch_leave(struct shunt_comm *comm);

#endif
