// SPDX-License-Identifier: Apache-2.0
/*
 * The fake driver's memory of other processes; see fake.h.
 *
 * A handle contains the process and the descriptor of an allocation, which
 * another process opens through /proc. It also contains the inode, which shows
 * whether the descriptor is still of the same memory. Behind the memory there
 * is a list of the processes that have it open. The documentation does not
 * define what happens if the owner frees the memory before they close it, so
 * the fake reports that.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/engines/cuda/fake.h"

/* The contents of a CUipcMemHandle, which has 64 bytes. */
struct handle {
    uint64_t magic, inode, bytes;
    int pid, fd, device, unused;
    uint64_t rest[3];
};
_Static_assert(sizeof(struct handle) == 64, "size of a handle");

#define MAGIC UINT64_C(0x66616b6569706331)
#define PAGE ((size_t)4096)

static size_t users_at(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

size_t fake_memory_room(size_t bytes)
{
    return users_at(bytes) + PAGE;
}

struct fake_users *fake_users_of(const struct fake_memory *m)
{
    return (struct fake_users *)(void *)(m->there + users_at(m->bytes));
}

/* Returns whether a process runs. A process that was killed has closed nothing,
 * but is not a user any more. */
static bool runs(int pid)
{
    char path[64], line[512] = "", *state;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, line, sizeof(line) - 1);
    close(fd);
    state = n > 0 ? strrchr(line, ')') : NULL;
    return state && strlen(state) > 2 && state[2] != 'Z' && state[2] != 'X';
}

int fake_user_of(const struct fake_memory *m)
{
    const struct fake_users *users = fake_users_of(m);

    for (int i = 0; i < FAKE_USERS; i++) {
        const int pid = __atomic_load_n(&users->pid[i], __ATOMIC_ACQUIRE);

        if (pid && runs(pid))
            return pid;
    }
    return 0;
}

static bool change_user(struct fake_users *users, int from, int to)
{
    for (int i = 0; i < FAKE_USERS; i++) {
        int before = from;

        if (__atomic_compare_exchange_n(&users->pid[i], &before, to, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return true;
    }
    return false;
}

int fake_ipc_get(const struct fake_memory *m, void *handle)
{
    const struct handle h = {
        .magic = MAGIC,
        .inode = m->inode,
        .bytes = m->bytes,
        .pid = getpid(),
        .fd = m->fd,
        .device = m->device,
    };

    if (!fake_setting("ipc", 1))
        return NOT_SUPPORTED;
    if (m->kind != FAKE_DEVICE)
        return INVALID_VALUE;
    memcpy(handle, &h, sizeof(h));
    return OK;
}

static int open_of(const struct handle *h)
{
    char path[64];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && !fstat(fd, &st) && (uint64_t)st.st_ino == h->inode)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int fake_ipc_open(const void *handle, int device, uint64_t *at)
{
    struct fake_memory *m;
    struct handle h;
    int fd, result;

    memcpy(&h, handle, sizeof(h));
    if (h.magic != MAGIC)
        return INVALID_VALUE;
    if (h.pid == getpid())
        return INVALID_CONTEXT;
    if (h.device != device && !fake_setting("peers", 1))
        return PEER_ACCESS_UNSUPPORTED;
    m = fake_memory_opened(h.inode);
    if (!m) {
        fd = open_of(&h);
        if (fd < 0)
            return INVALID_VALUE;
        result = fake_memory_new(FAKE_MAPPED, NULL, fd, h.bytes, &m);
        if (result) {
            close(fd);
            return result;
        }
        m->device = h.device;
        (void)change_user(fake_users_of(m), 0, getpid());
    }
    m->opened++;
    *at = (uint64_t)(uintptr_t)m->at;
    return OK;
}

int fake_ipc_close(uint64_t at)
{
    struct fake_memory *m = fake_memory_of(at, 1);

    if (!m || m->kind != FAKE_MAPPED || (uint64_t)(uintptr_t)m->at != at)
        return INVALID_VALUE;
    if (--m->opened)
        return OK;
    (void)change_user(fake_users_of(m), getpid(), 0);
    return fake_memory_free(FAKE_MAPPED, m->at);
}
