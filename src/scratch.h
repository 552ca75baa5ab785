// SPDX-License-Identifier: Apache-2.0
/*
 * Scratch: memory in which operations make what they pass on.
 *
 * Large blocks are kept from one operation to the next. malloc() gets them from
 * the kernel and gives them back each time, and to have fresh pages cleared and
 * mapped costs more than the copy that is made in them: 60 % of the time of an
 * all-gather of 2 MiB in two levels, beside the network.
 *
 * The communicators of a process share the blocks that are kept, so that many
 * of them keep no more than one does, and the last one frees them.
 */
#ifndef SHUNTI_SCRATCH_H
#define SHUNTI_SCRATCH_H

#include <stddef.h>

struct shunt_comm;

/* Of these any thread may call any, for communicators of its own. */

/* `bytes` of memory, at least one, aligned to a cache line; what is in it is
 * left over. NULL: there is none. */
void *shunti_scratch_get(size_t bytes);

/* It is not needed any more; NULL: nothing. */
void shunti_scratch_put(struct shunt_comm *comm, void *memory);

/* The communicator needs none any more, as far as is known: without others that
 * do, what is kept is freed. */
void shunti_scratch_leave(struct shunt_comm *comm);

#endif
