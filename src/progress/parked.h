// SPDX-License-Identifier: Apache-2.0
/*
 * What a thread does for its other communicators while it waits on one.
 *
 * A thread owns the communicators that it made, or in which it made the latest
 * call. Only one thread at a time may touch a communicator. The caller may
 * change that thread between two calls: the first call by another thread takes
 * the communicator over. Calls by the owner only compare the address of the
 * owner.
 *
 * A communicator is parked if it has operations under way while its thread is
 * outside of it: the thread computes, or is in a call on another communicator.
 * A thread that waits on one communicator also steps those that it has parked,
 * since their peers may need that before they reach the call that this thread
 * waits in. A call that ends with operations under way puts its communicator
 * parked. From then on a thread must *hold* the communicator to touch it: either
 * the owner, while it waits elsewhere, or the next call, which takes it back.
 * If a holder sleeps, that call wakes it. Communicators without operations, or
 * with none but trailing ones, are never parked. Those with a progress thread are
 * not parked either, since that thread steps them. If the caller stays away,
 * the helper thread (helper.h) may hold what is parked; an owner that waits
 * elsewhere recalls it.
 *
 * Visits: a waiting thread also looks now and then at everything that it owns,
 * for liveness probes (probe.h), which need an answer even where no operation
 * is under way. Nothing wakes it for that; it sleeps no longer than until the
 * next visit.
 */
#ifndef SHUNTI_PARKED_H
#define SHUNTI_PARKED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/trace/track.h"

struct shunt_comm;

/* The longest time between two visits. */
#define SHUNTI_VISIT_NS 250000000u

enum { SHUNTI_HELD = 1, SHUNTI_WANTED = 2 };

/*
 * Part of a communicator: its owner, and whether it is parked. parked.c writes
 * it, under the rules above. In addition, turns.c and progress.c write `home`,
 * contexts.c and call.c write `unsent`, turns.c writes `track`, and helper.c
 * `next_held`.
 */
struct shunti_parked {
    /* the owner, if its calls may begin without taking anything; NULL: the
     * communicator is parked, or has a progress thread, or there is a
     * timeline */
    const void *home;
    /* it is parked; written only by the thread whose call it is */
    atomic_bool put;
    /* puts are under way that need our progress: shunti_note_unsent() */
    bool unsent;
    /* SHUNTI_HELD, by its owner in a wait elsewhere, or by a call; and SHUNTI_WANTED
     * for each call that waits for the holder to release it. One word, since the
     * communicator may be gone when it has been released. */
    _Atomic unsigned hold;
    bool ever;         /* it has been parked at least once */
    const void *owner; /* the thread; NULL: being made, or destroyed */
    uint64_t number;   /* of that thread; no number is used twice */
    /* of the caller before its call, in a timeline: turns.c */
    enum shunti_track track;
    struct shunt_comm *next;      /* in the owner's shelf (parked.c) */
    struct shunt_comm *next_held; /* in the holder's list (parked.c) */
};

/* An address that no other running thread has. */
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
void shunti_parked_own(struct shunt_comm *comm);

/* At the beginning of a call on a communicator that another thread owns. */
void shunti_parked_take_over(struct shunt_comm *comm);

/* At the end of a call that leaves operations under way. */
void shunti_park(struct shunt_comm *comm);

/* At the beginning of a call on a communicator that is parked. */
void shunti_parked_take(struct shunt_comm *comm);

/* Before the communicator is destroyed. */
void shunti_parked_forget(struct shunt_comm *comm);

/* Hold one that is parked, or may be. False: it is not, or another holds it. A
 * holder lets go of it soon after it is wanted. */
bool shunti_parked_try_hold(struct shunt_comm *comm);
void shunti_parked_yield(struct shunt_comm *comm);
/* Does a call wait for its holder to release it? */
bool shunti_parked_is_wanted(const struct shunt_comm *comm);

/* Hold those communicators of this thread that are parked and have something to
 * do, and return them, linked by parked.next_held; NULL: there are none. No
 * other thread touches them until the release. */
struct shunt_comm *shunti_parked_hold(void);
void shunti_parked_release(struct shunt_comm *held);

/* Call f() for each of those that are parked, which it does not hold: a communicator
 * without a progress thread. */
void shunti_parked_each(void (*f)(struct shunt_comm *comm));

/* If a visit is due, visit all communicators that this thread owns, except
 * those that have failed, and `but`: the one whose call the thread is in, or
 * NULL. visit() returns after how many ns it is to be called again. Returns
 * when the next visit is due; UINT64_MAX: there is nothing to visit.
 *
 * verdict  (probe.h) of the call that the thread is in, for visit().
 */
uint64_t shunti_parked_visit(struct shunt_comm *but, uint64_t now_ns,
                             uint64_t verdict,
                             uint64_t (*visit)(struct shunt_comm *comm,
                                               uint64_t verdict));

/* The same, whether it is due or not; in no call. */
void shunti_parked_visit_now(uint64_t (*visit)(struct shunt_comm *comm,
                                               uint64_t verdict));

#endif
