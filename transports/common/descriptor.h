// SPDX-License-Identifier: Apache-2.0
/*
 * Descriptors that the library keeps are above 2.
 *
 * A program may close its stdin, stdout or stderr, and still print. Its text is
 * then written to the file that got the number next. The text would corrupt a
 * window, or arrive at a peer as a message. So each descriptor that the library
 * or a plugin makes passes shunti_fd_lift(). Each descriptor that another
 * process sends passes shunti_fd_move().
 *
 * Other threads may print meanwhile. Other libraries (UCX, libibverbs, drivers)
 * make descriptors that are not moved. So where the program has closed one of
 * 0 to 2, the library occupies the number by a descriptor with O_PATH. It does
 * so while a descriptor is made, and while a communicator is made or destroyed.
 * A write to an occupied number fails with EBADF, as before.
 */
#ifndef TRANSPORT_DESCRIPTOR_H
#define TRANSPORT_DESCRIPTOR_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* State of the occupied numbers of 0 to 2. The library has one such struct, and
 * each plugin has its own. Zeroed at first. */
struct shunti_stdio {
    pid_t
        locked_by; /* the process of the thread that holds the lock; 0: free */
    pid_t process; /* the process of the fields below */
    int users;
    bool ours[STDERR_FILENO + 1];
    bool watches_forks;
};

__attribute__((weak, visibility("hidden"))) struct shunti_stdio shunti_stdio;

static inline void shunti_stdio_close(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        const int flags = shunti_stdio.ours[fd] ? fcntl(fd, F_GETFL) : -1;

        /* Close it only if it is still such a descriptor: another thread may
         * have given the number to its own file. */
        if (flags >= 0 && flags & O_PATH)
            close(fd);
        shunti_stdio.ours[fd] = false;
    }
}

/* Called in a child of fork(): the lock and the users are the parent's. */
static inline void shunti_stdio_forked(void)
{
    __atomic_store_n(&shunti_stdio.locked_by, 0, __ATOMIC_RELAXED);
    shunti_stdio.process = 0;
}

/* Each file that includes this has the constructor; only the first one acts. */
__attribute__((constructor)) static void shunti_stdio_watch_forks(void)
{
    if (!shunti_stdio.watches_forks)
        shunti_stdio.watches_forks =
            !pthread_atfork(NULL, NULL, shunti_stdio_forked);
}

/* A lock that names its process. A child of clone() or _Fork(), which call no
 * handlers, inherits the lock as it was, without the thread that held it. So a
 * child takes over a lock that another process holds. Many threads of the child
 * may try that at once, and one succeeds. The lock is held for a few system
 * calls. */
static inline void shunti_stdio_lock(void)
{
    const pid_t here = getpid();
    pid_t holder = 0;

    while (!__atomic_compare_exchange_n(&shunti_stdio.locked_by, &holder, here,
                                        false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
        if (holder == here) {
            sched_yield();
            holder = 0;
        }
    /* A child also inherited the parent's users and occupied numbers. */
    if (shunti_stdio.process != here) {
        shunti_stdio.users = 0;
        shunti_stdio_close();
        shunti_stdio.process = here;
    }
}

static inline void shunti_stdio_unlock(void)
{
    __atomic_store_n(&shunti_stdio.locked_by, 0, __ATOMIC_RELEASE);
}

/* Occupy the free numbers of 0 to 2, until shunti_stdio_release() has been
 * called as often as this function. If resources are short, the numbers stay
 * free. Any thread may call this. */
static inline void shunti_stdio_occupy(void)
{
    int fd = 0;

    shunti_stdio_lock();
    shunti_stdio.users++;
    while (fd <= STDERR_FILENO && fcntl(fd, F_GETFD) >= 0)
        fd++;
    while (fd >= 0 && fd <= STDERR_FILENO) {
        fd = open("/", O_PATH | O_CLOEXEC); /* the lowest free number */
        if (fd > STDERR_FILENO)
            close(fd);
        else if (fd >= 0)
            shunti_stdio.ours[fd] = true;
    }
    shunti_stdio_unlock();
}

/* End one shunti_stdio_occupy(). Preserves errno. */
static inline void shunti_stdio_release(void)
{
    const int error = errno;

    shunti_stdio_lock();
    if (shunti_stdio.users > 0 && --shunti_stdio.users == 0)
        shunti_stdio_close();
    shunti_stdio_unlock();
    errno = error;
}

/* Move a descriptor above 2 if it is not there. `fd` may be an error (-1). If
 * moving fails, closes `fd`, and returns -1 and errno. A descriptor that was
 * moved is closed at exec. */
static inline int shunti_fd_move(int fd)
{
    int moved, error;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    error = errno;
    close(fd);
    errno = error;
    return moved;
}

/* shunti_fd_lift(socket(...)): a new descriptor above 2, or -1 and errno. */
#define shunti_fd_lift(make)          \
    __extension__({                   \
        int made_;                    \
                                      \
        shunti_stdio_occupy();        \
        made_ = shunti_fd_move(make); \
        shunti_stdio_release();       \
        made_;                        \
    })

#endif
