// SPDX-License-Identifier: Apache-2.0
/*
 * Parked communicators; see parked.h.
 *
 * All communicators are in shelves, lists with a lock each. The shelf is found
 * by the address of the thread that owns the communicator. A new thread may get
 * the address of a thread that has ended. Then it counts as the owner of that
 * thread's communicators, perhaps those of another rank. It may hold the parked
 * ones, as any thread may. For visits the number of the thread must agree, too;
 * no number is used twice.
 *
 * A call by a thread that is not the owner begins by taking the communicator
 * over, under the lock of the owner's shelf. So an owner that has this lock may
 * touch all its communicators: no other thread is in a call on them, and the
 * owner's own call, if there is one, is in a wait. The owner may also hold
 * parked communicators for longer, without the lock. Then a call of another
 * thread waits for the release.
 */
#include "src/progress/parked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/progress/wait.h"
#include "src/wire/contexts.h"

struct shelf {
    pthread_mutex_t lock;
    struct shunt_comm *first;
};

#define SHELF                            \
    {                                    \
        PTHREAD_MUTEX_INITIALIZER, NULL, \
    }

static struct shelf shelves[] = {
    SHELF, SHELF, SHELF, SHELF, SHELF, SHELF, SHELF, SHELF,
    SHELF, SHELF, SHELF, SHELF, SHELF, SHELF, SHELF, SHELF,
};

_Static_assert(sizeof(shelves) / sizeof(*shelves) == 16, "see shelf_of()");

/* Number of communicators that have been parked. While it is 0, short waits
 * take no lock. */
static atomic_uint ever_put;

static atomic_uint_fast64_t threads; /* how many threads have a number */

/* This thread's visits. */
static _Thread_local struct {
    uint64_t number;  /* number of this thread; 0: it has none yet */
    uint64_t next_ns; /* when the next visit is due */
    /* If not NULL, the last visit found no other communicator than this one.
     * Then no visit is due. */
    const struct shunt_comm *alone;
} visits;

/* For calls that wait until a holder releases its communicator. */
static pthread_mutex_t release_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static struct shelf *shelf_of(const void *owner)
{
    uint64_t mixed = (uint64_t)(uintptr_t)owner * 0x9e3779b97f4a7c15;

    return &shelves[mixed >> 60];
}

static void unshelve(struct shunt_comm *comm)
{
    struct shelf *shelf = shelf_of(comm->parked.owner);
    struct shunt_comm **at;

    pthread_mutex_lock(&shelf->lock);
    for (at = &shelf->first; *at != comm; at = &(*at)->parked.next)
        ;
    *at = comm->parked.next;
    comm->parked.owner = comm->parked.home = NULL;
    pthread_mutex_unlock(&shelf->lock);
}

static uint64_t this_number(void)
{
    if (!visits.number)
        visits.number = atomic_fetch_add(&threads, 1) + 1;
    return visits.number;
}

/* Runs in a child of fork(). The operations under way are the parent's. If the
 * child stepped them, it would consume the parent's messages, and copy payload
 * to the child's memory. So in the child nobody owns a communicator, and none
 * is parked. */
static void forked(void)
{
    static const struct shelf empty = SHELF;
    static const pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;

    for (size_t i = 0; i < sizeof(shelves) / sizeof(*shelves); i++) {
        for (struct shunt_comm *c = shelves[i].first; c; c = c->parked.next) {
            c->parked.owner = c->parked.home = NULL;
            c->parked.ever = false;
            atomic_store(&c->parked.put, false);
        }
        shelves[i] = empty;
    }
    release_lock = free_lock;
    released = nobody;
    atomic_store(&ever_put, 0);
    visits.next_ns = 0;
    visits.alone = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

void shunti_parked_own(struct shunt_comm *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const void *self = shunti_this_thread();
    struct shelf *shelf = shelf_of(self);

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&shelf->lock);
    comm->parked.owner = self;
    comm->parked.number = this_number();
    comm->parked.next = shelf->first;
    shelf->first = comm;
    pthread_mutex_unlock(&shelf->lock);
    visits.next_ns = 0;
}

SHUNTI_NOINLINE void shunti_parked_take_over(struct shunt_comm *comm)
{
    if (!comm->parked.owner)
        return; /* the communicator has been destroyed */
    unshelve(comm);
    shunti_parked_own(comm);
}

static bool is_put(const struct shunt_comm *comm)
{
    return atomic_load_explicit(&comm->parked.put, memory_order_relaxed);
}

bool shunti_parked_try_hold(struct shunt_comm *comm)
{
    return !(atomic_fetch_or(&comm->parked.hold, SHUNTI_HELD) & SHUNTI_HELD);
}

bool shunti_parked_is_wanted(const struct shunt_comm *comm)
{
    return atomic_load(&comm->parked.hold) >= SHUNTI_WANTED;
}

SHUNTI_NOINLINE void shunti_park(struct shunt_comm *comm)
{
    if (!comm->parked.ever) {
        comm->parked.ever = true;
        atomic_fetch_add_explicit(&ever_put, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&comm->parked.put, true, memory_order_relaxed);
    comm->parked.home = NULL;
    /* Pairs with shunti_parked_try_hold(): the next holder sees what this
     * thread wrote. */
    atomic_fetch_and_explicit(&comm->parked.hold, ~(unsigned)SHUNTI_HELD,
                              memory_order_release);
}

/* Wait until the holder releases `comm`. The holder does so soon: it checks
 * whether `comm` is wanted, and shunti_wake_self() ends its sleep. */
static void await_release(struct shunt_comm *comm)
{
    pthread_mutex_lock(&release_lock);
    atomic_fetch_add(&comm->parked.hold, SHUNTI_WANTED);
    while (!shunti_parked_try_hold(comm)) {
        shunti_wake_self(comm);
        pthread_cond_wait(&released, &release_lock);
    }
    atomic_fetch_sub(&comm->parked.hold, SHUNTI_WANTED);
    pthread_mutex_unlock(&release_lock);
}

SHUNTI_NOINLINE void shunti_parked_take(struct shunt_comm *comm)
{
    if (!shunti_parked_try_hold(comm))
        await_release(comm);
    atomic_store_explicit(&comm->parked.put, false, memory_order_relaxed);
}

void shunti_parked_forget(struct shunt_comm *comm)
{
    if (comm->parked.owner)
        unshelve(comm);
    if (is_put(comm))
        shunti_parked_take(comm);
    if (comm->parked.ever)
        atomic_fetch_sub_explicit(&ever_put, 1, memory_order_relaxed);
    comm->parked.ever = false;
}

/* Does `comm` need steps? If it has failed, it needs them until its messages to
 * peers are sent. */
static bool needs_steps(const struct shunt_comm *comm)
{
    return comm->deferred.first || comm->parked.unsent ||
           (comm->operations.active && !comm->failure.status);
}

void shunti_parked_yield(struct shunt_comm *comm)
{
    /* From here on another thread may hold the communicator, and may destroy
     * it. */
    if (atomic_fetch_and(&comm->parked.hold, ~(unsigned)SHUNTI_HELD) <
        SHUNTI_WANTED)
        return;
    pthread_mutex_lock(&release_lock);
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&release_lock);
}

/* Ask the helper to release `comm`, in case the helper is the holder. Any other
 * holder is in a call, and releases `comm` soon anyway. */
static void recall(struct shunt_comm *comm)
{
    if (comm->help.attached && !atomic_exchange(&comm->help.recalled, true))
        shunti_wake_self(comm);
}

SHUNTI_NOINLINE struct shunt_comm *shunti_parked_hold(void)
{
    const void *self = shunti_this_thread();
    struct shunt_comm *held = NULL, *comm;
    struct shelf *shelf = shelf_of(self);

    if (!atomic_load_explicit(&ever_put, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&shelf->lock);
    for (comm = shelf->first; comm; comm = comm->parked.next) {
        if (comm->parked.owner != self || !is_put(comm) ||
            shunti_parked_is_wanted(comm))
            continue;
        if (comm->help.attached)
            atomic_fetch_add(&comm->help.stamp, 1); /* its caller is not away */
        if (!shunti_parked_try_hold(comm)) {
            recall(comm);
            continue;
        }
        if (needs_steps(comm)) {
            comm->parked.next_held = held;
            held = comm;
        } else {
            shunti_parked_yield(comm);
        }
    }
    pthread_mutex_unlock(&shelf->lock);
    return held;
}

void shunti_parked_release(struct shunt_comm *held)
{
    while (held) {
        struct shunt_comm *comm = held;

        held = comm->parked
                   /* after the yield another thread may free `comm` */
                   .next_held;
        shunti_parked_yield(comm);
    }
}

void shunti_parked_each(void (*f)(struct shunt_comm *comm))
{
    const void *self = shunti_this_thread();
    struct shelf *shelf = shelf_of(self);

    pthread_mutex_lock(&shelf->lock);
    for (struct shunt_comm *c = shelf->first; c; c = c->parked.next)
        if (c->parked.owner == self && is_put(c))
            f(c);
    pthread_mutex_unlock(&shelf->lock);
}

/* Keep the progress thread, or the helper, from using `comm`. False: that
 * thread is using `comm`, or sleeps on its transports. Then that thread answers
 * probes. */
static bool lock_out_thread(struct shunt_comm *comm)
{
    if (!comm->thread.exists)
        return !is_put(comm) || shunti_parked_try_hold(comm);
    if (pthread_mutex_trylock(&comm->thread.lock))
        return false;
    if (!comm->thread.asleep)
        return true;
    pthread_mutex_unlock(&comm->thread.lock);
    return false;
}

static void let_in_thread(struct shunt_comm *comm)
{
    if (!comm->thread.exists) {
        if (is_put(comm))
            shunti_parked_yield(comm);
        return;
    }
    pthread_cond_signal(&comm->thread.idle);
    pthread_mutex_unlock(&comm->thread.lock);
}

uint64_t shunti_parked_visit(struct shunt_comm *but, uint64_t now_ns,
                             uint64_t decision_ns,
                             uint64_t (*visit)(struct shunt_comm *comm,
                                               uint64_t decision_ns))
{
    const void *self = shunti_this_thread();
    struct shelf *shelf = shelf_of(self);
    uint64_t pause = SHUNTI_VISIT_NS;
    bool alone = but != NULL;

    if (now_ns < visits.next_ns && (!visits.alone || visits.alone == but))
        return visits.alone ? UINT64_MAX : visits.next_ns;
    pthread_mutex_lock(&shelf->lock);
    /* This thread is in a call on `but`, and owns it by its address. The number
     * may still be that of an ended thread with the same address. */
    if (but && but->parked.owner == self)
        but->parked.number = this_number();
    for (struct shunt_comm *c = shelf->first; c; c = c->parked.next) {
        uint64_t wanted;

        if (c->parked.number != this_number() || c == but ||
            c->failure.status || c->nranks == 1)
            continue;
        alone = false;
        if (!lock_out_thread(c))
            continue;
        wanted = visit(c, decision_ns);
        let_in_thread(c);
        pause = wanted < pause ? wanted : pause;
    }
    pthread_mutex_unlock(&shelf->lock);
    visits.next_ns = now_ns + pause;
    visits.alone = alone ? but : NULL;
    return alone ? UINT64_MAX : visits.next_ns;
}

void shunti_parked_visit_now(uint64_t (*visit)(struct shunt_comm *comm,
                                               uint64_t decision_ns))
{
    visits.next_ns = 0;
    visits.alone = NULL;
    shunti_parked_visit(NULL, 0, 0, visit);
}
