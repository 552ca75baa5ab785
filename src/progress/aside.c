// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators aside; see aside.h.
 *
 * All communicators are in shelves, lists with a lock each. The shelf is found
 * by the address of the thread that owns the communicator. A thread that is
 * started after another one has ended may get the address of that one, and with
 * it the communicators it left, perhaps those of another rank. It may hold what
 * is aside there, as any thread may. For visits the number of the thread must
 * agree, too; no number is used twice.
 *
 * A call by a thread that is not the owner begins by taking the communicator
 * over, under the lock of the owner's shelf. So while the owner has this lock,
 * it may touch all that is in its shelf: no other thread is in a call there,
 * and a call that the owner itself is in is waiting. The owner may also hold
 * what is aside for longer, without the lock; then a call waits for the
 * release.
 */
#include "src/progress/aside.h"

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

/* Number of communicators that have been aside. While it is 0, short waits take
 * no lock. */
static atomic_uint ever_put;

static atomic_uint_fast64_t threads; /* how many threads have a number */

/* This thread's visits. */
static _Thread_local struct {
    uint64_t number; /* the thread's; 0: none yet */
    uint64_t next_ns;
    /* the last visit found no other communicator than this one: no visit is
     * due */
    const struct shunt_comm *alone;
} visits;

/* Calls that wait for a holder's release. */
static pthread_mutex_t release_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;

static struct shelf *shelf_of(const void *owner)
{
    uint64_t mixed = (uint64_t)(uintptr_t)owner * 0x9e3779b97f4a7c15;

    return &shelves[mixed >> 60];
}

static void unshelve(struct shunt_comm *comm)
{
    struct shelf *shelf = shelf_of(comm->aside.owner);
    struct shunt_comm **at;

    pthread_mutex_lock(&shelf->lock);
    for (at = &shelf->first; *at != comm; at = &(*at)->aside.next)
        ;
    *at = comm->aside.next;
    comm->aside.owner = comm->aside.home = NULL;
    pthread_mutex_unlock(&shelf->lock);
}

static uint64_t this_number(void)
{
    if (!visits.number)
        visits.number = atomic_fetch_add(&threads, 1) + 1;
    return visits.number;
}

/* In a child of fork(). What is under way is the parent's: a step of the child's
 * would take what comes for it, into the child's copy of its memory. So nobody
 * owns anything, and nothing is aside. */
static void forked(void)
{
    static const struct shelf empty = SHELF;
    static const pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;

    for (size_t i = 0; i < sizeof(shelves) / sizeof(*shelves); i++) {
        for (struct shunt_comm *c = shelves[i].first; c; c = c->aside.next) {
            c->aside.owner = c->aside.home = NULL;
            c->aside.ever = false;
            atomic_store(&c->aside.put, false);
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

void shunti_aside_own(struct shunt_comm *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const void *self = shunti_this_thread();
    struct shelf *shelf = shelf_of(self);

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&shelf->lock);
    comm->aside.owner = self;
    comm->aside.number = this_number();
    comm->aside.next = shelf->first;
    shelf->first = comm;
    pthread_mutex_unlock(&shelf->lock);
    visits.next_ns = 0;
}

SHUNTI_NOINLINE void shunti_aside_take_over(struct shunt_comm *comm)
{
    if (!comm->aside.owner)
        return; /* it has been destroyed */
    unshelve(comm);
    shunti_aside_own(comm);
}

static bool is_put(const struct shunt_comm *comm)
{
    return atomic_load_explicit(&comm->aside.put, memory_order_relaxed);
}

bool shunti_aside_try_hold(struct shunt_comm *comm)
{
    return !(atomic_fetch_or(&comm->aside.hold, SHUNTI_HELD) & SHUNTI_HELD);
}

bool shunti_aside_is_wanted(const struct shunt_comm *comm)
{
    return atomic_load(&comm->aside.hold) >= SHUNTI_WANTED;
}

SHUNTI_NOINLINE void shunti_aside_put(struct shunt_comm *comm)
{
    if (!comm->aside.ever) {
        comm->aside.ever = true;
        atomic_fetch_add_explicit(&ever_put, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&comm->aside.put, true, memory_order_relaxed);
    comm->aside.home = NULL;
    /* Pairs with shunti_aside_try_hold(): the next holder sees what we wrote. */
    atomic_fetch_and_explicit(&comm->aside.hold, ~(unsigned)SHUNTI_HELD,
                              memory_order_release);
}

/* The holder releases it soon: it looks whether it is wanted, and the token of
 * shunti_wake_self() ends its sleep. */
static void await_release(struct shunt_comm *comm)
{
    pthread_mutex_lock(&release_lock);
    atomic_fetch_add(&comm->aside.hold, SHUNTI_WANTED);
    while (!shunti_aside_try_hold(comm)) {
        shunti_wake_self(comm);
        pthread_cond_wait(&released, &release_lock);
    }
    atomic_fetch_sub(&comm->aside.hold, SHUNTI_WANTED);
    pthread_mutex_unlock(&release_lock);
}

SHUNTI_NOINLINE void shunti_aside_take(struct shunt_comm *comm)
{
    if (!shunti_aside_try_hold(comm))
        await_release(comm);
    atomic_store_explicit(&comm->aside.put, false, memory_order_relaxed);
}

void shunti_aside_forget(struct shunt_comm *comm)
{
    if (comm->aside.owner)
        unshelve(comm);
    if (is_put(comm))
        shunti_aside_take(comm);
    if (comm->aside.ever)
        atomic_fetch_sub_explicit(&ever_put, 1, memory_order_relaxed);
    comm->aside.ever = false;
}

/* A communicator that has failed needs steps until what it tells its peers is
 * sent. */
static bool needs_steps(const struct shunt_comm *comm)
{
    return comm->deferred.first || comm->aside.unsent ||
           (comm->operations.active && !comm->failure.status);
}

void shunti_aside_let_go(struct shunt_comm *comm)
{
    /* From here on another thread may have it, and may destroy it. */
    if (atomic_fetch_and(&comm->aside.hold, ~(unsigned)SHUNTI_HELD) <
        SHUNTI_WANTED)
        return;
    pthread_mutex_lock(&release_lock);
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&release_lock);
}

/* The helper holds it. Calls of other threads release it soon anyway. */
static void recall(struct shunt_comm *comm)
{
    if (comm->help.attached && !atomic_exchange(&comm->help.recalled, true))
        shunti_wake_self(comm);
}

SHUNTI_NOINLINE struct shunt_comm *shunti_aside_hold(void)
{
    const void *self = shunti_this_thread();
    struct shunt_comm *held = NULL, *comm;
    struct shelf *shelf = shelf_of(self);

    if (!atomic_load_explicit(&ever_put, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&shelf->lock);
    for (comm = shelf->first; comm; comm = comm->aside.next) {
        if (comm->aside.owner != self || !is_put(comm) ||
            shunti_aside_is_wanted(comm))
            continue;
        if (comm->help.attached)
            atomic_fetch_add(&comm->help.stamp, 1); /* not away */
        if (!shunti_aside_try_hold(comm)) {
            recall(comm);
            continue;
        }
        if (needs_steps(comm)) {
            comm->aside.next_held = held;
            held = comm;
        } else {
            shunti_aside_let_go(comm);
        }
    }
    pthread_mutex_unlock(&shelf->lock);
    return held;
}

void shunti_aside_release(struct shunt_comm *held)
{
    while (held) {
        struct shunt_comm *comm = held;

        held =
            comm->aside
                .next_held; /* after shunti_aside_let_go() it is not ours any more */
        shunti_aside_let_go(comm);
    }
}

void shunti_aside_each(void (*f)(struct shunt_comm *comm))
{
    const void *self = shunti_this_thread();
    struct shelf *shelf = shelf_of(self);

    pthread_mutex_lock(&shelf->lock);
    for (struct shunt_comm *c = shelf->first; c; c = c->aside.next)
        if (c->aside.owner == self && is_put(c))
            f(c);
    pthread_mutex_unlock(&shelf->lock);
}

/* Keep the progress thread, or the helper, out. If it is at work on the
 * communicator, or sleeps on it, this returns false: then that thread answers
 * probes itself. */
static bool lock_out_thread(struct shunt_comm *comm)
{
    if (!comm->thread.exists)
        return !is_put(comm) || shunti_aside_try_hold(comm);
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
            shunti_aside_let_go(comm);
        return;
    }
    pthread_cond_signal(&comm->thread.idle);
    pthread_mutex_unlock(&comm->thread.lock);
}

uint64_t
shunti_aside_visit(struct shunt_comm *but, uint64_t now_ns, uint64_t verdict,
                   uint64_t (*visit)(struct shunt_comm *comm, uint64_t verdict))
{
    const void *self = shunti_this_thread();
    struct shelf *shelf = shelf_of(self);
    uint64_t pause = SHUNTI_VISIT_NS;
    bool alone = but != NULL;

    if (now_ns < visits.next_ns && (!visits.alone || visits.alone == but))
        return visits.alone ? UINT64_MAX : visits.next_ns;
    pthread_mutex_lock(&shelf->lock);
    /* We are in a call on it. Its owner has our address, but perhaps the number
     * of a thread that has ended. */
    if (but && but->aside.owner == self)
        but->aside.number = this_number();
    for (struct shunt_comm *c = shelf->first; c; c = c->aside.next) {
        uint64_t wanted;

        if (c->aside.number != this_number() || c == but || c->failure.status ||
            c->nranks == 1)
            continue;
        alone = false;
        if (!lock_out_thread(c))
            continue;
        wanted = visit(c, verdict);
        let_in_thread(c);
        pause = wanted < pause ? wanted : pause;
    }
    pthread_mutex_unlock(&shelf->lock);
    visits.next_ns = now_ns + pause;
    visits.alone = alone ? but : NULL;
    return alone ? UINT64_MAX : visits.next_ns;
}

void shunti_aside_visit_now(uint64_t (*visit)(struct shunt_comm *comm,
                                              uint64_t verdict))
{
    visits.next_ns = 0;
    visits.alone = NULL;
    shunti_aside_visit(NULL, 0, 0, visit);
}
