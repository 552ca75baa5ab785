// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators aside; see aside.h.
 *
 * They lie on shelves, each with a lock, found by the thread's mark: the
 * address of a variable of its own. When a thread has ended, another one may get
 * its mark, and with it what it left; that does no harm, as anybody may hold
 * what is aside. A communicator stays on its shelf when it is taken, so that to
 * put it there again costs one store.
 */
#include "aside.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "comm.h"
#include "wait.h"
#include "whole.h"

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

/* On all shelves: where there is none, nobody takes a lock. */
static atomic_uint shelved;

static _Thread_local char mark;

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
    comm->aside.owner = NULL;
    pthread_mutex_unlock(&shelf->lock);
    atomic_fetch_sub_explicit(&shelved, 1, memory_order_relaxed);
}

static void shelve(struct shunt_comm *comm)
{
    struct shelf *shelf = shelf_of(&mark);

    atomic_fetch_add_explicit(&shelved, 1, memory_order_relaxed);
    pthread_mutex_lock(&shelf->lock);
    comm->aside.owner = &mark;
    comm->aside.next = shelf->first;
    shelf->first = comm;
    pthread_mutex_unlock(&shelf->lock);
}

static bool try_hold(struct shunt_comm *comm)
{
    int none = 0;

    return atomic_compare_exchange_strong(&comm->aside.held, &none, 1);
}

SHUNTI_APART void shunti_aside_put(struct shunt_comm *comm)
{
    if (comm->aside.owner != &mark) {
        if (comm->aside.owner)
            unshelve(comm);
        shelve(comm);
    }
    comm->aside.put = true;
    /* Pairs with try_hold(): who holds it sees what we did. */
    atomic_store_explicit(&comm->aside.held, 0, memory_order_release);
}

/* Its holder lets go soon: it looks at `wanted`, and wakes for our token. */
static void await_release(struct shunt_comm *comm)
{
    pthread_mutex_lock(&release_lock);
    atomic_fetch_add(&comm->aside.wanted, 1);
    while (!try_hold(comm)) {
        shunti_wake_self(comm);
        pthread_cond_wait(&released, &release_lock);
    }
    atomic_fetch_sub(&comm->aside.wanted, 1);
    pthread_mutex_unlock(&release_lock);
}

SHUNTI_APART void shunti_aside_take(struct shunt_comm *comm)
{
    if (!try_hold(comm))
        await_release(comm);
    comm->aside.put = false;
}

void shunti_aside_forget(struct shunt_comm *comm)
{
    if (comm->aside.put)
        shunti_aside_take(comm);
    if (comm->aside.owner)
        unshelve(comm);
}

static bool needs_steps(const struct shunt_comm *comm)
{
    return !comm->failure &&
           (comm->active || comm->deferred || comm->aside.unsent);
}

static void let_go(struct shunt_comm *comm)
{
    /* Both in the one order of all threads, as in await_release(): either it
     * finds this free, or we see that it is wanted. */
    atomic_store(&comm->aside.held, 0);
    if (!atomic_load(&comm->aside.wanted))
        return;
    pthread_mutex_lock(&release_lock);
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&release_lock);
}

SHUNTI_APART struct shunt_comm *shunti_aside_hold(void)
{
    struct shunt_comm *held = NULL, *comm;
    struct shelf *shelf = shelf_of(&mark);

    if (!atomic_load_explicit(&shelved, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&shelf->lock);
    for (comm = shelf->first; comm; comm = comm->aside.next) {
        if (comm->aside.owner != &mark || atomic_load(&comm->aside.wanted) ||
            !try_hold(comm))
            continue;
        if (needs_steps(comm)) {
            comm->aside.next_held = held;
            held = comm;
        } else {
            let_go(comm);
        }
    }
    pthread_mutex_unlock(&shelf->lock);
    return held;
}

void shunti_aside_release(struct shunt_comm *held)
{
    while (held) {
        struct shunt_comm *comm = held;

        held = comm->aside.next_held; /* not ours any more after this */
        let_go(comm);
    }
}
