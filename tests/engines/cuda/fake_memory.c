// SPDX-License-Identifier: Apache-2.0
/* The fake driver's memory; see fake.h. */
#include "tests/engines/cuda/fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 4096 };

static struct fake_memory all[MOST];
static size_t places; /* entries of `all` that were ever used */
static size_t used_bytes;

static int *count_of(enum fake_kind kind)
{
    return kind == FAKE_DEVICE   ? &fake_live.device
           : kind == FAKE_MAPPED ? &fake_live.mapped
                                 : &fake_live.host;
}

/* Map the memory twice: at the address for callers, without access, and for the
 * fake. */
static bool map_twice(struct fake_memory *m)
{
    const size_t room = fake_memory_room(m->bytes);

    m->at = mmap(NULL, room, PROT_NONE, MAP_SHARED, m->fd, 0);
    if (m->at == MAP_FAILED)
        return false;
    m->there = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->there != MAP_FAILED)
        return true;
    munmap(m->at, room);
    return false;
}

static uint64_t inode_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) ? 0 : (uint64_t)st.st_ino;
}

static bool provide(struct fake_memory *m)
{
    if (m->kind == FAKE_MAPPED) {
        m->inode = inode_of(m->fd);
        return map_twice(m);
    }
    if (m->kind == FAKE_HOST) {
        m->at = m->there = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return m->at != MAP_FAILED;
    }
    m->fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (m->fd < 0 || ftruncate(m->fd, (off_t)fake_memory_room(m->bytes)) ||
        !map_twice(m)) {
        if (m->fd >= 0)
            close(m->fd);
        return false;
    }
    m->inode = inode_of(m->fd);
    memset(m->there, 0x5a, m->bytes); /* new memory contains old data */
    return true;
}

int fake_memory_new(enum fake_kind kind, void *at, int fd, size_t bytes,
                    struct fake_memory **memory)
{
    struct fake_memory m = {
        .kind = kind, .at = at, .there = at, .bytes = bytes, .fd = fd};
    struct fake_memory *place = all;

    if (!bytes)
        return INVALID_VALUE;
    while (place < all + MOST && place->at)
        place++;
    if (place == all + MOST ||
        (kind == FAKE_DEVICE &&
         bytes > (size_t)fake_setting("memory", 1l << 30) - used_bytes))
        return OUT_OF_MEMORY;
    if (kind != FAKE_REGISTERED && !provide(&m))
        return OUT_OF_MEMORY;
    used_bytes += kind == FAKE_DEVICE ? bytes : 0;
    ++*count_of(kind);
    places =
        places > (size_t)(place - all) ? places : (size_t)(place - all) + 1;
    *place = m;
    *memory = place;
    return OK;
}

int fake_memory_free(enum fake_kind kind, const void *at)
{
    struct fake_memory *m = all;

    while (m < all + MOST && (!at || m->at != at || m->kind != kind))
        m++;
    if (m == all + MOST)
        return kind == FAKE_REGISTERED ? NOT_REGISTERED : INVALID_VALUE;
    if (kind == FAKE_DEVICE)
        used_bytes -= m->bytes;
    if (kind == FAKE_DEVICE || kind == FAKE_MAPPED) {
        munmap(m->at, fake_memory_room(m->bytes));
        munmap(m->there, fake_memory_room(m->bytes));
        close(m->fd);
    } else if (kind == FAKE_HOST) {
        munmap(m->at, m->bytes);
    }
    m->at = NULL;
    --*count_of(kind);
    return OK;
}

struct fake_memory *fake_memory_of(uint64_t at, size_t bytes)
{
    for (struct fake_memory *m = all; m < all + places; m++) {
        const uint64_t base = (uint64_t)(uintptr_t)m->at;

        if (m->at && at >= base && at - base < m->bytes &&
            bytes <= m->bytes - (at - base))
            return m;
    }
    return NULL;
}

struct fake_memory *fake_memory_opened(uint64_t inode)
{
    for (struct fake_memory *m = all; m < all + places; m++)
        if (m->at && m->kind == FAKE_MAPPED && m->inode == inode)
            return m;
    return NULL;
}

unsigned char *fake_access(uint64_t at, size_t bytes)
{
    struct fake_memory *m = fake_memory_of(at, bytes);

    return m ? m->there + (at - (uint64_t)(uintptr_t)m->at) : NULL;
}
