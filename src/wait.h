// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting: how a rank with nothing to do spends its time.
 *
 * It polls for a moment, because an answer is often only a cache miss away;
 * then gives its CPU to whoever else is on it (with more ranks than CPUs that
 * is the peer it waits for: polling on would cost a scheduler tick); then
 * sleeps on one poll() of every transport's descriptor until a peer wakes it.
 * While it sleeps it notices lost peers, aborts and timeouts.
 *
 * Where the communicator has an idle() of its user's, it is called before each
 * yield and sleep, and with every look at the clock; no descriptor tells when
 * it has something to do, so that sleeps are short then.
 */
#ifndef SHUNTI_WAIT_H
#define SHUNTI_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct pollfd;
struct shunt_comm;
struct shunt_request;

/* Of a communicator: how its waits go. init.c writes it. */
struct shunti_waiting {
    unsigned spin_ns;       /* polling, before a yield and a sleep */
    int wake_fd;            /* eventfd: ends a sleep, from any thread */
    int (*idle)(void *arg); /* the user's; NULL: none */
    void *idle_arg;
};

/* One wait; begins zeroed but for `idle`. */
struct shunti_waiter {
    uint64_t began_ns; /* 0: the clock has not been read yet */
    unsigned rounds;
    unsigned naps;          /* since idle() did something */
    unsigned awake;         /* rounds without a nap because it did */
    uint64_t idle_until_ns; /* it may soon have more to do: no naps so long */
    bool idle; /* a caller's own wait: the configured idle() is called */
};

/* Nothing could be done just now: pause, yield or sleep a little. Called again
 * and again until what is awaited has happened; may fail the communicator. */
void shunti_waiter_pause(struct shunt_comm *comm, struct shunti_waiter *waiter);

/* Book the time that this wait took. */
void shunti_waiter_end(struct shunt_comm *comm, struct shunti_waiter *waiter);

/* For those who test without ever waiting: progress the transports and look
 * for lost peers and timeouts, now and then. */
void shunti_look_around(struct shunt_comm *comm);

/* Step this thread's other communicators that have operations under way. */
void shunti_step_others(void);

/* poll(), at most `ms` >= 0, during which this thread's communicators with
 * operations under way get on, and all of them answer liveness probes: for
 * waits that are in no call on one of them, as in a birth. */
int shunti_poll(struct pollfd *fds, unsigned long n, int ms);

/* Sleep until some transport has something, at most `ms`, and let all
 * transports progress. Nothing else: for births and shrinking. */
void shunti_transports_nap(struct shunt_comm *comm, int ms);

/* For loops that look at the clock all the time, last at *looked_ns: for how
 * many ns was this process stopped since, as it seems? That time must not be
 * held against the others. Sets *looked_ns. */
uint64_t shunti_stopped_ns(uint64_t *looked_ns);

#endif
