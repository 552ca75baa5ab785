// SPDX-License-Identifier: Apache-2.0
/* Descriptors 0 to 2 while others open descriptors; see occupy.h. */
#include "src/occupy.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/forks.h"

#define STDIO 3

/* All protected by `lock`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;
static ino_t ours[STDIO]; /* the pipe that has this number; 0: none */

static bool all_open(void)
{
    for (int fd = 0; fd < STDIO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return false;
    return true;
}

static void occupy(void)
{
    struct stat pipe;
    int ends[2], fd;

    if (all_open() || pipe2(ends, O_CLOEXEC))
        return;
    close(ends[1]);
    if (fstat(ends[0], &pipe)) {
        close(ends[0]);
        return;
    }
    fd = ends[0]; /* the lowest number that was free */
    while (fd >= 0 && fd < STDIO) {
        ours[fd] = pipe.st_ino;
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    if (fd >= 0)
        close(fd);
}

void shunti_occupy_stdio(void)
{
    pthread_mutex_lock(&lock);
    users++;
    occupy();
    pthread_mutex_unlock(&lock);
}

static void release(void)
{
    struct stat now;

    for (int fd = 0; fd < STDIO; fd++) {
        /* Another thread may have given the number to a file of its own. */
        if (ours[fd] && !fstat(fd, &now) && S_ISFIFO(now.st_mode) &&
            now.st_ino == ours[fd])
            close(fd);
        ours[fd] = 0;
    }
}

void shunti_release_stdio(void)
{
    pthread_mutex_lock(&lock);
    if (--users == 0)
        release();
    pthread_mutex_unlock(&lock);
}

/* The threads that were between the two are the parent's. */
static void forked(void)
{
    users = 0;
    release();
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock, .in_child = forked};

    shunti_fork_watch(&fork);
}
