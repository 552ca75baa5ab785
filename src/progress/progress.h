// SPDX-License-Identifier: Apache-2.0
/* The progress thread steps operations while their caller computes. */
#ifndef SHUNTI_PROGRESS_H
#define SHUNTI_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <shunt/status.h>

struct shunt_comm;

/* Part of a communicator: its progress thread. progress.c starts and stops the
 * thread. turns.c lets callers and the thread use the communicator in turn:
 * whichever of them uses it holds the lock. */
struct shunti_progress_thread {
    /* there is a progress thread; if not, calls use no field below */
    bool exists;
    /* the thread sleeps on the transports; it has released `lock` meanwhile */
    bool asleep;
    bool stop;
    /* number of threads inside the library, or about to enter it */
    _Atomic int callers;
    pthread_mutex_t lock;
    /* the thread waits here while there are callers, or while nothing is under
     * way */
    pthread_cond_t idle;
    pthread_cond_t awake; /* a caller waits here until `asleep` is false */
    pthread_t id;
    bool made; /* the thread was made; it may still wait for its start */
};

/* Make the thread. It waits until it is started. */
enum shunt_status shunti_progress_thread_make(struct shunt_comm *comm);
/* Start the thread, if one was made. Cannot fail. */
void shunti_progress_thread_start(struct shunt_comm *comm);
void shunti_progress_thread_stop(struct shunt_comm *comm);

#endif
