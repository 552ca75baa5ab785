// SPDX-License-Identifier: Apache-2.0
/* Large blocks of memory that are reused; see scratch.h. */
#include "src/base/scratch.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "src/base/forks.h"
#include "src/comm.h"

#define LINE 64
/* Kept blocks are a multiple of this; smaller ones are not kept. */
#define UNIT ((size_t)64 << 10)

struct block {
    struct block *next;
    size_t capacity; /* bytes of the memory that follows this cache line */
    _Alignas(LINE) unsigned char memory[];
};

_Static_assert(sizeof(struct block) == LINE, "a line");

/* Protects the variables below. Only large blocks are kept, whose copies take
 * far longer than the lock. Blocks are freed after the lock is released. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *spare; /* spare blocks, the latest first */
static size_t spare_bytes;  /* bytes of all spare blocks */
static size_t users;        /* communicators that have returned a block */

/* Take the smallest spare block that is large enough, and at most four times
 * too large. */
static struct block *take_spare(size_t bytes)
{
    struct block **best = NULL, *block = NULL;

    pthread_mutex_lock(&lock);
    for (struct block **at = &spare; *at; at = &(*at)->next)
        if ((*at)->capacity >= bytes && (*at)->capacity / 4 <= bytes &&
            (!best || (*at)->capacity < (*best)->capacity))
            best = at;
    if (best) {
        block = *best;
        *best = block->next;
        spare_bytes -= block->capacity;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

/* Keep the latest spare blocks that together have at most `limit` bytes. Remove
 * and return the others. */
static struct block *cut(size_t limit)
{
    struct block **at = &spare, *rest;

    if (spare_bytes <= limit)
        return NULL;
    spare_bytes = 0;
    while (*at && spare_bytes + (*at)->capacity <= limit) {
        spare_bytes += (*at)->capacity;
        at = &(*at)->next;
    }
    rest = *at;
    *at = NULL;
    return rest;
}

static void free_all(struct block *block)
{
    while (block) {
        struct block *next = block->next;

        free(block);
        block = next;
    }
}

void *shunti_scratch_get(size_t bytes)
{
    const size_t unit = bytes < UNIT ? LINE : UNIT;
    struct block *block = NULL;
    size_t capacity;

    if (bytes > SIZE_MAX - UNIT - LINE)
        return NULL;
    capacity = bytes / unit * unit + (bytes % unit || !bytes ? unit : 0);
    if (unit == UNIT)
        block = take_spare(capacity);
    if (!block) {
        block = aligned_alloc(LINE, sizeof(*block) + capacity);
        if (!block)
            return NULL;
        block->capacity = capacity;
    }
    return block->memory;
}

void shunti_scratch_put(struct shunt_comm *comm, void *memory)
{
    struct block *block, *surplus;

    if (!memory)
        return;
    block = (struct block *)(void *)((unsigned char *)memory - sizeof(*block));
    if (block->capacity < UNIT || block->capacity > SHUNTI_SCRATCH_KEPT) {
        free(block);
        return;
    }
    pthread_mutex_lock(&lock);
    users += !comm->uses_scratch;
    comm->uses_scratch = true;
    block->next = spare;
    spare = block;
    spare_bytes += block->capacity;
    surplus = cut(SHUNTI_SCRATCH_KEPT);
    pthread_mutex_unlock(&lock);
    free_all(surplus);
}

void shunti_scratch_leave(struct shunt_comm *comm)
{
    struct block *surplus = NULL;

    if (!comm->uses_scratch)
        return;
    comm->uses_scratch = false;
    pthread_mutex_lock(&lock);
    if (!--users)
        surplus = cut(0);
    pthread_mutex_unlock(&lock);
    free_all(surplus);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock};

    shunti_fork_watch(&fork);
}
