// SPDX-License-Identifier: Apache-2.0
/*
 * Parked communicators: what a thread does for its other communicators while it
 * waits on one.
 *
 * A thread owns the communicators that it made, or on which it made the latest
 * call. Only one thread at a time may touch a communicator. Between two calls
 * this may become another thread: its first call takes the communicator over. A
 * call by the owner only compares its address with the owner's.
 *
 * A communicator is parked if it has operations under way while its thread is
 * outside of it: the thread computes, or is in a call on another communicator.
 * A call that ends with operations under way parks its communicator. From then
 * on a thread must *hold* the communicator to touch it. The holder is either
 * the owner, while it waits elsewhere, or the next call, which takes the
 * communicator back. If the owner sleeps as the holder, that call wakes it.
 *
 * A thread that waits on one communicator also steps those that it has parked.
 * Their peers may need that before they can make the call that this thread
 * waits in.
 *
 * A communicator without operations, or with trailing ones only, is not parked.
 * Nor is one with a progress thread, which steps it. If the caller stays away,
 * the helper thread (helper.h) may hold a parked communicator; an owner that
 * waits elsewhere recalls it.
 *
 * Visits: a waiting thread also looks now and then at all communicators that it
 * owns, to answer liveness probes (probe.h). Probes need an answer even where
 * no operation is under way. A probe does not wake the thread, so the thread
 * sleeps only until its next visit.
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
    /* The owner's thread, if its calls need no enter() (turns.c). NULL: the
     * communicator is parked, or has a progress thread, or there is a
     * timeline. */
    const void *home;
    /* the communicator is parked; written only by a thread in a call on it */
    atomic_bool put;
    /* puts are under way that need further steps of this rank:
     * shunti_note_unsent() */
    bool unsent;
    /* SHUNTI_HELD: held by its owner in a wait elsewhere, by the helper, or by
     * a call. Each call that waits for the holder to release the communicator
     * adds SHUNTI_WANTED. This is one word, because the communicator may be
     * destroyed as soon as it has been released. */
    _Atomic unsigned hold;
    bool ever; /* the communicator has been parked at least once */
    /* the owner's thread; NULL: the communicator is being made, or is
     * destroyed */
    const void *owner;
    uint64_t number; /* number of that thread; no number is used twice */
    /* in a timeline: the caller's track before its call; turns.c */
    enum shunti_track track;
    struct shunt_comm *next;      /* next one in the owner's shelf (parked.c) */
    struct shunt_comm *next_held; /* next one in the holder's list (parked.c) */
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

/* Make this thread the owner of a communicator that was just made. */
void shunti_parked_own(struct shunt_comm *comm);

/* Take over a communicator that another thread owns, at the beginning of a
 * call. */
void shunti_parked_take_over(struct shunt_comm *comm);

/* Park the communicator, at the end of a call that leaves operations under
 * way. */
void shunti_park(struct shunt_comm *comm);

/* Take back a parked communicator, at the beginning of a call. */
void shunti_parked_take(struct shunt_comm *comm);

/* Take the communicator from its owner, before it is destroyed. */
void shunti_parked_forget(struct shunt_comm *comm);

/* Hold the communicator, if it is parked. False: it is not parked, or another
 * thread holds it. When the communicator is wanted, its holder must soon
 * release it: shunti_parked_yield(). */
bool shunti_parked_try_hold(struct shunt_comm *comm);
void shunti_parked_yield(struct shunt_comm *comm);
/* Does a call wait for the holder to release `comm`? */
bool shunti_parked_is_wanted(const struct shunt_comm *comm);

/* Hold the communicators of this thread that are parked and need steps. Returns
 * them, linked by parked.next_held; NULL: there are none. No other thread
 * touches them until the release. */
struct shunt_comm *shunti_parked_hold(void);
void shunti_parked_release(struct shunt_comm *held);

/* Call f() for each parked communicator of this thread, without holding it. */
void shunti_parked_each(void (*f)(struct shunt_comm *comm));

/*
 * If a visit is due, visit all communicators that this thread owns, except
 * those that have failed, and `but`: the one whose call the thread is in, or
 * NULL. visit() returns in how many ns it is to be called again. Returns when
 * the next visit is due; UINT64_MAX: there is nothing to visit.
 *
 * decision_ns  the decision time (probe.h) of the call that the thread is in;
 *              passed to visit()
 */
uint64_t shunti_parked_visit(struct shunt_comm *but, uint64_t now_ns,
                             uint64_t decision_ns,
                             uint64_t (*visit)(struct shunt_comm *comm,
                                               uint64_t decision_ns));

/* Visit at once all communicators that this thread owns, even if no visit is
 * due. For a thread that is in no call. */
void shunti_parked_visit_now(uint64_t (*visit)(struct shunt_comm *comm,
                                               uint64_t decision_ns));

#endif
