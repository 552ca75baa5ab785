// SPDX-License-Identifier: Apache-2.0
/*
 * Scratch: memory in which operations make what they pass on.
 *
 * Large blocks are kept from one operation to the next. malloc() gets them from the
 * kernel and gives them back each time, and to have fresh pages cleared and mapped
 * costs more than the copy that is made in them: 60 % of the time of an all-gather of
 * 2 MiB in two levels, beside the network.
 */
#ifndef SHUNTI_SCRATCH_H
#define SHUNTI_SCRATCH_H

#include <stddef.h>

struct shunt_comm;

/* Spare blocks of a communicator, the latest first. */
struct shunti_scratch {
    struct shunti_scratch_block *spare;
    size_t bytes; /* of them all */
};

/* `bytes` of memory, at least one, aligned to a cache line; what is in it is left
 * over. NULL: there is none. */
void *shunti_scratch_get(struct shunt_comm *comm, size_t bytes);

/* It is not needed any more; NULL: nothing. */
void shunti_scratch_put(struct shunt_comm *comm, void *memory);

/* Release the spare ones. */
void shunti_scratch_trim(struct shunt_comm *comm);

#endif
