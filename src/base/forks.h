// SPDX-License-Identifier: Apache-2.0
/*
 * A fork() of the process: locks that must be free in the child, and what the
 * child has to change before it uses the library.
 */
#ifndef SHUNTI_FORKS_H
#define SHUNTI_FORKS_H

#include <pthread.h>
#include <stdbool.h>

struct shunti_fork {
    /* Held during the fork, so that no other thread is changing what the lock
     * protects. NULL: none. */
    pthread_mutex_t *lock;
    /* True: a thread that holds this lock may take other locks, so a fork takes
     * this lock first. Only one lock is `outer`. */
    bool outer;
    /* Called in the child, before fork() returns there. NULL: nothing. */
    void (*in_child)(void);
    struct shunti_fork *next;
};

/* Apply `fork` to every fork() from now on. Constructors of the library call
 * this, so only one thread does; `fork` is static. */
void shunti_fork_watch(struct shunti_fork *fork);

#endif
