// SPDX-License-Identifier: Apache-2.0
/*
 * Pages as a NIC sees them: the pages that memory had when it was registered,
 * even if other pages have been mapped at its address since. The kernel pins
 * buffers that are registered with an io_uring, as it pins memory for a NIC.
 * Writes then go to those pages. So each registration has a ring with one
 * buffer. Written data pass through a pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/verbs/pages.h"

struct nic_pages {
    int ring, pipe[2];
    unsigned char *queues; /* submission and completion queue, in one mapping */
    size_t queue_bytes;
    struct io_uring_sqe *entries;
    struct io_uring_params params;
};

static unsigned *field(const struct nic_pages *pages, uint32_t offset)
{
    return (unsigned *)(void *)(pages->queues + offset);
}

static bool map_queues(struct nic_pages *pages)
{
    const struct io_uring_params *p = &pages->params;
    const size_t sent = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    const size_t done =
        p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    const int flags = MAP_SHARED | MAP_POPULATE;

    if (!(p->features & IORING_FEAT_SINGLE_MMAP))
        return false;
    pages->queue_bytes = sent > done ? sent : done;
    pages->queues = mmap(NULL, pages->queue_bytes, PROT_READ | PROT_WRITE,
                         flags, pages->ring, IORING_OFF_SQ_RING);
    if (pages->queues == MAP_FAILED) {
        pages->queues = NULL;
        return false;
    }
    pages->entries =
        mmap(NULL, p->sq_entries * sizeof(*pages->entries),
             PROT_READ | PROT_WRITE, flags, pages->ring, IORING_OFF_SQES);
    if (pages->entries == MAP_FAILED)
        pages->entries = NULL;
    return pages->entries != NULL;
}

struct nic_pages *nic_pages_pin(void *addr, size_t bytes)
{
    const struct iovec buffer = {addr, bytes};
    struct nic_pages *pages = calloc(1, sizeof(*pages));

    if (!pages)
        abort();
    pages->pipe[0] = pages->pipe[1] = -1;
    pages->ring = (int)syscall(__NR_io_uring_setup, 1, &pages->params);
    if (pages->ring >= 0 && map_queues(pages) &&
        !pipe2(pages->pipe, O_CLOEXEC) &&
        !syscall(__NR_io_uring_register, pages->ring, IORING_REGISTER_BUFFERS,
                 &buffer, 1))
        return pages;
    nic_pages_unpin(pages);
    return NULL;
}

void nic_pages_unpin(struct nic_pages *pages)
{
    const int error = errno;

    if (!pages)
        return;
    if (pages->queues)
        munmap(pages->queues, pages->queue_bytes);
    if (pages->entries)
        munmap(pages->entries,
               pages->params.sq_entries * sizeof(*pages->entries));
    for (int i = 0; i < 2; i++)
        if (pages->pipe[i] >= 0)
            close(pages->pipe[i]);
    if (pages->ring >= 0)
        close(pages->ring);
    free(pages);
    errno = error;
}

/* Copy bytes from the pipe to the pages, or from the pages to the pipe. */
static void move(struct nic_pages *pages, int op, uint64_t address, size_t n)
{
    const struct io_uring_params *p = &pages->params;
    unsigned *tail = field(pages, p->sq_off.tail);
    unsigned *head = field(pages, p->cq_off.head);
    const struct io_uring_cqe *done =
        (const void *)(pages->queues + p->cq_off.cqes);
    int result;

    pages->entries[0] = (struct io_uring_sqe){
        .opcode = (uint8_t)op,
        .fd = pages->pipe[op == IORING_OP_WRITE_FIXED],
        .addr = address,
        .len = (uint32_t)n,
        .off = (uint64_t)-1,
    };
    field(pages, p->sq_off.array)[*tail & (p->sq_entries - 1)] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    while (syscall(__NR_io_uring_enter, pages->ring, 1, 1,
                   IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        if (errno != EINTR)
            abort();
    while (__atomic_load_n(field(pages, p->cq_off.tail), __ATOMIC_ACQUIRE) ==
           *head)
        if (syscall(__NR_io_uring_enter, pages->ring, 0, 1,
                    IORING_ENTER_GETEVENTS, NULL, 0) < 0 &&
            errno != EINTR)
            abort();
    result = done[*head & (p->cq_entries - 1)].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    if (result != (int)n)
        abort();
}

void nic_pages_write(struct nic_pages *pages, uint64_t address,
                     const void *data, size_t n)
{
    if (write(pages->pipe[1], data, n) != (ssize_t)n)
        abort();
    move(pages, IORING_OP_READ_FIXED, address, n);
}

bool nic_pages_are(struct nic_pages *pages, uint64_t address, size_t n)
{
    unsigned char piece[NIC_PAGES_MOST];

    while (n > 0) {
        const size_t now = n < sizeof(piece) ? n : sizeof(piece);

        move(pages, IORING_OP_WRITE_FIXED, address, now);
        if (read(pages->pipe[0], piece, now) != (ssize_t)now)
            abort();
        if (memcmp(piece, (const void *)(uintptr_t)address, now))
            return false;
        address += now;
        n -= now;
    }
    return true;
}
