// SPDX-License-Identifier: Apache-2.0
/* Descriptors are above 2, in every process and thread that makes them
 * (transports/common/descriptor.h). */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process id that getpid() returns if it is not 0. The kernel may give the
 * id of a process that has ended to another one. */
static pid_t same_number;

static pid_t number_of_process(void)
{
    return same_number ? same_number : getpid();
}

#define getpid() number_of_process()

#include "transports/common/descriptor.h"

#define ROUNDS 200
#define THREADS 8
#define MADE 20     /* descriptors that each thread makes */
#define PATIENCE 30 /* seconds, after which a child is considered to hang */

static pthread_barrier_t together;

static void *make_some(void *arg)
{
    bool *failed = arg;

    pthread_barrier_wait(&together);
    for (int i = 0; i < MADE; i++) {
        const int fd = shunti_fd_lift(eventfd(0, EFD_CLOEXEC));

        if (fd <= STDERR_FILENO)
            *failed = true;
        close(fd);
    }
    return NULL;
}

/* Returns 0 if all descriptors were above 2, and none of 0 to 2 stayed open. */
static int on_threads(void)
{
    pthread_t thread[THREADS];
    bool failed[THREADS] = {false};
    int bad = 0;

    alarm(PATIENCE);
    pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, make_some, &failed[i]))
            return 2;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        bad |= failed[i];
    }
    return bad || fcntl(STDIN_FILENO, F_GETFD) >= 0;
}

static void in_children(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        const pid_t child = fork();
        int status;

        cr_assert(child >= 0);
        if (!child)
            _exit(on_threads());
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && !WEXITSTATUS(status),
                  "child %d: status %#x", i, (unsigned)status);
    }
}

/* In the child, all threads find at the same time that the parent held the
 * lock. */
Test(descriptor, threads_of_a_child_take_the_lock_over)
{
    close(STDIN_FILENO);
    cr_assert_gt(shunti_fd_lift(eventfd(0, EFD_CLOEXEC)), STDERR_FILENO);
    in_children();
}

/* A thread of the parent is making a descriptor when the process forks. That
 * thread does not exist in the child. */
Test(descriptor, a_child_does_not_wait_for_threads_of_its_parent)
{
    close(STDIN_FILENO);
    shunti_stdio_occupy();
    shunti_stdio_lock();
    in_children();
}

/* A descendant has the process id of the process that held the lock. */
Test(descriptor, a_number_of_a_process_may_come_again)
{
    close(STDIN_FILENO);
    shunti_stdio_occupy();
    same_number = 4711;
    shunti_stdio_lock();
    in_children();
}
