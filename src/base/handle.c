// SPDX-License-Identifier: Apache-2.0
/* Handles; see handle.h. */
#include "src/base/handle.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "src/base/forks.h"

/*
 * The bits of a handle, from the lowest: 1 (odd), the entry, the count. Entries
 * are in chunks, which are never moved, so a look-up takes no lock.
 *
 * A thread may use a stale handle whose entry now belongs to a communicator of
 * another thread. So every word is atomic. The values that the thread reads are
 * harmless: `valid` is another handle, and `since` is above the count of the
 * stale handle. The thread itself raised `since` when it gave the entry back.
 */
#define ENTRY_BITS 20
#define COUNT_SHIFT (1 + ENTRY_BITS)
#define CHUNK 1024
#define CHUNKS ((1 << ENTRY_BITS) / CHUNK)

_Static_assert(sizeof(uintptr_t) == 8, "a handle has 64 bits");

struct entry {
    uintptr_t valid;    /* the valid handle, or 0 */
    void *object;       /* the object of the valid handle */
    uint64_t count;     /* number of handles issued so far */
    uint64_t since;     /* count of the first handle since the entry was
                           taken */
    uint64_t inherited; /* `count` when this process was forked */
    void *owner;
    unsigned kind;
    uint32_t next; /* in a free entry: the next free entry, or 0 */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *chunks[CHUNKS];
static uint32_t used = 1; /* entries that exist; number 0 is not used */
static uint32_t spare;    /* the first free entry, or 0 */

#define LOAD(at) __atomic_load_n(&(at), __ATOMIC_ACQUIRE)
#define STORE(at, value) __atomic_store_n(&(at), value, __ATOMIC_RELEASE)

static struct entry *entry_at(uint32_t number)
{
    struct entry *chunk = LOAD(chunks[number / CHUNK]);

    return chunk ? &chunk[number % CHUNK] : NULL;
}

/* Find a free entry. The caller holds the lock. */
static uint32_t find_free(void)
{
    uint32_t number = spare;
    struct entry *chunk;

    if (number) {
        spare = entry_at(number)->next;
        return number;
    }
    if (used == 1u << ENTRY_BITS)
        return 0;
    if (!chunks[used / CHUNK]) {
        chunk = calloc(CHUNK, sizeof(*chunk));
        if (!chunk)
            return 0;
        STORE(chunks[used / CHUNK], chunk);
    }
    return used++;
}

uint32_t shunti_handle_take(enum shunti_handle_kind kind, void *owner)
{
    struct entry *e;
    uint32_t number;

    pthread_mutex_lock(&lock);
    number = find_free();
    pthread_mutex_unlock(&lock);
    if (!number)
        return 0;
    e = entry_at(number);
    STORE(e->kind, (unsigned)kind);
    STORE(e->owner, owner);
    return number;
}

void shunti_handle_give_back(uint32_t number)
{
    struct entry *e;

    if (!number)
        return;
    e = entry_at(number);
    STORE(e->valid, 0);
    STORE(e->since, e->count + 1);
    STORE(e->owner, NULL);
    pthread_mutex_lock(&lock);
    e->next = spare;
    spare = number;
    pthread_mutex_unlock(&lock);
}

void shunti_handle_pass(uint32_t number, void *owner)
{
    STORE(entry_at(number)->owner, owner);
}

void *shunti_handle_issue(uint32_t number, void *object)
{
    struct entry *e = entry_at(number);
    uint64_t count = e->count + 1;
    uintptr_t handle = 1 | (uintptr_t)number << 1 | count << COUNT_SHIFT;

    STORE(e->count, count);
    STORE(e->object, object);
    STORE(e->valid, handle);
    return (void *)handle;
}

void shunti_handle_revoke(uint32_t number)
{
    STORE(entry_at(number)->valid, 0);
}

/* The entry of a handle, if the handle can be one of this kind; otherwise
 * NULL. */
static struct entry *entry_of(enum shunti_handle_kind kind, const void *handle)
{
    uintptr_t bits = (uintptr_t)handle;
    struct entry *e;

    if (!(bits & 1))
        return NULL;
    e = entry_at((uint32_t)(bits >> 1) & ((1u << ENTRY_BITS) - 1));
    return e && LOAD(e->kind) == (unsigned)kind ? e : NULL;
}

void *shunti_handle_object(enum shunti_handle_kind kind, const void *handle)
{
    struct entry *e = entry_of(kind, handle);

    return e && LOAD(e->valid) == (uintptr_t)handle ? LOAD(e->object) : NULL;
}

void *shunti_handle_owner(enum shunti_handle_kind kind, const void *handle)
{
    struct entry *e = entry_of(kind, handle);
    uint64_t count = (uintptr_t)handle >> COUNT_SHIFT;

    return e && count >= LOAD(e->since) && count <= LOAD(e->count)
               ? LOAD(e->owner)
               : NULL;
}

bool shunti_handle_is_inherited(enum shunti_handle_kind kind,
                                const void *handle)
{
    const struct entry *e = entry_of(kind, handle);

    return e && (uintptr_t)handle >> COUNT_SHIFT <= LOAD(e->inherited);
}

static void forked(void)
{
    for (uint32_t number = 1; number < used; number++) {
        struct entry *e = entry_at(number);

        STORE(e->valid, 0);
        STORE(e->inherited, e->count);
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock, .in_child = forked};

    shunti_fork_watch(&fork);
}
