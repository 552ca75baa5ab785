// SPDX-License-Identifier: Apache-2.0
/*
 * What a thread does for its other communicators while it waits on one.
 *
 * A thread owns the communicators in which it was the last to make a call, or
 * that it made. Only one thread may touch a communicator at a time, and which
 * one the caller may change between two calls: the first call of another thread
 * takes it over. Other calls only compare the owner.
 *
 * Aside are communicators with operations under way while their thread is
 * outside of them, computing or in a call on another communicator. A thread
 * that waits on one communicator steps those that it has aside: their peers may
 * need that before they come to the call that the thread waits in. A call
 * that ends with operations under way puts its communicator aside: from then on
 * whoever *holds* it may touch it, its owner while waiting elsewhere, or the
 * next call, which takes it back. A holder that sleeps is woken for that.
 * Communicators without operations are never aside. Those with a progress
 * thread are not put aside either, for the thread steps them.
 *
 * Visits: a thread that waits also looks now and then at all that it owns, for
 * liveness probes (probe.h), which need an answer where nothing is under way.
 * Nothing wakes it for that; it sleeps no longer than until the next visit.
 */
#ifndef SHUNTI_ASIDE_H
#define SHUNTI_ASIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shunt_comm;

/* The longest time between two visits. */
#define SHUNTI_VISIT_NS 250000000u

/*
 * Of a communicator: its owner, and whether it is aside. aside.c writes it,
 * under the rules above; besides, entry.c and progress.c write `home`, and
 * contexts.c and call.c `unsent`.
 */
struct shunti_aside {
    const void *home;        /* the owner, if its calls may begin without
                                taking anything; NULL: the communicator is
                                aside, or has a progress thread */
    bool put;                /* it is aside; the caller's turn to write */
    bool unsent;             /* puts are under way that need our progress:
                                shunti_note_unsent() */
    _Atomic int held;        /* by a holder, or a call */
    _Atomic int wanted;      /* calls that wait for the holder's release */
    bool ever;               /* it was aside before */
    const void *owner;       /* the thread; NULL: being made, or destroyed */
    uint64_t number;         /* of that thread; no number is used twice */
    struct shunt_comm *next; /* on the owner's shelf */
    struct shunt_comm *next_held; /* in the holder's list */
};

/* Tells this thread from all others that live. */
static inline const void *shunti_this_thread(void)
{
#if defined(__x86_64__) && defined(__LP64__)
    const void *self;

    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
#elif defined(__aarch64__)
    return __builtin_thread_pointer();
#else
    return (const void *)pthread_self();
#endif
}

/* This thread owns a communicator that was just made. */
void shunti_aside_own(struct shunt_comm *comm);

/* At the beginning of a call on one that another thread owns. */
void shunti_aside_take_over(struct shunt_comm *comm);

/* At the end of a call that leaves operations behind. */
void shunti_aside_put(struct shunt_comm *comm);

/* At the beginning of a call on a communicator that is aside. */
void shunti_aside_take(struct shunt_comm *comm);

/* Before it is destroyed. */
void shunti_aside_forget(struct shunt_comm *comm);

/* This thread's communicators that are aside and have something to do, chained
 * by aside.next_held; NULL: none. They are ours until the release. */
struct shunt_comm *shunti_aside_hold(void);
void shunti_aside_release(struct shunt_comm *held);

/* If it is time, visit all communicators that this thread owns, except those
 * that have failed and `but` (which it is in a call on, or NULL); visit() says
 * in how many ns to come again. Returns when the next visit is due; UINT64_MAX:
 * there is nothing to visit. */
uint64_t shunti_aside_visit(struct shunt_comm *but, uint64_t now_ns,
                            uint64_t (*visit)(struct shunt_comm *comm));

#endif
