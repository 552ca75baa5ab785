// SPDX-License-Identifier: Apache-2.0
/*
 * A caller and the progress thread take turns; see turns.h.
 *
 * The progress thread steps operations while the caller computes. A lock
 * decides which of the two uses the communicator. The thread waits on a
 * condition while a caller is inside the library. It also waits if nothing is
 * under way and nothing is left to send.
 *
 * Only one of the two may sleep on the transports' descriptors. The descriptors
 * are edge-triggered, and one flag shows peers whether this rank must be woken,
 * so two sleepers would consume each other's wake-ups. A caller that is about
 * to sleep first wakes the thread, if the thread sleeps on the descriptors, and
 * waits until it no longer does. A caller that returns while the thread still
 * sleeps also wakes the thread, because the caller may have consumed the
 * thread's wake-up.
 *
 * A communicator without a progress thread is used only by the caller. It is
 * parked (parked.h) if a call leaves operations under way. Then the helper
 * (helper.h) may step it until the next call.
 */
#include "src/progress/turns.h"

#include <poll.h>
#include <pthread.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/notice.h"
#include "src/progress/helper.h"
#include "src/progress/parked.h"
#include "src/progress/paused.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"

/* Make the caller the only one that touches the communicator. */
static void get(struct shunt_comm *comm)
{
    if (!comm->thread.exists) {
        if (comm->parked.owner != shunti_this_thread())
            shunti_parked_take_over(comm);
        if (comm->parked.put) {
            shunti_parked_take(comm);
            if (comm->help.attached)
                shunti_help_back(comm);
        }
        return;
    }
    atomic_fetch_add_explicit(&comm->thread.callers, 1, memory_order_acq_rel);
    if (pthread_mutex_trylock(&comm->thread.lock)) {
        shunti_wake_self(comm);
        pthread_mutex_lock(&comm->thread.lock);
    }
    if (comm->parked.owner != shunti_this_thread())
        shunti_parked_take_over(comm);
}

/* While a timeline is recorded, all calls enter here, because parked.home is
 * not set. */
SHUNTI_NOINLINE static void enter_tracked(struct shunt_comm *comm)
{
    enum shunti_track before;

    shunti_track_begin(comm->rank);
    before = shunti_track_switch(SHUNTI_TRACK_WAITS);
    get(comm);
    comm->parked.track = before;
    shunti_track_switch(SHUNTI_TRACK_LIBRARY);
}

SHUNTI_NOINLINE static void enter(struct shunt_comm *comm)
{
    if (shunti_tracked()) {
        enter_tracked(comm);
        return;
    }
    get(comm);
    if (!comm->thread.exists)
        comm->parked.home = comm->parked.owner;
}

void shunti_comm_enter(struct shunt_comm *comm)
{
    if (comm->parked.home != shunti_this_thread())
        enter(comm);
}

/* Park `comm`. From then on the helper may be using it. */
SHUNTI_NOINLINE static void park(struct shunt_comm *comm)
{
    const bool ask =
        (comm->help.started && shunti_wants_steps(comm)) ||
        atomic_load_explicit(&shunti_notices, memory_order_relaxed);

    shunti_park(comm);
    if (ask)
        shunti_help_ask(comm);
}

/* Must `comm` be stepped while its caller is elsewhere? Trailing operations do
 * not count, because no peer needs them: settled() in request.h. */
static bool has_work(const struct shunt_comm *comm)
{
    return comm->operations.untrailed || comm->parked.unsent;
}

/* Leave a communicator whose parked.home is NULL. */
SHUNTI_NOINLINE static void leave(struct shunt_comm *comm)
{
    const enum shunti_track before = comm->parked.track;

    comm->parked.track = SHUNTI_TRACK_NONE;
    if (!comm->thread.exists) {
        if (has_work(comm))
            park(comm);
        shunti_track_switch(before);
        return;
    }
    atomic_fetch_sub_explicit(&comm->thread.callers, 1, memory_order_acq_rel);
    if (comm->thread.asleep && (comm->operations.active || comm->parked.unsent))
        shunti_wake_self(comm);
    pthread_cond_signal(&comm->thread.idle);
    pthread_mutex_unlock(&comm->thread.lock);
    shunti_track_switch(before);
}

void shunti_comm_leave(struct shunt_comm *comm)
{
    if (!comm->parked.home)
        leave(comm);
    else if (has_work(comm))
        park(comm);
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
