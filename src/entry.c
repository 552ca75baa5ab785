// SPDX-License-Identifier: Apache-2.0
/*
 * Whose turn it is on a communicator; see entry.h.
 *
 * The progress thread advances operations while the caller computes. It and the
 * caller take turns by a lock. While a caller is inside the library the thread
 * waits on a condition; with no operation under way, too.
 *
 * Only one of them sleeps on the transports' descriptors. These are
 * edge-triggered, and one flag tells peers whether to wake us: two sleepers
 * would take each other's wake-ups. So a caller who is about to sleep first
 * wakes the thread, if that sleeps there, and waits until it is out; and a
 * caller who returns while the thread still sleeps there wakes it, for he may
 * have taken its wake-up.
 *
 * A communicator without a thread is the caller's alone. What calls leave
 * under way there is put aside (aside.h).
 */
#include "src/entry.h"

#include <poll.h>
#include <pthread.h>

#include "src/aside.h"
#include "src/comm.h"
#include "src/contexts.h"
#include "src/inline.h"

SHUNTI_NOINLINE static void enter(struct shunt_comm *comm)
{
    if (!comm->thread.exists) {
        if (comm->aside.owner != shunti_this_thread())
            shunti_aside_take_over(comm);
        if (comm->aside.put)
            shunti_aside_take(comm);
        comm->aside.home = comm->aside.owner;
        return;
    }
    atomic_fetch_add_explicit(&comm->thread.callers, 1, memory_order_acq_rel);
    if (pthread_mutex_trylock(&comm->thread.lock)) {
        shunti_wake_self(comm);
        pthread_mutex_lock(&comm->thread.lock);
    }
    if (comm->aside.owner != shunti_this_thread())
        shunti_aside_take_over(comm);
}

void shunti_comm_enter(struct shunt_comm *comm)
{
    if (comm->aside.home != shunti_this_thread())
        enter(comm);
}

void shunti_comm_leave(struct shunt_comm *comm)
{
    if (!comm->thread.exists) {
        if (comm->operations.active || comm->aside.unsent)
            shunti_aside_put(comm);
        return;
    }
    atomic_fetch_sub_explicit(&comm->thread.callers, 1, memory_order_acq_rel);
    if (comm->thread.asleep && (comm->operations.active || comm->aside.unsent))
        shunti_wake_self(comm);
    pthread_cond_signal(&comm->thread.idle);
    pthread_mutex_unlock(&comm->thread.lock);
}

static bool is_the_thread(const struct shunt_comm *comm)
{
    return pthread_equal(pthread_self(), comm->thread.id);
}

bool shunti_progress_alone(struct shunt_comm *comm)
{
    bool waited = false;

    if (!comm->thread.exists || is_the_thread(comm))
        return true;
    while (comm->thread.asleep) {
        shunti_wake_self(comm);
        pthread_cond_wait(&comm->thread.awake, &comm->thread.lock);
        waited = true;
    }
    return !waited;
}

int shunti_progress_poll(struct shunt_comm *comm, struct pollfd *fds,
                         unsigned long n, const struct timespec *timeout)
{
    int ready;

    if (!comm->thread.exists)
        return ppoll(fds, n, timeout, NULL);
    comm->thread.asleep = is_the_thread(comm);
    pthread_mutex_unlock(&comm->thread.lock);
    ready = ppoll(fds, n, timeout, NULL);
    pthread_mutex_lock(&comm->thread.lock);
    if (comm->thread.asleep && is_the_thread(comm)) {
        comm->thread.asleep = false;
        pthread_cond_signal(&comm->thread.awake);
    }
    return ready;
}
