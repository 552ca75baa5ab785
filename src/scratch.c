// SPDX-License-Identifier: Apache-2.0
/* Large blocks of memory that are used again; see scratch.h. */
#include "scratch.h"

#include <stdint.h>
#include <stdlib.h>

#include "comm.h"

#define LINE 64
/* Blocks are multiples of it, and smaller ones are not kept. */
#define UNIT ((size_t)64 << 10)
/* Bytes of spare blocks that a communicator keeps. */
#define KEPT ((size_t)32 << 20)

struct shunti_scratch_block {
    struct shunti_scratch_block *next;
    size_t capacity; /* of the memory behind this line */
    _Alignas(LINE) unsigned char memory[];
};

_Static_assert(sizeof(struct shunti_scratch_block) == LINE, "a line");

/* The smallest spare one that is large enough, and not far too large. */
static struct shunti_scratch_block *take_spare(struct shunti_scratch *scratch,
                                               size_t bytes)
{
    struct shunti_scratch_block **best = NULL, *block;

    for (struct shunti_scratch_block **at = &scratch->spare; *at;
         at = &(*at)->next)
        if ((*at)->capacity >= bytes && (*at)->capacity / 4 <= bytes &&
            (!best || (*at)->capacity < (*best)->capacity))
            best = at;
    if (!best)
        return NULL;
    block = *best;
    *best = block->next;
    scratch->bytes -= block->capacity;
    return block;
}

void *shunti_scratch_get(struct shunt_comm *comm, size_t bytes)
{
    const size_t unit = bytes < UNIT ? LINE : UNIT;
    struct shunti_scratch_block *block = NULL;
    size_t capacity;

    if (bytes > SIZE_MAX - UNIT - LINE)
        return NULL;
    capacity = bytes / unit * unit + (bytes % unit || !bytes ? unit : 0);
    if (unit == UNIT)
        block = take_spare(&comm->scratch, capacity);
    if (!block) {
        block = aligned_alloc(LINE, sizeof(*block) + capacity);
        if (!block)
            return NULL;
        block->capacity = capacity;
    }
    return block->memory;
}

static void drop_oldest(struct shunti_scratch *scratch)
{
    struct shunti_scratch_block **at = &scratch->spare;

    while ((*at)->next)
        at = &(*at)->next;
    scratch->bytes -= (*at)->capacity;
    free(*at);
    *at = NULL;
}

void shunti_scratch_put(struct shunt_comm *comm, void *memory)
{
    struct shunti_scratch *scratch = &comm->scratch;
    struct shunti_scratch_block *block;

    if (!memory)
        return;
    block = (struct shunti_scratch_block *)(void *)((unsigned char *)memory -
                                                    sizeof(*block));
    if (block->capacity < UNIT || block->capacity > KEPT) {
        free(block);
        return;
    }
    block->next = scratch->spare;
    scratch->spare = block;
    scratch->bytes += block->capacity;
    while (scratch->bytes > KEPT)
        drop_oldest(scratch);
}

void shunti_scratch_trim(struct shunt_comm *comm)
{
    while (comm->scratch.spare)
        drop_oldest(&comm->scratch);
}
