// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting: what a rank does while it has nothing to do.
 *
 * The rank polls for a moment, because an answer is often only a cache miss
 * away. Then it yields its CPU: with more ranks than CPUs the awaited peer may
 * need the CPU, and more polling would cost a scheduler tick. Then it sleeps in
 * one poll() on the descriptors of all transports until a peer wakes it.
 * Between sleeps it checks for lost peers, aborts and timeouts.
 *
 * If the user has configured an idle(), it is called before each yield and
 * sleep, and whenever the clock is read. No descriptor becomes ready when
 * idle() has something to do, so sleeps are short then.
 */
#ifndef SHUNTI_WAIT_H
#define SHUNTI_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct pollfd;
struct shunt_comm;
struct shunt_request;

/* Part of a communicator: settings of its waits. init.c writes it. */
struct shunti_waiting {
    /* how long a wait polls before it yields and sleeps */
    unsigned spin_ns;
    int wake_fd;            /* eventfd: ends a sleep, from any thread */
    int (*idle)(void *arg); /* the user's function; NULL: none */
    void *idle_arg;
};

/* One wait. Zeroed at the beginning, except `idle`. */
struct shunti_waiter {
    uint64_t began_ns; /* 0: the clock has not been read yet */
    unsigned rounds;
    unsigned naps; /* number of naps since idle() did something */
    /* rounds without a nap since idle() did something */
    unsigned awake;
    /* until this time the wait does not nap, because idle() may have more to
     * do */
    uint64_t idle_until_ns;
    bool idle; /* this is a caller's own wait: call the configured idle() */
};

/* Poll, yield or sleep once, because nothing could be done just now. Called in
 * a loop until the wait is over. May fail the communicator. */
void shunti_waiter_pause(struct shunt_comm *comm, struct shunti_waiter *waiter);

/* Add the time of this wait to the statistics. */
void shunti_waiter_end(struct shunt_comm *comm, struct shunti_waiter *waiter);

/* Progress the transports, and check for lost peers and timeouts. For callers
 * that test and never wait. */
void shunti_look_around(struct shunt_comm *comm);

/* Do the same on `comm`, from a call that sets up something else. The loss of a
 * rank of `comm` must end that call. */
void shunti_look_in(struct shunt_comm *comm);

/* Step this thread's other communicators that have operations under way. */
void shunti_step_others(void);

/* poll() for at most `ms` >= 0. Meanwhile steps this thread's communicators
 * with operations under way, and answers liveness probes on all of them. For
 * waits outside of a call on a communicator, as in init. */
int shunti_poll(struct pollfd *fds, unsigned long n, int ms);

/* Sleep until a transport of `comm` has an event, at most `ms`, and let its
 * transports progress. Meanwhile serve this thread's other communicators as
 * shunti_poll() does. Replies to probes have a decision time, as if the timeout
 * of the call began now. For init and other calls whose end other ranks may
 * await. */
void shunti_transports_nap(struct shunt_comm *comm, int ms);

/* Do the same, but without a decision time in the replies. For shrink, which
 * waits for other ranks: these may wait for this rank in another communicator,
 * and must give up there. */
void shunti_transports_nap_for_peers(struct shunt_comm *comm, int ms);

/* For loops that read the clock often. *looked_ns is the time of the last
 * reading, and is set to now. Returns for how many ns this process has probably
 * been stopped in between. Callers do not count this time towards the timeouts
 * of peers. */
uint64_t shunti_stopped_ns(uint64_t *looked_ns);

#endif
