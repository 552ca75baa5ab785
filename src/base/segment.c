// SPDX-License-Identifier: Apache-2.0
/* Segments; see segment.h. */
#include "src/base/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "transports/common/descriptor.h"

static void *map_new(const char *name, size_t bytes, int *fd)
{
    struct rlimit limit;
    void *addr;
    int saved;

    /* Growing a file beyond this limit raises a signal, which ends the
     * process. */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && bytes > limit.rlim_cur) {
        errno = EFBIG;
        return NULL;
    }
    *fd = shunti_fd_lift(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (*fd < 0)
        return NULL;
    addr = ftruncate(*fd, (off_t)bytes)
               ? MAP_FAILED
               : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, *fd, 0);
    if (addr != MAP_FAILED)
        return addr;
    saved = errno;
    close(*fd);
    errno = saved;
    return NULL;
}

struct shunti_segment *shunti_segment_create(const char *name, size_t bytes)
{
    struct shunti_segment *segment = calloc(1, sizeof(*segment));
    int saved;

    if (!segment)
        return NULL;
    segment->bytes = bytes;
    atomic_init(&segment->users, 1);
    segment->addr = map_new(name, bytes, &segment->fd);
    if (segment->addr)
        return segment;
    saved = errno;
    free(segment);
    errno = saved;
    return NULL;
}

void shunti_segment_hold(struct shunti_segment *segment)
{
    atomic_fetch_add_explicit(&segment->users, 1, memory_order_relaxed);
}

void shunti_segment_drop(void *arg)
{
    struct shunti_segment *segment = arg;

    /* Release: this thread's accesses are ordered before the unmapping by
     * another thread. */
    if (!segment ||
        atomic_fetch_sub_explicit(&segment->users, 1, memory_order_acq_rel) > 1)
        return;
    munmap(segment->addr, segment->bytes);
    close(segment->fd);
    free(segment);
}
