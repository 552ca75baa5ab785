// SPDX-License-Identifier: Apache-2.0
/* Threads with a table of descriptors of their own; see own_table.h. */
#include "src/base/own_table.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1u << 1)
#endif

struct job {
    void (*work)(void *arg);
    void *arg;
    bool ran;
    atomic_bool done;
};

static _Thread_local bool is_here;

bool shunti_own_table_is_here(void)
{
    return is_here;
}

/* Close at most this many descriptors, even if the limit is larger. */
#define ROOM 65536

/* Give this thread its own table, with only 0 to 2. close_range() does not
 * exist before Linux 5.9. Filters of containers deny unshare(). */
static bool leave_table(void)
{
    long most;

#ifdef SYS_close_range
    if (!syscall(SYS_close_range, STDERR_FILENO + 1u, ~0u, CLOSE_RANGE_UNSHARE))
        return true;
#endif
    if (unshare(CLONE_FILES))
        return false;
    most = sysconf(_SC_OPEN_MAX);
    for (int fd = STDERR_FILENO + 1; fd < most && fd < ROOM; fd++)
        close(fd);
    return true;
}

static void *run(void *arg)
{
    struct job *job = arg;

    is_here = true;
    job->ran = leave_table();
    if (job->ran)
        job->work(job->arg);
    atomic_store(&job->done, true);
    return NULL;
}

bool shunti_own_table_run(void (*work)(void *arg), void (*meanwhile)(void *arg),
                          void *arg)
{
    struct job job = {.work = work, .arg = arg};
    sigset_t all, before;
    pthread_t thread;
    int rc;

    /* Block all signals in the new thread: they are for the program's own
     * threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, run, &job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return false;
    while (!atomic_load(&job.done))
        meanwhile(arg);
    pthread_join(thread, NULL);
    return job.ran;
}
