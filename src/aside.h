// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators aside: those with operations under way while their thread is
 * outside of them, computing or in a call on another communicator.
 *
 * A thread that waits on one communicator also steps its other ones: their
 * peers may need that before they come to the call that the thread waits in.
 * "Its" are those in which the thread was the last to make a call.
 *
 * Only one thread may touch a communicator at a time, and which one the caller
 * may change between two calls. So a call that ends with operations under way
 * puts its communicator aside: from then on whoever *holds* it may touch it, its
 * thread while waiting elsewhere, or the next call, which takes it back. A
 * holder that sleeps is woken for that. Communicators without operations are
 * never aside, and cost their calls nothing.
 *
 * Those with a progress thread are not put aside, for the thread steps them.
 */
#ifndef SHUNTI_ASIDE_H
#define SHUNTI_ASIDE_H

struct shunt_comm;

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

#endif
