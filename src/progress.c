// SPDX-License-Identifier: Apache-2.0
/*
 * The progress thread: advances operations while the caller computes.
 *
 * It and the caller take turns by a lock. While a caller is inside the library
 * the thread stands aside; a caller who comes while it sleeps in poll() wakes
 * it. With no operation under way it sleeps until one is begun.
 */
#include <pthread.h>
#include <string.h>

#include "comm.h"
#include "error.h"
#include "log.h"
#include "request.h"
#include "trace.h"
#include "wait.h"

void shunti_comm_enter(struct shunt_comm *comm)
{
    if (!comm->threaded)
        return;
    atomic_fetch_add_explicit(&comm->callers, 1, memory_order_acq_rel);
    if (pthread_mutex_trylock(&comm->lock)) {
        shunti_wake_self(comm);
        pthread_mutex_lock(&comm->lock);
    }
}

void shunti_comm_leave(struct shunt_comm *comm)
{
    if (!comm->threaded)
        return;
    atomic_fetch_sub_explicit(&comm->callers, 1, memory_order_acq_rel);
    pthread_cond_signal(&comm->idle);
    pthread_mutex_unlock(&comm->lock);
}

static bool may_drive(const struct shunt_comm *comm)
{
    return comm->active &&
           !atomic_load_explicit(&comm->callers, memory_order_acquire);
}

static void *drive(void *arg)
{
    struct shunt_comm *comm = arg;

    shunti_log_set_rank(comm->rank);
    shunti_trace_thread(comm->rank, "progress");
    pthread_mutex_lock(&comm->lock);
    while (!comm->stop) {
        struct shunti_waiter waiter = {0};

        if (!may_drive(comm)) {
            pthread_cond_wait(&comm->idle, &comm->lock);
            continue;
        }
        shunti_progress(comm);
        while (!comm->stop && may_drive(comm)) {
            shunti_waiter_pause(comm, &waiter);
            shunti_progress(comm);
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

enum shunt_status shunti_progress_thread_start(struct shunt_comm *comm)
{
    int error;

    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->idle, NULL);
    comm->threaded = true;
    error = pthread_create(&comm->thread, NULL, drive, comm);
    if (!error)
        return SHUNT_OK;
    comm->threaded = false;
    pthread_cond_destroy(&comm->idle);
    pthread_mutex_destroy(&comm->lock);
    return shunti_fail(NULL, SHUNT_ERR_SYSTEM, "progress thread: %s",
                       strerror(error));
}

void shunti_progress_thread_stop(struct shunt_comm *comm)
{
    if (!comm->threaded)
        return;
    shunti_comm_enter(comm);
    comm->stop = true;
    shunti_comm_leave(comm);
    shunti_wake_self(comm);
    pthread_join(comm->thread, NULL);
    comm->threaded = false;
    pthread_cond_destroy(&comm->idle);
    pthread_mutex_destroy(&comm->lock);
}
