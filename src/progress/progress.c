// SPDX-License-Identifier: Apache-2.0
/* The progress thread; see progress.h. turns.h explains how callers and the
 * thread take turns. */
#include "src/progress/progress.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/op/operations.h"
#include "src/progress/turns.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"

#define DOZE_NS 1000000

static bool may_drive(const struct shunt_comm *comm)
{
    return (comm->operations.active || comm->parked.unsent) &&
           !atomic_load_explicit(&comm->thread.callers, memory_order_acquire);
}

/* Sleep for DOZE_NS at most. After a failure waits do not sleep, and the
 * remaining messages must be sent as soon as possible, without a busy loop. */
static void doze(struct shunt_comm *comm)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += DOZE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&comm->thread.idle, &comm->thread.lock, &until);
}

static void *drive(void *arg)
{
    struct shunt_comm *comm = arg;

    shunti_log_set_rank(comm->rank);
    shunti_trace_thread(comm->rank, "progress");
    pthread_mutex_lock(&comm->thread.lock);
    shunti_track_begin_inside(comm->rank, "progress");
    while (!comm->thread.stop) {
        struct shunti_waiter waiter = {0};

        if (!may_drive(comm)) {
            pthread_cond_wait(&comm->thread.idle, &comm->thread.lock);
            continue;
        }
        shunti_progress(comm);
        shunti_note_unsent(comm);
        while (!comm->thread.stop && may_drive(comm)) {
            if (comm->failure.status)
                doze(comm);
            shunti_waiter_pause(comm, &waiter);
            shunti_progress(comm);
            shunti_note_unsent(comm);
        }
    }
    pthread_mutex_unlock(&comm->thread.lock);
    shunti_track_end();
    return NULL;
}

enum shunt_status shunti_progress_thread_make(struct shunt_comm *comm)
{
    int error;

    pthread_mutex_init(&comm->thread.lock, NULL);
    pthread_cond_init(&comm->thread.idle, NULL);
    pthread_cond_init(&comm->thread.awake, NULL);
    pthread_mutex_lock(&comm->thread.lock);
    error = pthread_create(&comm->thread.id, NULL, drive, comm);
    comm->thread.made = !error;
    if (!error)
        return SHUNT_OK;
    pthread_mutex_unlock(&comm->thread.lock);
    pthread_cond_destroy(&comm->thread.awake);
    pthread_cond_destroy(&comm->thread.idle);
    pthread_mutex_destroy(&comm->thread.lock);
    return shunti_fail(NULL, SHUNT_ERR_SYSTEM, "progress thread: %s",
                       strerror(error));
}

void shunti_progress_thread_start(struct shunt_comm *comm)
{
    if (!comm->thread.made)
        return;
    comm->thread.exists = true;
    comm->parked.home = NULL;
    pthread_mutex_unlock(&comm->thread.lock);
}

void shunti_progress_thread_stop(struct shunt_comm *comm)
{
    if (!comm->thread.made)
        return;
    if (comm->thread.exists) {
        shunti_comm_enter(comm);
        comm->thread.stop = true;
        shunti_comm_leave(comm);
        shunti_wake_self(comm);
    } else {
        comm->thread.stop = true;
        pthread_mutex_unlock(&comm->thread.lock);
    }
    pthread_join(comm->thread.id, NULL);
    comm->thread.made = comm->thread.exists = false;
    pthread_cond_destroy(&comm->thread.awake);
    pthread_cond_destroy(&comm->thread.idle);
    pthread_mutex_destroy(&comm->thread.lock);
}
